"""The console: pages at ``/ui`` that show the cluster in a browser, what they ask, below ``/ui/api``, and changes.

Not here: authorization (``controller.runtime.http.access``, and the guard of RPCs); what a change does: it is a request
of an RPC.
"""
