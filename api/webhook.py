"""A webhook: a document that is posted to an address of somebody's choice, if it may go there.

The name is resolved once, and that address is connected to: what a name server says the second
time has no say. No redirect is followed, and no proxy is asked.
"""

import socket
import ssl
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

from api.errors import Undelivered, WebhookRefused

ANSWER_S = 10.0
URL_LENGTH_MAX = 2_000
PORTS = {"http": 80, "https": 443}
TRANSLATED = IPv6Network("64:ff9b::/96")
"""Addresses of version 4 behind a translator (NAT64)."""


def check(url: str, *, private: bool) -> None:
    """Refuse a URL to which nothing may be posted."""
    _address(_parts(url), private=private)


def post(url: str, body: bytes, key: str, *, private: bool) -> None:
    """Post a JSON document; raise what keeps it from being taken."""
    parts = _parts(url)
    host, port = str(parts.hostname), parts.port or PORTS[parts.scheme]
    address = _address(parts, private=private)
    headers = {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "Idempotency-Key": key,
        "User-Agent": "headrace",
        "Connection": "close",
    }
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = HTTPConnection(host, port)
    try:
        opened = socket.create_connection((address, port), timeout=ANSWER_S)
        # The socket's own limit is for each read: this one is for all of them.
        ending = threading.Timer(ANSWER_S, lambda: _shut(opened))
        ending.daemon = True
        ending.start()
        try:
            if parts.scheme == "https":
                opened = ssl.create_default_context().wrap_socket(
                    opened, server_hostname=host, do_handshake_on_connect=False
                )
                opened.do_handshake()
            connection.sock = opened
            connection.request("POST", target, body, headers)
            status = connection.getresponse().status
        finally:
            ending.cancel()
            opened.close()
    except (OSError, HTTPException) as error:
        raise Undelivered(
            f"the webhook at {parts.scheme}://{parts.netloc} did not answer within "
            f"{ANSWER_S:g} s: {str(error) or type(error).__name__}",
            hint="Is it up, and can the API's machine reach it?",
        ) from error
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise Undelivered(
            f"the webhook at {parts.scheme}://{parts.netloc} answered {status}",
            hint="Redirects are not followed: register the address itself."
            if 300 <= status < 400
            else "It has to answer by a status from 200 to 299.",
        )


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if (
        parts.scheme not in PORTS
        or not parts.hostname
        or port == 0
        or "@" in parts.netloc
        or len(url) > URL_LENGTH_MAX
        or not url.isascii()
        or not url.isprintable()
        or " " in url
    ):
        raise WebhookRefused(
            f"{url[:100]!r} is no address of a webhook",
            hint="It is http://... or https://..., without a name or password, in ASCII, of up to "
            f"{URL_LENGTH_MAX} characters.",
        )
    return parts


def _address(parts: SplitResult, *, private: bool) -> str:
    """Resolve the name, once; refuse it if any of its addresses is not one to go to."""
    try:
        port = parts.port or PORTS[parts.scheme]
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Undelivered(
            f"nobody knows an address of {parts.hostname}: {error}",
            hint="Is the webhook's host written rightly?",
        ) from error
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    if not private and any(not _is_public(address) for address in addresses):
        raise WebhookRefused(
            f"{parts.hostname} is on this machine or in a private network",
            hint="Webhooks go to public addresses only, unless api.webhooks_private is true.",
        )
    return addresses[0]


def _is_public(text: str) -> bool:
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if inner := address.ipv4_mapped or address.sixtofour:
            address = inner
        elif address in TRANSLATED:
            address = ip_address(int(address) & 0xFFFF_FFFF)
    return address.is_global and not address.is_multicast


def _shut(opened: socket.socket) -> None:
    with suppress(OSError):  # it has ended meanwhile
        opened.shutdown(socket.SHUT_RDWR)
