"""Who asks and what they may, for both daemons: files of secrets, TLS, principals, authorization.

Not here: sockets and servers, and what a request needs, which its handler's table knows.
"""
