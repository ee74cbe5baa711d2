"""Keys: what is kept of them, who reads them, and what the command line says of them."""

import json
import re
import sqlite3
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from flows import HeldClock

from api import predicate
from api.errors import KeyExpired, KeyMissing, KeyRevoked, KeyUnknown, QueryRefused
from api.grant import DESCRIBED, Grant, Restriction, Scope
from api.keyring import Keyring, State
from etl_procs.columns import OF_OUTLETS, parse_tuple
from headrace.cli import api_keys, main
from headrace.errors import ConfigError, Exit
from headrace.local.home import Home

SHOP = Path(__file__).parent / "shop.py"
QUERY = frozenset({Scope.QUERY})


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


@pytest.fixture
def keyring(path: Path, clock: HeldClock) -> Keyring:
    return Keyring(path, clock)


# The file


def test_a_key_grants_what_it_was_made_for(keyring: Keyring) -> None:
    tables = {
        "shop.sales": Restriction(("id", "price"), '("price" < 10)'),
        "shop.refunds": Restriction(),
    }
    made, shown = keyring.create("north", QUERY, tables=tables, rate_per_s=5)
    assert keyring.grant(shown) == made.grant
    assert made.grant == Grant(made.grant.id, "north", QUERY, tables, 5)
    _, all_of_it = keyring.create("everything", frozenset(Scope))
    assert keyring.grant(all_of_it).tables is None
    assert keyring.grant(all_of_it).scopes == frozenset(Scope)


def test_of_a_secret_only_its_sha_256_is_kept_in_a_file_that_only_the_owner_can_read(
    keyring: Keyring, path: Path
) -> None:
    made, shown = keyring.create("one", QUERY)
    found = re.fullmatch(rf"hr_{made.grant.id}_([\w-]{{43}})", shown)
    assert found
    files = [path, path.with_name("keys.db-wal"), path.with_name("keys.db-shm")]
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert found[1].encode() not in file.read_bytes()


def test_two_keys_have_nothing_in_common(keyring: Keyring) -> None:
    keys = [keyring.create("same", QUERY)[1].split("_", 2) for _ in range(100)]
    assert len({id_ for _, id_, _ in keys}) == len({secret for *_, secret in keys}) == 100


def test_a_key_is_over_when_it_expires_and_not_before(keyring: Keyring, clock: HeldClock) -> None:
    made, shown = keyring.create("one", QUERY, lasts=timedelta(hours=1))
    clock.advance(3599.999)
    assert keyring.grant(shown) == made.grant
    clock.advance(0.001)
    with pytest.raises(KeyExpired, match=f"the key {made.grant.id} has expired"):
        keyring.grant(shown)


def test_a_key_that_another_process_revokes_opens_nothing_from_then_on(
    keyring: Keyring, path: Path
) -> None:
    made, shown = keyring.create("one", QUERY)
    assert keyring.grant(shown)
    code = (
        "import sys, pathlib; from api.keyring import Keyring; from headrace.clock import "
        "SystemClock; Keyring(pathlib.Path(sys.argv[1]), SystemClock()).revoke(sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", code, str(path), made.grant.id], check=True)
    with pytest.raises(KeyRevoked):
        keyring.grant(shown)


def test_a_key_that_another_process_makes_is_good_at_once(
    keyring: Keyring, path: Path, clock: HeldClock
) -> None:
    with pytest.raises(KeyUnknown):
        keyring.grant("hr_0123456789ab_x")
    _, shown = Keyring(path, clock).create("two", QUERY)
    assert keyring.grant(shown).name == "two"


def test_revoking_twice_is_once_and_revoking_nothing_is_refused(
    keyring: Keyring, clock: HeldClock
) -> None:
    made, _ = keyring.create("one", QUERY)
    first = keyring.revoke(made.grant.id)
    clock.advance(5)
    assert keyring.revoke(made.grant.id) == first
    assert first.state(clock.now()) is State.REVOKED
    with pytest.raises(KeyMissing, match="there is no key nobody"):
        keyring.revoke("nobody")


def test_a_secret_that_differs_anywhere_opens_nothing(keyring: Keyring) -> None:
    _, shown = keyring.create("one", QUERY)
    _, other = keyring.create("two", QUERY)
    swapped = shown[:16] + other[16:]
    for wrong in (shown[:-1], shown + "a", shown.upper(), swapped, shown.rpartition("_")[0]):
        with pytest.raises(KeyUnknown):
            keyring.grant(wrong)


