"""An OIDC issuer on this machine, and the tokens that it signs, or that somebody else does."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from api import issuer as tokens
from api.issuer import Issuer, configured
from headrace.clock import Clock
from headrace.config import Api

RSA, OTHER_RSA = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC = ec.generate_private_key(ec.SECP256R1())
EC_384 = ec.generate_private_key(ec.SECP384R1())


def public(key: Any, name: str, **more: str) -> dict[str, Any]:
    """Write a public key as it stands in a JWKS document."""
    kind = jwt.algorithms.ECAlgorithm if hasattr(key, "curve") else jwt.algorithms.RSAAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": name, **more}


@dataclass
class Idp:
    """An issuer on this machine: what it answers, and how often it was asked."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """What stands here is answered in place of what it would say."""
    asked: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        self.gate.wait(20)
        if path in self.answers:
            return self.answers[path]
        if path == tokens.DISCOVERY:
            about = {"issuer": self.url, "jwks_uri": f"{self.url}/keys?v=1"}
            return 200, json.dumps(about).encode()
        assert path == "/keys?v=1", path
        return 200, json.dumps({"keys": self.keys}).encode()

    @property
    def times(self) -> int:
        """How often its keys were fetched."""
        return self.asked.count("/keys?v=1")


@contextmanager
def an_idp() -> Iterator[Idp]:
    """Have an issuer until the block ends."""
    made = Idp(keys=[public(RSA, "r"), public(EC, "e")])
    made.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = made.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.gate.set()
    server.shutdown()
    thread.join()
    server.server_close()


def issuer_of(idp: Idp, clock: Clock, **more: str) -> Issuer:
    made = configured(Api(oidc_issuer=idp.url, oidc_audience="headrace", **more), clock)  # type: ignore[arg-type]
    assert made is not None
    return made


def token(idp: Idp, key: Any = RSA, alg: str = "RS256", kid: str = "r", **claims: Any) -> str:
    """Sign a token; times are seconds from now, and a claim of None is left out."""
    given = {
        "iss": idp.url,
        "aud": "headrace",
        "sub": "ann@example",
        "exp": 600,
        "scope": "openid query look",
    }
    kept = {name: value for name, value in {**given, **claims}.items() if value is not None}
    kept |= {name: int(time()) + kept[name] for name in ("exp", "nbf") if name in kept}
    return jwt.encode(kept, key, algorithm=alg, headers={"kid": kid})
