"""The health checks of the compose file: exit code 0 if this container's daemon answers where its settings say.

health.py controller       /ready, by HTTP
health.py broker           any call, by gRPC: its event loop answers also one that no broker has
health.py page PORT        the page of one of Spark's daemons
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.request
from pathlib import Path

#: A health check's own timeout is longer, seconds.
TIMEOUT_S = 3.0
Files = tuple[str, str, str]


def own_files(prefix: str) -> Files | None:
    """Authorities, certificate and key; None without TLS."""
    if f"{prefix}_SSL_CA" not in os.environ:
        return None
    ca, certificate, key = (os.environ[f"{prefix}_SSL_{name}"] for name in ("CA", "CERTIFICATE", "KEY"))
    return ca, certificate, key


def http(url: str, files: Files | None = None) -> str | None:
    """What is wrong with the daemon that has this page; None: nothing."""
    context = None
    if files is not None:
        context = ssl.create_default_context(cafile=files[0])
        context.load_cert_chain(*files[1:])
    try:
        urllib.request.urlopen(url, timeout=TIMEOUT_S, context=context).close()  # noqa: S310  (a URL of ours)
    except OSError as error:
        return f"{url}: {error}"
    return None


def controller() -> str | None:
    files = own_files("PARTITION_CONTROLLER")
    scheme = "http" if files is None else "https"
    return http(f"{scheme}://{os.environ['PARTITION_CONTROLLER_HTTP_LISTEN']}/ready", files)


def broker() -> str | None:
    import grpc  # the others do without it, and begin sooner

    files = own_files("BROKER_STUB")
    port = os.environ["BROKER_STUB_LISTEN"].rpartition(":")[2]
    address = f"{os.environ['BROKER_STUB_ADVERTISED_HOST']}:{port}"
    if files is None:
        channel = grpc.insecure_channel(address)
    else:
        ca, certificate, key = (Path(name).read_bytes() for name in files)
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate))
    with channel:
        try:
            channel.unary_unary("/health/Check")(b"", timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return f"{address}: {error.code().name} {error.details()}"
    return None


def main() -> str | None:
    match sys.argv[1:]:
        case ["controller"]:
            return controller()
        case ["broker"]:
            return broker()
        case ["page", port]:
            return http(f"http://127.0.0.1:{int(port)}/")
        case _:
            return __doc__


if __name__ == "__main__":
    sys.exit(main())
