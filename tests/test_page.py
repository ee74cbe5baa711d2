"""The status page, in a real browser, over a real API, core and warehouse."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import shop
import till
from browsing import BINARY, NEEDED, Browser, browsing
from flows import undecoded
from moving import jobs_on
from serving import KEY, Client, front, serving
from shop import Answering, orders
from test_status import NOWHERE, measures, moved_over
from waiting import until

from api import page
from api.grant import Scope
from api.guard import Entrance
from api.keyring import Keyring
from api.question import LITTLE_ROWS
from etl_procs import measured
from etl_procs.measured import Measured, Scribe
from headrace.clock import SystemClock
from migrations.warehouse import DEFAULT, Connection, Warehouse

WINDOW = (1280, 900)
EVIL = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "javascript:alert(4)",
    "&lt;b&gt;&#x3c;i&#x3e;",
)


@dataclass(frozen=True, slots=True)
class Open:
    """The page in a browser, over an API."""

    browser: Browser
    client: Client
    store: shop.Shop
    keyring: Keyring
    serving: ExitStack

    @property
    def url(self) -> str:
        return url_of(self.client)

    def enter(self, key: str = KEY) -> None:
        """Show a key."""
        enter(self.browser, self.client, key)

    def until_shown(self) -> None:
        self.browser.until("document.querySelector('#picture .node .figure') !== null")


def url_of(client: Client) -> str:
    return f"http://127.0.0.1:{client.port}/"


def enter(browser: Browser, client: Client, key: str = KEY) -> None:
    """Show a key."""
    browser.go(url_of(client))
    browser.until("document.activeElement.id === 'key'")
    browser.type(key)
    browser.press("Enter")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """Chromium; without one on PATH the test is skipped, unless it must not be."""
    if not BINARY and not os.environ.get(NEEDED):
        pytest.skip("there is no Chromium on PATH: apt-get install chromium")
    assert BINARY, "there is no Chromium on PATH, and this test must not be skipped"
    with browsing(tmp_path / "browser") as made:
        made.size(*WINDOW)
        made.prefers("light")
        yield made


@pytest.fixture
def opened(
    browser: Browser, store: shop.Shop, connection: Connection, warehouse_url: str, tmp_path: Path
) -> Iterator[Open]:
    """The page over a shop that has sold two batches, of which its warehouse has the first."""
    store.sell((1, 2.5, "a"), (2, -1.0, "b"))
    store.push(connection)
    store.sell((3, 4.0, "c"))
    moved = jobs_on(store, Warehouse(DEFAULT, warehouse_url))
    keyring = Keyring(tmp_path / "keys.db", SystemClock())
    scribe = Scribe(tmp_path / "metrics.json", SystemClock(), os.getpid())
    lock = threading.Lock()

    def living() -> list[Measured | None]:
        with lock:
            scribe.write(store.core.metrics, store.core.queues())
            return [measured.read(tmp_path / "metrics.json")]

    with ExitStack() as stack:
        stack.callback(moved.jobs.close)
        stack.callback(keyring.close)
        api = stack.enter_context(ExitStack())
        island = shop.island_over(warehouse_url, store.reader)
        client = api.enter_context(
            serving(island, living=living, moved=moved, before=front(Entrance(KEY, keyring)))
        )
        yield Open(browser, client, store, keyring, api)


def test_the_page_asks_for_a_key_and_holds_no_data_of_its_own(opened: Open) -> None:
    opened.browser.go(opened.url)
    opened.browser.until_seen("A key is needed")
    assert "sales" not in opened.browser.eval("document.documentElement.outerHTML")
    assert not [url for url in opened.browser.requests if "/v1/" in url]


@pytest.mark.parametrize("key", ["another", "zwölf"])
def test_a_wrong_key_is_told_and_another_one_may_be_tried(opened: Open, key: str) -> None:
    browser = opened.browser
    opened.enter(key)
    browser.until("document.querySelector('#wrong').innerText !== ''")
    assert browser.text("#state") == "The key is refused"
    assert browser.eval("sessionStorage.getItem('headrace.key')") is None
    browser.until("document.activeElement.id === 'key'")
    browser.eval("document.activeElement.select()")
    browser.type(KEY)
    browser.press("Enter")
    opened.until_shown()


def test_a_key_that_may_not_look_is_told_which_scope_it_lacks(opened: Open) -> None:
    _, key = opened.keyring.create("ann", frozenset({Scope.QUERY}))
    opened.enter(key)
    opened.browser.until("document.querySelector('#wrong').innerText.includes('the scope look')")


def test_the_right_key_shows_the_dataflow_with_its_figures_and_asks_nobody_but_the_api(
    opened: Open,
) -> None:
    browser = opened.browser
    opened.enter()
    opened.until_shown()
    browser.until(
        "document.querySelector('[data-id=\"outlet:sales\"]').textContent === 'sales1 row staged'"
    )
    nodes = browser.eval("[...document.querySelectorAll('.node')].map(n => n.dataset.id)")
    assert set(nodes) == {
        "border:orders",
        "procedure:sell",
        "outlet:sales",
        "outlet:refunds",
        "warehouse:default",
    }
    browser.until_seen("The engine runs")
    warehouse = browser.text("#warehouses")
    assert "batch 1 (1 behind)" in warehouse
    assert re.search(r"at most .* behind", warehouse)
    browser.until(
        "!document.querySelector('#tiles').innerText.includes('\\u2013')"
    )  # a second look
    assert browser.eval("Object.keys(sessionStorage).join()") == "headrace.key"
    assert browser.eval("Object.values(localStorage).join()") == "auto"
    assert all(url.startswith(opened.url) for url in browser.requests), browser.requests
    assert browser.errors == []


def test_a_dead_letter_is_seen_soon_after_it_has_happened(opened: Open) -> None:
    opened.enter()
    opened.browser.until_seen("None: every tuple has been processed.")
    first = opened.store._first(orders, 1, 0)
    opened.store.give(undecoded(orders, b"{", "not JSON", offset=first))
    opened.store.sell((4, 1.0, "d"))
    opened.browser.until("document.querySelector('#letters').innerText.includes('not JSON')")
    opened.browser.until("/Dead letters\\s+1\\b/.test(document.querySelector('#tiles').innerText)")


def test_a_migration_is_seen_with_what_became_of_it(opened: Open) -> None:
    opened.enter()
    opened.browser.until_seen("Nobody has asked for a migration.")
    asked = opened.client.send("PUT", "/v1/migrations/mine", '{"kind": "pull"}')
    assert asked.status == 201
    seen = "document.querySelector('#migrations').innerText"
    opened.browser.until(f"/succeeded\\s+pull default\\s+mine\\b/.test({seen})")


def test_rows_that_are_parked_are_seen_with_the_table_that_they_wait_in(
    browser: Browser, tmp_path: Path
) -> None:
    made = till.Till(tmp_path)
    made.settle([("tea", 250)], [])
    seen = measures(made)
    island = shop.island_over(NOWHERE, made.reader)
    with serving(island, living=lambda: [seen], moved=moved_over(made)) as client:
        enter(browser, client)
        browser.until_seen("None waits.")
        made.settle([("pen", None), ("cap", None)], [])
        seen = measures(made)
        browser.until("/till\\.owed\\s+2\\b/.test(document.querySelector('#parked').innerText)")
        browser.until_seen("parked: 2 rows")
    made.end_of_day()


def test_a_query_is_seen_with_its_plan_and_cost_and_no_text_is_read_as_markup(
    opened: Open,
) -> None:
    browser = opened.browser
    opened.enter()
    opened.until_shown()
    # So many that plans are weighed.
    opened.store.sell(*((id, 1.0, "c") for id in range(10, 11 + LITTLE_ROWS)))
    for text in EVIL:
        quoted = text.replace("'", "''")
        sql = f"SELECT count(*), '{quoted}' AS x FROM sales WHERE note <> '{quoted}'"  # as it is
        assert opened.client.ask(sql).status == 200
        browser.until_seen(text)
    assert opened.client.ask(f"SELECT {EVIL[0]} FROM nowhere").status == 400
    browser.until_seen("failed: ")
    first = opened.store._first(orders, len(EVIL), 0)
    for i, text in enumerate(EVIL):
        opened.store.give(undecoded(orders, b"", text, offset=first + i))
    opened.store.sell()
    browser.until(f"document.querySelectorAll('#letters tbody tr').length === {len(EVIL)}")
    row = browser.text("#queries tbody tr:nth-child(2)")
    told = r"done[\s\S]*(ship|split|warehouse)\s+[\d.]+ [mµ]?s\s+[\d.]+ [mµ]?s\s+1\b"
    assert re.search(told, row), row
    assert browser.eval("document.querySelectorAll('main img, main script').length") == 0
    assert browser.errors == []


def test_no_script_can_come_in_and_nothing_can_go_out(opened: Open) -> None:
    """That the policy holds is seen where it is broken: by hand, in the page."""
    browser = opened.browser
    opened.enter()
    opened.until_shown()
    browser.eval(
        "const bad = document.createElement('script'); bad.textContent = 'window.evil = 1';"
        "document.body.append(bad); document.body.insertAdjacentHTML('beforeend',"
        " '<img src=x onerror=\"window.evil = 2\">');"
        "window.sent = 'asked'; fetch('http://127.0.0.1:9/').catch(() => { window.sent = 'no'; })"
    )
    browser.until("window.sent === 'no'")
    assert browser.eval("window.evil") is None
    assert sum("Content Security Policy" in error for error in browser.errors) >= 3


def test_all_of_it_can_be_done_with_the_keyboard_and_one_sees_where_one_is(opened: Open) -> None:
    browser = opened.browser
    opened.enter()
    opened.until_shown()
    browser.eval("document.activeElement.blur()")
    reached, unseen = [], []
    for _ in range(40):
        browser.press("Tab")
        at = browser.eval(
            "(a => a === document.body ? '' : a.dataset.id ?? (a.id || a.ariaLabel || a.innerText))"
            "(document.activeElement)"
        )
        if not at:
            continue  # it has been around
        if at in reached:
            break
        reached.append(at)
        if not browser.eval(FOCUS_IS_SEEN):
            unseen.append(at)
    assert unseen == []
    for control in ("theme", "forget", "shop", "in", "out", "fit", "border:orders"):
        assert control in reached, reached
    browser.eval("document.querySelector('[data-id=\"border:orders\"]').focus()")
    browser.press("ArrowRight")
    assert browser.eval("document.activeElement.dataset.id") == "procedure:sell"
    browser.press("Enter")
    browser.until("document.activeElement.id === 'close'")
    assert "Half take at most" in browser.text("#details")
    browser.press("Escape")
    assert browser.eval("document.querySelector('#details').hidden")
    assert browser.eval("document.activeElement.dataset.id") == "procedure:sell"


FOCUS_IS_SEEN = """(a => {
    const of = a.classList.contains('node') ? getComputedStyle(a.querySelector('rect')) : null;
    return of ? of.strokeWidth === '3px' : getComputedStyle(a).outlineStyle !== 'none';
})(document.activeElement)"""

GROUND = "getComputedStyle(document.body).backgroundColor"

CONTRAST = """(() => {
    const light = text => text.match(/[\\d.]+/g).slice(0, 3)
        .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const probe = document.createElement('p');
    document.body.append(probe);
    const of = name => {
        probe.style.color = `var(--${name})`;
        return light(getComputedStyle(probe).color);
    };
    const found = [];
    for (const ink of ['ink', 'quiet', 'water', 'good', 'warn', 'bad']) {
        for (const ground of ['card', 'page']) {
            const [a, b] = [of(ink), of(ground)].sort((x, y) => y - x);
            found.push([ink, ground, (a + 0.05) / (b + 0.05)]);
        }
    }
    probe.remove();
    return found;
})()"""


def test_it_is_light_or_dark_as_the_system_is_or_as_one_says_and_readable_in_both(
    opened: Open,
) -> None:
    browser = opened.browser
    opened.enter()
    opened.until_shown()
    grounds = {}
    for scheme in ("light", "dark"):
        browser.prefers(scheme)
        grounds[scheme] = browser.eval(GROUND)
        assert [found for found in browser.eval(CONTRAST) if found[2] < 4.5] == []
    assert grounds["light"] != grounds["dark"]
    browser.eval("document.querySelector('#theme').click()")  # light, whatever the system says
    assert browser.eval(GROUND) == grounds["light"]
    browser.go(opened.url)
    assert browser.eval(GROUND) == grounds["light"]
    browser.eval("document.querySelector('#theme').click()")
    assert browser.eval(GROUND) == grounds["dark"]


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_it_fits_into_windows_of_any_width(opened: Open, width: int) -> None:
    opened.browser.size(width)
    opened.enter()
    opened.until_shown()
    assert opened.client.ask("SELECT " + "1 + " * 100 + "count(*) FROM sales").status == 200
    opened.browser.until_seen("SELECT 1 + 1")
    assert opened.browser.eval("document.documentElement.scrollWidth") <= width


def test_what_is_open_stays_open_while_figures_change(opened: Open) -> None:
    browser = opened.browser
    opened.enter()
    opened.until_shown()
    assert opened.client.ask("SELECT " + "1 + " * 100 + "count(*) FROM sales").status == 200
    browser.until("document.querySelector('#queries summary') !== null")
    browser.eval("document.querySelector('#queries summary').click()")
    state = browser.text("#state")
    browser.until(f"document.querySelector('#state').innerText !== '{state}'")
    assert browser.eval("document.querySelector('#queries details').open")


def test_an_api_that_has_gone_is_told_and_what_is_seen_is_said_to_be_old_until_it_is_back(
    opened: Open,
) -> None:
    browser = opened.browser
    opened.enter()
    opened.until_shown()
    browser.online(False)
    browser.until_seen("The API is away")
    assert "What you see is old" in browser.text("#notice")
    assert browser.eval("document.querySelector('main').classList.contains('stale')")
    browser.online(True)
    browser.until_seen("The engine runs")
    assert not browser.eval("document.querySelector('main').classList.contains('stale')")
    opened.serving.close()
    browser.until_seen("The API is away")


def test_no_engine_is_told_with_what_the_cores_hold(
    browser: Browser, store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 2.5, "a"))
    moved = jobs_on(store, Warehouse(DEFAULT, warehouse_url))
    island = shop.island_over(warehouse_url, store.reader)
    with serving(island, moved=moved) as client:
        keyring = Keyring(store.home / "keys.db", SystemClock())
        opened = Open(browser, client, store, keyring, ExitStack())
        keyring.close()
        opened.enter()
        opened.until_shown()
        browser.until_seen("No engine runs, or not all of it")
        assert "1 row staged" in browser.text("#picture")
        assert browser.errors == []
    moved.jobs.close()


def test_a_key_that_is_forgotten_is_asked_for_again(opened: Open) -> None:
    browser = opened.browser
    opened.enter()
    opened.until_shown()
    browser.eval("document.querySelector('#forget').click()")
    assert browser.eval("document.querySelector('main').hidden")
    asked = len(browser.requests)
    opened.enter()
    opened.until_shown()
    assert len(browser.requests) > asked


def test_a_hidden_page_asks_for_nothing_until_it_is_seen_again(opened: Open) -> None:
    browser = opened.browser
    opened.enter()
    opened.until_shown()
    browser.eval("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")

    def rests() -> bool:
        before = len(browser.requests)
        browser.eval("new Promise(done => setTimeout(done, 1500))")
        return len(browser.requests) == before

    until(rests, 20, lambda: str(browser.requests[-5:]))
    before = len(browser.requests)
    browser.eval(
        "Object.defineProperty(document, 'hidden', {value: false, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    until(lambda: len(browser.requests) > before, 20, lambda: "it does not ask")


# The files of the page


def test_the_page_is_open_and_can_be_framed_by_nobody_and_run_nothing_else(
    island: Answering,
) -> None:
    with serving(island) as client:
        for path, (name, type_) in page.PATHS.items():
            reply = client.send("GET", path, key=None)
            assert (reply.status, reply.headers["content-type"]) == (200, type_)
            assert reply.body == (page.HERE / name).read_bytes()
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["x-frame-options"] == "DENY"
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
        assert client.send("GET", "/page/../app.py", key=None).status == 401
        assert client.send("POST", "/", key=None).status == 405


def test_the_files_of_the_page_take_no_text_for_markup_and_name_nothing_outside() -> None:
    for name, _ in page.PATHS.values():
        text = (page.HERE / name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert not re.search(r"\son\w+=|\sstyle=", text) or not name.endswith(".html"), name
        outside = set(re.findall(r"https?://[^\s\"']+", text)) - {"http://www.w3.org/2000/svg"}
        assert not outside, name
