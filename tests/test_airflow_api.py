"""What Airflow's tasks know of the API: ids of migrations, requests and their troubles, waiting."""

import asyncio
import http.server
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_headrace import KEY, Headrace, problem, serving
from hypothesis import given
from hypothesis import strategies as st

from etl_procs import errors as of_core
from headrace import errors as of_kernel
from headrace_airflow.api import Api, Problem, Unreachable
from headrace_airflow.attempts import NOT_AGAIN, standing
from headrace_airflow.identity import ATTEMPTS_MAX, LENGTH_MAX, attempt_id, migration_id
from headrace_airflow.waiting import PAUSE_S_MAX, Overdue, told
from migrations import errors as of_warehouses

DOCS = Path(__file__).parent.parent / "docs"
BODY = {"kind": "pull", "warehouse": "default", "dataflows": None, "idle": None}

# Ids

NAMES = st.one_of(st.text("ab.~_-:+ é/2m", min_size=1), st.text(min_size=1, max_size=300))
TASKS = st.tuples(NAMES, NAMES, NAMES, st.integers(-1, 12))
ATTEMPTS = st.integers(1, ATTEMPTS_MAX)


@given(TASKS, ATTEMPTS, TASKS, ATTEMPTS)
def test_two_attempts_of_whatever_tasks_have_the_same_id_only_if_they_are_the_same(
    one: tuple[str, str, str, int], first: int, other: tuple[str, str, str, int], second: int
) -> None:
    same = attempt_id(migration_id(*one), first) == attempt_id(migration_id(*other), second)
    assert same == ((one, first) == (other, second))


@given(TASKS, ATTEMPTS)
def test_an_id_is_one_that_the_api_takes(task: tuple[str, str, str, int], attempt: int) -> None:
    id_ = attempt_id(migration_id(*task), attempt)
    assert re.fullmatch(r"[A-Za-z0-9._:+~-]+", id_)
    assert len(id_) <= LENGTH_MAX


def test_an_id_can_be_read_by_people() -> None:
    run = "scheduled__2026-11-19T05:00:00+00:00"
    first = migration_id("headrace_merge", "merge_default", run)
    assert first == f"headrace_merge.merge_default.{run}"
    assert attempt_id(first, 2) == f"{first}.2"
    assert migration_id("a.b", "c d", "ü", 3) == "a~2Eb.c~20d.~C3~BC.m3"


def test_a_long_id_keeps_its_beginning() -> None:
    id_ = migration_id("d" * 250, "t", "r")
    assert id_.startswith("d" * 100)
    assert id_ != migration_id("d" * 250, "t", "s")


# Requests


@pytest.fixture
def headrace() -> Iterator[Headrace]:
    with serving(Headrace()) as served:
        yield served


@pytest.fixture
def api(headrace: Headrace) -> Api:
    return Api(headrace.url, KEY)


def test_a_migration_that_is_asked_for_twice_is_there_once(headrace: Headrace, api: Api) -> None:
    headrace.holding.set()
    assert api.put("d.t.r+00:00", BODY) == api.put("d.t.r+00:00", BODY)
    assert list(headrace.migrations) == ["d.t.r+00:00"]
    assert headrace.begun == 1


def test_another_migration_under_the_same_id_is_refused(api: Api) -> None:
    api.put("id", BODY)
    with pytest.raises(Problem, match="MigrationConflict: it says why\n  it says what to do"):
        api.put("id", {**BODY, "kind": "merge"})


def test_an_unknown_migration_is_no_error(api: Api) -> None:
    assert api.migration("nobody") is None


@pytest.mark.parametrize("end", ["unknown", "running", "succeeded", "cancelled"])
def test_whatever_state_it_is_in_a_migration_can_be_cancelled(
    headrace: Headrace, api: Api, end: str
) -> None:
    if end != "unknown":
        api.put("id", BODY)
        headrace.migrations["id"]["state"] = end
    api.cancel("id")
    assert headrace.migrations.get("id", {"state": "unknown"})["state"] != "running"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_what_passes_by_itself_is_unreachable(headrace: Headrace, api: Api, status: int) -> None:
    headrace.troubles = [problem(status, "Busy", "later")]
    with pytest.raises(Unreachable, match="Busy: later") as raised:
        api.migration("id")
    assert raised.value.retry_after_s == (1 if status == 503 else 0)
    assert api.migration("id") is None


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_what_does_not_pass_is_a_problem(headrace: Headrace, api: Api, status: int) -> None:
    headrace.troubles = [problem(status, "Bad")]
    with pytest.raises(Problem, match="Bad: it says why"):
        api.put("id", BODY)


def test_a_wrong_key_is_a_problem_and_is_not_shown(headrace: Headrace) -> None:
    stranger = Api(headrace.url, "a wrong key")
    assert "wrong" not in repr(stranger)
    with pytest.raises(Problem, match="Unauthorized"):
        stranger.migration("id")


def test_nobody_who_listens_is_unreachable(headrace: Headrace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=r"does not answer: .*refused"):
        Api(f"http://127.0.0.1:{port}", KEY).migration("id")


def test_somebody_who_does_not_speak_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        api = Api(f"http://127.0.0.1:{listener.getsockname()[1]}", KEY, timeout_s=0.05)
        with pytest.raises(Unreachable, match="timed out"):
            api.migration("id")


