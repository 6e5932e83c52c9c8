"""The controller's HTTP server: probes, metrics, ``/state``.

Not here: the metrics themselves (``controller.runtime.observe``); anything that changes the cluster.
"""
