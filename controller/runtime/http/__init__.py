"""The controller's HTTP server: probes, metrics, ``/state``.

Not here: what is measured (``controller.runtime.observe``); anything that changes the cluster.
"""
