"""A way to an API that a test may hold: what is asked arrives, and what is answered does not."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}


class Way:
    """Counts what arrived, by method, with its path and without.

    While `held` names a method, its answers do not come.
    """

    def __init__(self) -> None:
        self.upstream = ""
        self.arrived: Counter[str] = Counter()
        self.held = ""
        self.url = ""
        self._over = threading.Event()

    def leads_to(self, port: int) -> None:
        """Lead to another API of this machine from now on."""
        self.upstream = f"127.0.0.1:{port}"

    @contextmanager
    def open(self) -> Iterator["Way"]:
        way = self

        class Handler(BaseHTTPRequestHandler):
            def _forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                connection = HTTPConnection(way.upstream, timeout=30)
                connection.request(self.command, self.path, body or None, dict(self.headers))
                answer = connection.getresponse()
                raw = answer.read()
                way.arrived.update([self.command, f"{self.command} {self.path}"])
                if self.command == way.held:
                    way._over.wait()
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_PUT = do_DELETE = _forward  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Be quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            server.shutdown()
            thread.join()
            server.server_close()
