"""A server of S3 on this machine (moto), without which nothing of S3 can be tested, and Hadoop's settings for it."""

from __future__ import annotations

import http.client
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from controller.analysis.object_storage.jars import HADOOP_AWS
from tests.support.ports import free_port
from tests.support.runtime.programs import Program, program
from tests.tools.installation import REQUIREMENTS, IndexOutOfReachError, install

#: The server takes any signature, and without one is asked by a stranger.
_ANYBODY = "AWS4-HMAC-SHA256 Credential=anybody/20260101/us-east-1/s3/aws4_request"
_LISTED = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def fetched_jars() -> Path:
    """The folder with the jars of Hadoop's client of S3, or the test is skipped."""
    version = HADOOP_AWS.versions[0]
    if not HADOOP_AWS.fetched(version):
        pytest.skip(f"the jars of Hadoop {version}'s client of S3 are not here: make s3-jars fetches them")
    return HADOOP_AWS.fetch(version)


@dataclass
class Bucket:
    """An empty bucket of a server of its own."""

    name: str
    port: int
    server: Program

    @property
    def url(self) -> str:
        return f"s3a://{self.name}"

    @property
    def properties(self) -> dict[str, str]:
        """Hadoop's, without which nobody reaches the bucket."""
        return {
            "fs.s3a.endpoint": f"http://127.0.0.1:{self.port}",
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": "anybody",
            "fs.s3a.secret.key": "no secret",
        }

    def configured(self, folder: Path) -> dict[str, str]:
        """The environment of programs that take these properties from a file, as users have them."""
        root = ET.Element("configuration")
        for name, value in self.properties.items():
            entry = ET.SubElement(root, "property")
            ET.SubElement(entry, "name").text, ET.SubElement(entry, "value").text = name, value
        folder.mkdir(exist_ok=True)
        ET.ElementTree(root).write(folder / "core-site.xml")
        return {"HADOOP_CONF_DIR": str(folder)}

    def put(self, folder: Path, prefix: str) -> None:
        """Upload all files below a folder."""
        for path in folder.rglob("*"):
            if path.is_file():
                self._ask("PUT", f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def get(self, prefix: str, folder: Path) -> None:
        """Download all objects whose name begins so."""
        for name in self.names(prefix):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                target.write_bytes(self._ask("GET", name))

    def names(self, prefix: str = "") -> list[str]:
        found, more = [], {"list-type": "2", "prefix": prefix}
        while more:
            listed = ET.fromstring(self._ask("GET", "", query=more))
            found += [key.text or "" for key in listed.iter(f"{_LISTED}Key")]
            token = listed.findtext(f"{_LISTED}NextContinuationToken")
            more = {"list-type": "2", "prefix": prefix, "continuation-token": token} if token else {}
        return found

    def _ask(self, method: str, key: str, body: bytes = b"", query: Mapping[str, str] = {}) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            where = f"/{self.name}/{quote(key)}?{urlencode(query)}"
            connection.request(method, where, body, {"Authorization": _ANYBODY})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        assert answer.status in (200, 204), f"{method} {key}: {answer.status} {content!r}"
        return content


@dataclass
class Middleman:
    """Between a client and the server. ``forgets``: a header that it does not pass on; ``loses``: how many answers to a
    request with that header it loses, telling of an error of its own."""

    target: int
    forgets: str = ""
    loses: int = 0
    header: str = "If-None-Match"

    @contextmanager
    def running(self) -> Iterator[int]:
        """The port that it listens on."""
        handler = type("Handler", (_Passing,), {"middleman": self})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()
                thread.join()


class _Passing(BaseHTTPRequestHandler):
    middleman: Middleman
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        between = self.middleman
        given = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name != between.forgets}
        connection = http.client.HTTPConnection("127.0.0.1", between.target, timeout=60)
        try:
            connection.request(self.command, self.path, given, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        status = answer.status
        if between.loses and between.header in self.headers:
            between.loses -= 1
            status, content = 503, b""
        self.send_response(status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "connection", "date", "server", "transfer-encoding"):
                self.send_header(name, value)
        size = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", size)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def s3(directory: Path) -> Iterator[Bucket]:
    """Start a server; the test is skipped where it cannot be installed."""
    try:
        tool = install(REQUIREMENTS / "moto.txt")
    except IndexOutOfReachError as error:
        pytest.skip(f"the package index is out of reach, so moto cannot be installed: {error}")
    port = free_port()
    command = [str(tool.bin / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with program(command, directory, {"PYTHONPATH": "", "PYTHONWARNINGS": ""}, "s3") as server:
        server.until(lambda: "Running on" in server.said())
        bucket = Bucket("bucket", port, server)
        bucket._ask("PUT", "")
        yield bucket