@pytest.mark.parametrize("name", ["", "owner", "a b", "-a", "a" * 65, "a\nb", 'a"'])
def test_a_name_that_could_not_stand_in_a_log_is_refused(keyring: Keyring, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a key"):
        keyring.create(name, QUERY)


def test_a_key_for_nothing_is_refused(keyring: Keyring) -> None:
    with pytest.raises(ConfigError, match="without a scope"):
        keyring.create("one", frozenset())


def test_a_failed_write_leaves_the_file_as_it_was(keyring: Keyring) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        keyring.create("one", QUERY, rate_per_s=0)
    assert keyring.all() == []
    keyring.create("one", QUERY)


# Predicates

COLUMNS = parse_tuple(
    "id INTEGER NOT NULL, price REAL, note TEXT, gone BOOLEAN, day DATE", "t", OF_OUTLETS
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("id = 1", '("id" = 1)'),
        ("ID > 1 AND note IS NOT NULL -- all", '("id" > 1 AND "note" IS NOT NULL)'),
        ("note IN ('a', 'b''c') OR gone", """("note" IN ('a', 'b''c') OR "gone")"""),
        ("gone", '("gone")'),
        ("NOT gone", '(NOT "gone")'),
        ("true", "(TRUE)"),
        ("lower(note) LIKE 'n%'", """(LOWER("note") LIKE 'n%')"""),
        ("day >= DATE '2026-01-01'", """("day" >= CAST('2026-01-01' AS DATE))"""),
    ],
)
def test_a_predicate_is_written_anew(text: str, normal: str) -> None:
    assert predicate.normal(text, COLUMNS) == normal
    assert predicate.normal(normal, COLUMNS) == f"({normal})"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id",
        "id + 1",
        "'a'",
        "id = 1; DROP TABLE sales",
        "id = 1) OR (1 = 1",
        "id = 1 UNION SELECT 1",
        "id = 1 GROUP BY id",
        "id = 1 ORDER BY id",
        "id = 1 LIMIT 1",
        "id = 1 FOR UPDATE",
        "id IN (SELECT id FROM sales)",
        "EXISTS (SELECT 1)",
        "count(*) > 1",
        "row_number() OVER () = 1",
        "t.id = 1",
        "public.t.id = 1",
        "nothing = 1",
        "id = $1",
        "pg_sleep(1) IS NULL",
        "id = 1 /*",
        "t.* IS NULL",
    ],
)
def test_a_predicate_that_is_more_or_less_than_a_condition_on_one_row_is_refused(
    text: str,
) -> None:
    with pytest.raises(QueryRefused):
        predicate.normal(text, COLUMNS)


def test_without_the_columns_a_predicate_may_name_any() -> None:
    assert predicate.normal("nothing = 1", None) == '("nothing" = 1)'


# The commands


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def keys(home: Path, *words: str) -> int:
    try:
        return main(["keys", *words, "--home", str(home)])
    except SystemExit as ended:  # the parser's refusal
        return int(str(ended.code))


