"""What a continuous query finds reaches its webhook in order, or is called for once a row."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alerting import Accounts, flow
from continuing import AT, SOON_S, continuing, put, wait_for
from receiving import Receiver, receiver
from serving import Client, assert_problem
from shop import HERE
from waiting import until

from api import bringing, webhook
from api.errors import WebhookRefused
from api.grant import Scope
from api.keyring import Keyring
from headrace.clock import SystemClock
from headrace.config import Api
from migrations import layout, warehouse

ANN = "SELECT cents FROM balances WHERE name = 'ann'"
POOR = "SELECT name, cents FROM balances WHERE cents < 50 ORDER BY name"


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bringing, "BACKOFF_S", 0.01)


@pytest.fixture
def accounts(tmp_path: Path, warehouse_url: str) -> Iterator[Accounts]:
    with warehouse.connect(warehouse_url, application="test") as opened:
        layout.prepare(opened, HERE, flow)
    made = Accounts(tmp_path)
    yield made
    made.close()


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def serve(accounts: Accounts, url: str, **limits: Any) -> Any:
    of = Api(**{"webhooks_private": True, **limits})
    calls = accounts.calls()
    return continuing(accounts.home, url, [accounts.path], flow, calls=calls, limits=of)


@pytest.fixture
def client(accounts: Accounts, warehouse_url: str) -> Iterator[Client]:
    with serve(accounts, warehouse_url) as client:
        yield client


def test_a_webhook_is_told_each_result_in_order_under_a_key_of_its_own(
    accounts: Accounts, client: Client, hook: Receiver
) -> None:
    made = put(client, "ann", ANN, to={"webhook": hook.url})
    assert (made.status, made.document["to"]["webhook"]) == (201, hook.url)
    accounts.pay(("ann", "bob", 1), ("ann", "bob", 2))
    wait_for(client, "ann", as_of={"alerting": 3}, delivery="done")
    assert hook.taken == [
        (
            f"ann:{batch}",
            {
                "name": "ann",
                "as_of": {"alerting": batch},
                "position": str(batch),
                "columns": [{"name": "cents", "type": "bigint"}],
                "rows": [[cents]],
            },
        )
        for batch, cents in [(1, 100), (2, 99), (3, 97)]
    ]
    assert set(hook.paths) == {"/hook?of=mine"}


def test_a_webhook_that_is_down_is_tried_again_and_nothing_comes_before_its_turn(
    accounts: Accounts, client: Client, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "ATTEMPTS_MAX", 10_000)
    hook.status = 503
    put(client, "ann", ANN, to={"webhook": hook.url})
    accounts.pay(("ann", "bob", 1), ("ann", "bob", 2))
    said = wait_for(client, "ann", as_of={"alerting": 3}, delivery="retrying", waiting=3)
    assert "answered 503" in said["delivery_error"]["detail"]
    until(lambda: len(hook.refused) > 3, SOON_S, lambda: str(hook.refused))
    assert set(hook.refused) == {"ann:1"}
    hook.status = 200
    wait_for(client, "ann", delivery="done", waiting=0)
    assert hook.keys == ["ann:1", "ann:2", "ann:3"]


def test_after_so_many_attempts_it_is_parked_until_somebody_says_so(
    accounts: Accounts, warehouse_url: str, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "ATTEMPTS_MAX", 3)
    hook.status = 500
    with serve(accounts, warehouse_url) as client:
        put(client, "ann", ANN, to={"webhook": hook.url})
        wait_for(client, "ann", delivery="failed")
        accounts.pay(("ann", "bob", 1))
        wait_for(client, "ann", as_of={"alerting": 2}, delivery="failed", state="running")
    assert hook.refused == ["ann:1"] * 3
    hook.status = 200
    with serve(accounts, warehouse_url) as client:
        said = wait_for(client, "ann", delivery="failed", waiting=2)
        assert "answered 500" in said["delivery_error"]["detail"]
        assert client.send("POST", f"{AT}/ann/retry").status == 200
        wait_for(client, "ann", delivery="done")
    assert hook.keys == ["ann:1", "ann:2"]


def test_a_redirect_is_not_followed(
    accounts: Accounts, client: Client, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "ATTEMPTS_MAX", 2)
    hook.status, hook.headers = 307, {"Location": hook.url.replace("/hook", "/other")}
    put(client, "ann", ANN, to={"webhook": hook.url})
    said = wait_for(client, "ann", delivery="failed")
    assert "Redirects are not followed" in said["delivery_error"]["hint"]
    assert set(hook.paths) == {"/hook?of=mine"}


def test_a_slow_one_holds_up_nobody_else(
    accounts: Accounts, client: Client, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "ATTEMPTS_MAX", 2)
    monkeypatch.setattr(webhook, "ANSWER_S", 0.2)
    hook.hold.clear()
    put(client, "slow", ANN, to={"webhook": hook.url})
    with receiver() as other:
        put(client, "ann", ANN, to={"webhook": other.url})
        accounts.pay(("ann", "bob", 1))
        wait_for(client, "ann", as_of={"alerting": 2}, delivery="done")
        assert other.keys == ["ann:1", "ann:2"]
    said = wait_for(client, "slow", delivery="failed", as_of={"alerting": 2})
    assert "did not answer" in said["delivery_error"]["detail"]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "https://localhost/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://169.254.169.254/latest",
        "http://0.0.0.0/",
        "http://10.0.0.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://224.0.0.1/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "//example.com/",
        "http://user:password@example.com/",
        "http://example.com:99999/",
        "http://example.com/a b",
        "http://example.com/a\r\nHost: b",
        "http:///nowhere",
    ],
)
def test_only_public_addresses_of_the_web_are_posted_to(url: str) -> None:
    with pytest.raises(WebhookRefused):
        webhook.check(url, private=False)


def test_a_name_that_moves_to_a_private_address_is_refused_when_it_has(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(hook.url.split(":")[2].split("/")[0])
    answers = iter(["93.184.215.14", "127.0.0.1"])
    asked: list[object] = []

    def resolve(host: object, port: int, **_: object) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    url = f"http://moving.example:{port}/"
    webhook.check(url, private=False)
    with pytest.raises(WebhookRefused, match="on this machine or in a private network"):
        webhook.post(url, b"{}", "key", private=False)
    assert asked == ["moving.example"] * 2
    assert hook.paths == []


def test_it_is_refused_when_it_is_registered(accounts: Accounts, warehouse_url: str) -> None:
    with serve(accounts, warehouse_url, webhooks_private=False) as client:
        refused = put(client, "ann", ANN, to={"webhook": "http://127.0.0.1:1/"})
        assert "api.webhooks_private" in assert_problem(refused, 400, "WebhookRefused")["hint"]


def test_a_call_is_made_for_each_row_once(accounts: Accounts, client: Client) -> None:
    put(client, "poor", POOR, to={"call": "alerting/warn"}, when="change")
    accounts.pay([("ann", "cy", 60), ("bob", "cy", 70)])
    wait_for(client, "poor", as_of={"alerting": 2}, delivery="done")
    assert accounts.warned() == [("ann", 40), ("bob", 30)]
    accounts.pay(("cy", "bob", 50))
    wait_for(client, "poor", as_of={"alerting": 3}, delivery="done")
    assert accounts.warned() == [("ann", 40), ("bob", 30), ("ann", 40)]


def test_a_call_that_refuses_is_parked_and_what_was_called_is_not_called_again(
    accounts: Accounts, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "ATTEMPTS_MAX", 3)
    put(client, "poor", POOR, to={"call": "alerting/warn"})
    accounts.pay([("ann", "bob", 60), ("cy", "bob", 60)])
    said = wait_for(client, "poor", delivery="failed", waiting=1)
    assert "cy does not listen" in said["delivery_error"]["detail"]
    client.send("POST", f"{AT}/poor/retry")
    wait_for(client, "poor", delivery="failed", waiting=1)
    assert accounts.warned() == [("ann", 40)]


def test_when_the_key_is_over_nothing_is_brought_any_more(
    accounts: Accounts, client: Client, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "ATTEMPTS_MAX", 10_000)
    hook.status = 503
    with closing(Keyring(accounts.home / "keys.db", SystemClock())) as keyring:
        made, key = keyring.create("ann", frozenset({Scope.QUERY, Scope.SUBSCRIBE}))
        put(client, "ann", ANN, key=key, to={"webhook": hook.url})
        until(lambda: bool(hook.refused), SOON_S, lambda: "not tried")
        keyring.revoke(made.grant.id)
    said = wait_for(client, "ann", delivery="failed", state="stopped")
    assert said["delivery_error"]["code"] == "KeyRevoked"
    hook.status = 200
    client.send("POST", f"{AT}/ann/retry")
    wait_for(client, "ann", delivery="failed")
    assert hook.taken == []


def test_what_waits_for_too_long_is_put_together_with_what_comes(
    accounts: Accounts, client: Client, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "ATTEMPTS_MAX", 10_000)
    monkeypatch.setattr("api.registered.DUE_MAX", 2)
    hook.status = 503
    put(client, "ann", ANN, to={"webhook": hook.url})
    for batch in range(2, 6):
        accounts.pay(("ann", "bob", 1))
        wait_for(client, "ann", as_of={"alerting": batch})
    hook.status = 200
    wait_for(client, "ann", delivery="done")
    assert hook.keys == ["ann:1", "ann:5"]