class Page(http.server.BaseHTTPRequestHandler):
    """Another server than ours: a page of HTML, or a redirect to wherever."""

    def do_GET(self) -> None:
        body = b"<html>" + self.headers["Authorization"].encode()
        moved = self.path.endswith("moved")
        self.send_response(302 if moved else 200)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def page() -> Iterator[Api]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield Api(f"http://127.0.0.1:{server.server_port}", KEY)
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_of_somebody_else_is_a_problem_of_the_connection(page: Api) -> None:
    with pytest.raises(Problem, match="is not Headrace's API\n  Correct host, port and schema"):
        page.migration("id")


def test_the_key_does_not_follow_a_redirect(page: Api) -> None:
    with pytest.raises(Problem, match="HTTP 302"):
        page.migration("moved")


def test_a_warehouse_that_is_not_there_is_a_problem_of_the_variable(api: Api) -> None:
    with pytest.raises(Problem, match="no warehouse second\n  Correct the Variable"):
        api.warehouse("second")


# Attempts


@pytest.mark.parametrize("state", ["waiting", "running", "succeeded"])
def test_a_migration_that_stands_is_gone_on_with(headrace: Headrace, api: Api, state: str) -> None:
    headrace.holding.set()
    api.put("id", BODY)
    headrace.migrations["id"]["state"] = state
    assert standing(api, "id") == "id"


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_one_that_is_lost_is_followed_by_another(headrace: Headrace, api: Api, state: str) -> None:
    for lost in ("id", "id.2"):
        api.put(lost, BODY)
        headrace.migrations[lost]["state"] = state
    assert standing(api, "id") == "id.3"
    api.put("id.3", BODY)
    assert standing(api, "id") == "id.3"


def test_attempts_have_a_limit(headrace: Headrace, api: Api) -> None:
    for attempt in range(1, ATTEMPTS_MAX + 1):
        headrace.migrations[attempt_id("id", attempt)] = {"state": "failed"}
    with pytest.raises(Problem, match="TooManyAttempts"):
        standing(api, "id")


def test_what_is_not_tried_again_are_errors_and_none_that_passes_by_itself() -> None:
    page = (DOCS / "airflow.md").read_text()
    assert all(f"`{code}`" in page for code in NOT_AGAIN)
    errors = {**vars(of_kernel), **vars(of_core), **vars(of_warehouses)}
    for code in NOT_AGAIN - {"AuditFailed"}:
        assert issubclass(errors[code], of_kernel.HeadraceError)
        assert not issubclass(errors[code], of_kernel.NotRunning | of_core.Passing)


# Waiting


class Sleeper:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def wait(look: Callable[[], str | None], limit_s: float, pause_s: float = 10) -> list[float]:
    """Wait on such a clock, and give the pauses."""
    clock = Sleeper()
    run = told(look, 1000 + limit_s, pause_s, now=lambda: clock.now, sleep=clock.sleep)
    assert asyncio.run(run) == "done"
    return clock.pauses


def script(*answers: str | Exception | None) -> Callable[[], str | None]:
    left = iter(answers)

    def look() -> str | None:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


def test_what_is_there_already_is_not_waited_for() -> None:
    assert wait(script("done"), limit_s=0) == []


def test_pauses_grow_to_their_limit() -> None:
    assert wait(script(*[None] * 7, "done"), 100) == [0.5, 1, 2, 4, 8, 10, 10]


def test_an_api_that_is_away_is_waited_for_as_long_as_it_asks() -> None:
    away, busy = Unreachable("away"), Unreachable("busy", 7)
    forever = Unreachable("busy", 1e9)
    pauses = wait(script(away, busy, forever, None, "done"), 1000)
    assert pauses == [0.5, 7, PAUSE_S_MAX, 4]


def test_time_is_up_when_it_is_up_and_there_was_a_last_look() -> None:
    clock = Sleeper()
    with pytest.raises(Overdue, match="it has not ended"):
        asyncio.run(told(lambda: None, 1003.2, 10, now=lambda: clock.now, sleep=clock.sleep))
    assert clock.pauses == pytest.approx([0.5, 1, 1.7])


def test_what_is_overdue_because_the_api_is_away_says_so() -> None:
    with pytest.raises(Overdue, match="nobody answers") as raised:
        wait(script(Unreachable("nobody answers")), limit_s=0)
    assert isinstance(raised.value.__cause__, Unreachable)


def test_a_problem_ends_the_waiting() -> None:
    with pytest.raises(Problem, match="Bad"):
        wait(script(None, Problem(400, "Bad", "no", "")), 100)


def test_a_restart_of_the_api_goes_unnoticed() -> None:
    headrace = Headrace()
    with serving(headrace):
        api = Api(headrace.url, KEY)
        headrace.holding.set()
        api.put("id", BODY)
    looks: list[str] = []

    async def sleep(_: float) -> None:
        looks.append("away")
        if len(looks) == 3:
            again.enter_context(serving(headrace))
            headrace.holding.clear()

    def look() -> str | None:
        found = api.migration("id")
        return "done" if found and found["state"] == "succeeded" else None

    with ExitStack() as again:
        assert asyncio.run(told(look, 1e12, 1, sleep=sleep)) == "done"
    assert looks == ["away"] * 3
    assert headrace.begun == 1
