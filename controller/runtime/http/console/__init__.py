"""The console: pages at ``/ui`` that show the cluster in a browser, and what they ask, below ``/ui/api``.

Not here: anything that changes the cluster; authorization (``controller.runtime.http.access``, and the guard of RPCs).
"""
