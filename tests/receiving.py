"""A receiver of webhooks: it keeps what it is told, and answers as a test says."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """What was posted, with its keys, in order."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/hook?of=mine"
        self.paths: list[str] = []
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.refused: list[str] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.hold = threading.Event()
        """Not set: the receiver answers nothing."""
        self.hold.set()

    @property
    def keys(self) -> list[str]:
        """Name what was taken, in order."""
        return [key for key, _ in self.taken]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Receive until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            key = self.headers["Idempotency-Key"]
            made.paths.append(self.path)
            made.hold.wait(30)
            if made.status == 200:
                made.taken.append((key, json.loads(body)))
            else:
                made.refused.append(key)
            self.send_response(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield made
    finally:
        made.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
