"""A way to PostgreSQL that a test can cut at any step of the protocol, on either side of it.

Each side sends messages: a type, a length, and what it says. A step is what one side sends before
it waits for the other: of the client, what ends with a query or a synchronisation; of the server,
what ends with its being ready, or a change of who is to copy.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

TURNS = {"client": b"QScfp", "server": b"ZGHR"}
"""The types of messages after which the other side has its turn."""


class Wire:
    """Forwards connections to a server; counts their steps, or their messages, and cuts at one."""

    def __init__(self, url: str, *, each_message: bool = False, half: bool = False) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self.server = parts.hostname, parts.port
        """Where connections lead that are made from now on."""
        self._each_message, self._half = each_message, half
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        plain = "?sslmode=disable&gssencmode=disable"  # what is encrypted has no steps to count
        self.url = url.replace(f":{parts.port}/", f":{port}/") + plain
        self._lock = threading.Lock()
        self._left = 0
        self.was_cut = False
        self._closing = False

    def cut_at(self, step: int) -> None:
        """Cut the connection at hand before its nth step from now on; 0: never."""
        with self._lock:
            self._left, self.was_cut = step, False

    @contextmanager
    def open(self) -> Iterator["Wire"]:
        """Forward until the block ends."""
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._closing = True
            socket.create_connection(self._listener.getsockname()).close()
            thread.join()
            self._listener.close()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._closing:
                client.close()
                return
            server = socket.create_connection(self.server)
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for name, ends in (("client", (client, server)), ("server", (server, client))):
                threading.Thread(target=self._forward, args=(name, *ends), daemon=True).start()

    def _forward(self, name: str, source: socket.socket, target: socket.socket) -> None:
        try:
            turn = b""
            for message in _messages(source, begins=name == "client"):
                turn += message
                if self._each_message or message[:1] in TURNS[name] or not turn[:1].strip(b"\0"):
                    if self._is_time():
                        if self._half:
                            target.sendall(turn[: len(turn) // 2])
                        break
                    target.sendall(turn)
                    turn = b""
        except OSError:
            pass  # the other direction has ended it
        finally:
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _is_time(self) -> bool:
        with self._lock:
            self._left -= 1
            self.was_cut |= self._left == 0
            return self._left == 0


def _messages(source: socket.socket, *, begins: bool) -> Iterator[bytes]:
    """Read the messages of one side. The first of a client has no type."""
    with source.makefile("rb") as reading:
        while True:
            type_ = b"" if begins else reading.read(1)
            length = reading.read(4)
            if len(length) < 4:
                return
            rest = reading.read(struct.unpack(">I", length)[0] - 4)
            begins = False
            yield type_ + length + rest
