"""The controller's HTTP server: probes, metrics, ``/state``, and who may ask for them; the console is in ``console``.

Not here: the metrics themselves (``controller.runtime.observe``), except those for which a scrape reads ZooKeeper
(``min_isr``).
"""