def listed(home: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert keys(home, "list", "--json") == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_key_is_made_shown_once_listed_and_revoked(
    home: Path, capsys: pytest.CaptureFixture[str], clock: HeldClock
) -> None:
    words = ("create", "north", "--scope", "query", "--scope", "look", "--expires", "30d")
    assert keys(home, *words, "--rate", "20") == 0
    said = capsys.readouterr()
    shown = said.out.strip()
    assert re.fullmatch(r"hr_[0-9a-f]{12}_[\w-]{43}", shown)
    assert shown not in said.err
    assert "not shown again" in said.err
    grant = Keyring(Home(home).keyring, clock).grant(shown)
    assert grant.scopes == {Scope.QUERY, Scope.LOOK}
    assert (grant.name, grant.rate_per_s) == ("north", 20)
    (key,) = listed(home, capsys)
    assert (key["id"], key["state"], key["scopes"]) == (grant.id, "valid", ["look", "query"])
    assert keys(home, "revoke", grant.id) == 0
    assert f"The key {grant.id} of north is revoked" in capsys.readouterr().out
    (key,) = listed(home, capsys)
    assert (key["state"], shown in str(key)) == ("revoked", False)
    assert keys(home, "list") == 0
    assert re.search(rf"{grant.id} +north +revoked +look query +all +20", capsys.readouterr().out)
    assert keys(home, "revoke", "nobody") == Exit.REFUSED


def test_scopes_may_be_given_one_by_one_or_with_commas(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keys(home, "create", "north", "--scope", "query, look", "--scope", "call") == 0
    (key,) = listed(home, capsys)
    assert key["scopes"] == ["call", "look", "query"]
    for given, unknown in (("query,lok", "lok"), ("query,", ""), ("query look", "query look")):
        assert keys(home, "create", "south", "--scope", given) == Exit.CONFIG
        assert f"there is no scope {unknown!r}; there are query, sub" in capsys.readouterr().err


def test_a_key_can_be_kept_to_columns_and_rows_of_tables(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = ("--flow", str(SHOP))
    tables = ("--table", "shop.sales:id, price", "--rows", "shop.sales: price < 10 AND id > 0")
    words = ("create", "north", "--scope", "query", *tables, "--rows", "shop.refunds:id = 1")
    assert keys(home, *words, *flow) == 0
    (key,) = listed(home, capsys)
    assert key["tables"] == {
        "shop.sales": {"columns": ["id", "price"], "where": '("price" < 10 AND "id" > 0)'},
        "shop.refunds": {"columns": None, "where": '("id" = 1)'},
    }
    assert keys(home, "list") == 0
    assert "shop.sales, shop.refunds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--table", "sales"], "there is no DATAFLOW.OUTLET"),
        (["--table", "shop.nothing"], "there is no table shop.nothing\n  The tables are: shop."),
        (["--table", "shop.sales:id,x"], "there is no column 'x'\n  The columns are: id, price"),
        (["--table", "shop.sales:"], "there is no column ''"),
        (["--table", "shop.sales", "--table", "shop.sales:id"], "named twice"),
        (["--rows", "shop.sales"], "does not say which rows"),
        (["--rows", "shop.sales:"], "is not SQL"),
        (["--rows", "shop.sales: x = 1"], "--rows shop.sales: there is no column x\n"),
        (["--rows", "shop.sales: id = 1 LIMIT 1"], "is more than a condition"),
        (["--expires", "1y"], "Write it as 30d, 12h or 90m"),
        (["--expires", "0d"], "Write it as 30d, 12h or 90m"),
    ],
)
def test_what_a_key_cannot_be_kept_to_is_told_and_no_key_is_made(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    code = keys(home, "create", "north", "--scope", "query", *words, "--flow", str(SHOP))
    said = capsys.readouterr()
    assert (code, said.out) == (Exit.CONFIG, "")
    assert says in said.err
    assert not Home(home).keyring.exists()


def test_without_a_dataflow_names_are_taken_and_it_is_said(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.parent)
    assert keys(home, "create", "a", "--scope", "query", "--table", "far.away:x") == 0
    assert "is not checked" in capsys.readouterr().err
    for text in ("far.away:x;y", "far.away:x,", 'far.away:"x"'):
        assert keys(home, "create", "a", "--scope", "query", "--table", text) == Exit.CONFIG


@pytest.mark.parametrize(
    "words",
    [
        ["create"],
        ["create", "north"],
        ["create", "owner", "--scope", "query"],
        ["revoke"],
        ["list", "north"],
        ["list", "--scope", "query"],
        ["revoke", "x", "--rate", "5"],
    ],
)
def test_what_has_no_meaning_is_refused(home: Path, words: list[str]) -> None:
    assert keys(home, *words) == Exit.CONFIG


def test_a_folder_that_is_none_of_ours_has_no_keys(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keys(home, "list") == Exit.CONFIG
    assert "is no data folder of Headrace" in capsys.readouterr().err
    assert not home.exists()
    Home(home).create()
    assert keys(home, "list") == 0
    assert "no keys but the owner's" in capsys.readouterr().out


def test_the_command_and_the_api_know_the_same_scopes() -> None:
    assert set(api_keys.SCOPES) == {scope.value for scope in Scope}
    assert set(DESCRIBED) == set(Scope)
