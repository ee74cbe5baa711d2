// The page: asks /v1/status every second, and shows what it says.

import { Picture, svg } from "/page/picture.js";

const EVERY_MS = 1000, RETRY_MS = [1000, 2000, 4000, 8000, 15000], TIMEOUT_MS = 15000;
const KEPT = 300; // looks, of a second each: what the small charts show
const KEY = "headrace.key", THEME = "headrace.theme";

const $ = id => document.getElementById(id);
const h = (name, properties = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
};
const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// Numbers, as people read them

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const count = n => (n === null || n === undefined ? "–" : n < 100000 ? whole.format(n) : short.format(n));
const number = n => (n === null || n === undefined ? "–" : whole.format(n)); // of a batch: all of it
const rate = n => (n === null || n === undefined ? "–" : n > 0 && n < 10 ? n.toFixed(1) : count(n));
const bytes = n => (n < 1024 ? `${n} B` : n < 1048576 ? `${(n / 1024).toFixed(0)} KB` : `${(n / 1048576).toFixed(1)} MB`);
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
function took(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  return ms < 1000 ? `${ms.toFixed(0)} ms` : age(ms / 1000);
}
function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : seconds < 172800 ? `${(seconds / 3600).toFixed(0)} h` : `${(seconds / 86400).toFixed(0)} d`;
}
const since = (text, now) => (text ? `${age(Math.max(0, (now - Date.parse(text)) / 1000))} ago` : "–");
const add = values => { const known = values.filter(v => v !== null && v !== undefined); return known.length ? known.reduce((a, b) => a + b, 0) : null; };

// What was seen of late, for the small charts

const history = new Map();
function remember(name, value) {
  const kept = history.get(name) ?? [];
  history.set(name, kept);
  kept.push(value ?? null);
  if (kept.length > KEPT) kept.shift();
}
function spark(name, what) {
  const paths = [svg("path", { class: "area" }), svg("path")];
  const made = svg("svg", { class: "spark", viewBox: "0 0 100 26", preserveAspectRatio: "none", role: "img", "aria-label": `${what}, the last minutes` }, ...paths);
  made.draw = () => {
    const values = (history.get(name) ?? []).map(v => v ?? 0);
    if (values.length < 2) return;
    const most = Math.max(...values, 1e-9);
    const points = values.map((v, i) => `${((i / (values.length - 1)) * 100).toFixed(2)} ${(25 - (v / most) * 23).toFixed(2)}`);
    paths[1].setAttribute("d", `M${points.join("L")}`);
    paths[0].setAttribute("d", `M0 26L${points.join("L")}L100 26Z`);
  };
  return made;
}

// Tables: a row for each key, whose cells change in place, so that what is open stays open

class Table {
  constructor(into, name, columns, none) {
    this.columns = columns;
    this.rows = new Map();
    this.body = h("tbody");
    const head = columns.map(c => h("th", { scope: "col", className: c.number ? "n" : "" }, c.title));
    this.whole = h("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: name, hidden: true },
      h("table", {}, h("thead", {}, h("tr", {}, ...head)), this.body));
    this.none = h("p", { className: "none" }, none);
    into.replaceChildren(this.whole, this.none);
  }

  show(items, key) {
    const rows = new Map();
    for (const item of items) {
      const id = key(item), row = this.rows.get(id) ?? this.row();
      rows.set(id, row);
      this.columns.forEach((column, i) => {
        const cell = row.cells[i];
        if (column.make) { if (cell.made !== column.of(item)) { cell.made = column.of(item); cell.replaceChildren(column.make(item)); } }
        else write(cell, column.of(item));
        if (column.tone) cell.dataset.tone = column.tone(item);
      });
    }
    this.rows = rows;
    const wanted = [...rows.values()];
    for (const old of [...this.body.rows]) if (!wanted.includes(old)) old.remove();
    wanted.forEach((row, i) => { if (this.body.rows[i] !== row) this.body.insertBefore(row, this.body.rows[i] ?? null); });
    this.whole.hidden = !wanted.length;
    this.none.hidden = wanted.length > 0;
  }

  row() {
    return h("tr", {}, ...this.columns.map(c => h("td", { className: c.number ? "n" : c.make ? "text" : "" })));
  }
}

const long = text => {
  const code = part => h("code", {}, part);
  if (text.length <= 90) return code(text);
  return h("details", {}, h("summary", {}, code(`${text.slice(0, 80)}…`)), code(text));
};
const paying = p =>
  `moving ${p.tables.join(", ")} once, ${took(p.once_ms)}, would cost less than these ${p.times} queries have, ${took(p.spent_ms)}`;
const TONES = { done: "good", succeeded: "good", failed: "bad", cancelled: "warn", running: "live", waiting: "live" };
const told = state => TONES[state] ?? "";
let now = Date.now();

const tables = {
  queries: new Table($("queries"), "Recent queries", [
    { title: "State", of: q => (q.code ? `${q.state}: ${q.code}` : q.state), tone: q => told(q.state) },
    { title: "SQL", of: q => q.sql, make: q => long(q.sql) },
    { title: "Plan", of: q => (q.proposal ? `${q.plan}: ${paying(q.proposal)}` : q.plan ?? "–") },
    { title: "Expected", number: true, of: q => took(q.cost_ms) },
    { title: "Took", number: true, of: q => took(q.ms) },
    { title: "Rows", number: true, of: q => count(q.rows) },
    { title: "Key", of: q => q.key },
    { title: "Asked", number: true, of: q => since(q.started_at, now) },
  ], "No query has been asked since the API began."),
  migrations: new Table($("migrations"), "Migrations", [
    { title: "State", of: m => m.state, tone: m => told(m.state) },
    { title: "What", of: m => `${m.kind} ${m.warehouse}` },
    { title: "Id", of: m => m.id },
    { title: "Stage", of: m => m.stage || (m.error?.what ?? m.findings[0] ?? ""), make: m => long(m.stage || (m.error?.what ?? m.findings[0] ?? "")) },
    { title: "Rows", number: true, of: m => count(m.rows) },
    { title: "Asked", number: true, of: m => since(m.created_at, now) },
  ], "Nobody has asked for a migration. The engine pushes by itself."),
  letters: new Table($("letters"), "Dead letters", [
    { title: "Reason", of: d => d.reason, make: d => long(d.reason) },
    { title: "Dataflow", of: d => d.dataflow },
    { title: "Letters", number: true, of: d => count(d.letters) },
    { title: "Tuples", number: true, of: d => count(d.tuples) },
  ], "None: every tuple has been processed."),
  parked: new Table($("parked"), "Parked rows", [
    { title: "Table", of: p => `${p.dataflow}.${p.table}` },
    { title: "Rows", number: true, of: p => count(p.rows) },
  ], "None waits."),
  lookups: new Table($("lookups"), "Lookups", [
    { title: "Lookup", of: l => l.name },
    { title: "Strategy", of: l => l.strategy },
    { title: "Hits", number: true, of: l => count(l.hits) },
    { title: "Misses", number: true, of: l => count(l.misses) },
  ], "No engine that looks up runs."),
};

// What stands at the top

const tiles = new Map();
function tile(name, title, text, more, { chart = true, warn = false } = {}) {
  if (!tiles.has(name)) {
    const parts = { strong: h("strong"), more: h("p"), chart: chart ? spark(name, title) : null };
    parts.whole = h("div", { className: "tile" }, h("p", {}, title), parts.strong, parts.more, parts.chart);
    tiles.set(name, parts);
    $("tiles").append(parts.whole);
  }
  const parts = tiles.get(name);
  write(parts.strong, text);
  write(parts.more, more);
  parts.whole.classList.toggle("warn", warn);
  parts.chart?.draw();
}

function showTiles(status) {
  const places = status.dataflows.flatMap(f => Object.values(f.places));
  const all = name => add(places.map(p => p[name]));
  const oldest = Math.max(0, ...places.map(p => p.oldest_s ?? 0));
  const letters = all("dead_letters") ?? 0, parked = all("parked_rows");
  const lag = add(status.dataflows.flatMap(f => f.nodes.map(n => n.figures.staged_rows)));
  for (const [name, value] of Object.entries({ tuples: all("tuples_per_s"), batches: all("batches_per_s"), waiting: all("waiting_tuples"), letters, lag })) remember(name, value);
  tile("tuples", "Tuples a second", rate(all("tuples_per_s")), "from outside");
  tile("batches", "Batches a second", rate(all("batches_per_s")), `the last is ${number(Math.max(0, ...places.map(p => p.batch)))}`);
  tile("waiting", "Tuples that wait", count(all("waiting_tuples")), all("waiting_tuples") ? `the oldest for ${age(oldest)}` : "for a batch", { warn: oldest > 60 });
  tile("lag", "Rows staged", count(lag), "for a warehouse");
  tile("letters", "Dead letters", count(letters), parked === null ? "parked: –" : `parked: ${plural(parked, "row")}`, { warn: letters > 0 });
}

// Warehouses

const cards = new Map();
function showWarehouses(status) {
  if (!status.warehouses.length) { $("warehouses").replaceChildren(h("p", { className: "none" }, "None has answered yet.")); cards.clear(); return; }
  if (!cards.size) $("warehouses").replaceChildren();
  for (const place of status.warehouses) {
    if (!cards.has(place.name)) {
      const parts = { title: h("span", { className: "trouble" }), pusher: h("span", { className: "quiet" }), trouble: h("p", { className: "trouble" }), lags: new Map(), into: h("div", { className: "lags" }) };
      parts.whole = h("article", { className: "card", ariaLabel: `Warehouse ${place.name}` },
        h("h3", {}, h("span", {}, place.name), parts.title, parts.pusher), parts.trouble, parts.into);
      cards.set(place.name, parts);
      $("warehouses").append(parts.whole);
    }
    const parts = cards.get(place.name);
    write(parts.title, place.state === "ok" ? "" : "away or ill");
    write(parts.pusher, place.pusher ? place.pusher.state : "no engine pushes");
    const old = place.seen_s > 5 ? `As it was ${age(place.seen_s)} ago.` : "";
    write(parts.trouble, [place.state === "ok" ? "" : place.state, place.pusher?.what, place.pusher?.hint, old].filter(Boolean).join(" "));
    for (const flow of place.dataflows) showLag(parts, place, flow);
  }
}

function showLag(parts, place, flow) {
  const name = `${place.name}/${flow.name}`;
  const behind = flow.committed === null || flow.arrived === null ? null : Math.max(0, flow.committed - flow.arrived);
  const unmerged = flow.arrived === null ? null : Math.max(0, flow.arrived - (flow.merged ?? 0));
  remember(name, behind);
  if (!parts.lags.has(flow.name)) {
    const values = ["Committed", "Arrived", "Merged", "Rows that wait", "Freshness"].map(title => [title, h("dd")]);
    const chart = spark(name, "Batches behind");
    parts.lags.set(flow.name, { values, chart });
    parts.into.append(h("div", { className: "lag" }, h("strong", {}, flow.name), h("dl", { className: "facts" }, ...values.map(([title, dd]) => h("div", {}, h("dt", {}, title), dd))), h("p", { className: "quiet" }, "Batches behind"), chart));
  }
  const { values, chart } = parts.lags.get(flow.name);
  // What is not there yet was committed after the last move: it is no older than that.
  const fresh = behind === null ? "–" : behind === 0 ? "has all that is committed" : flow.moved_at ? `at most ${age((now - Date.parse(flow.moved_at)) / 1000)} behind` : "nothing has arrived";
  const texts = [`batch ${number(flow.committed)}`, `batch ${number(flow.arrived)}${behind ? ` (${count(behind)} behind)` : ""}`, `batch ${number(flow.merged)}${unmerged ? ` (${count(unmerged)} in delta)` : ""}`, count(flow.waiting_rows), fresh];
  values.forEach(([, dd], i) => write(dd, texts[i]));
  chart.draw();
}

// The picture, and what is known of the node that was chosen

const NAMES = {
  tuples_per_s: ["Tuples a second", rate], batches_per_s: ["Batches a second", rate], waiting_tuples: ["Tuples that wait", count],
  oldest_s: ["The oldest waits for", age], p50_s: ["Half take at most", s => took(s === null ? null : s * 1000)], aborts: ["Attempts that failed", count],
  dead_batches: ["Batches given up", count], parked_rows: ["Rows parked", count], staged_rows: ["Rows staged", count], staged_bytes: ["Bytes staged", n => (n === null ? "–" : bytes(n))],
};
const KINDS = { border: "Stream from outside", stream: "Stream", procedure: "Procedure", window: "Window", table: "Shared table", outlet: "Outlet", warehouse: "Warehouse" };
const flowShown = { name: null, signature: "", picture: null, scale: 1, tables: new Map(), chosen: null, flow: null };

const said = status => node => {
  const f = node.figures;
  switch (node.kind) {
    case "border": return { line: f.waiting_tuples === null ? "" : `${count(f.waiting_tuples)} waiting`, tone: f.waiting_tuples && f.oldest_s > 60 ? "warn" : "", rate: f.tuples_per_s ? `${rate(f.tuples_per_s)}/s` : "" };
    case "stream": return { line: f.batches_per_s === null ? "" : `${rate(f.batches_per_s)} batches/s`, tone: "", rate: f.batches_per_s ? `${rate(f.batches_per_s)}/s` : "" };
    case "procedure": return { line: f.dead_batches ? `${plural(f.dead_batches, "batch").replace("batchs", "batches")} given up` : f.p50_s === null ? "" : `${took(f.p50_s * 1000)} · ${rate(f.batches_per_s)}/s`, tone: f.dead_batches ? "bad" : f.aborts ? "warn" : "" };
    case "table": return { line: f.parked_rows === undefined ? "" : `${count(f.parked_rows)} parked`, tone: f.parked_rows ? "warn" : "" };
    case "outlet": return { line: `${plural(f.staged_rows, "row")} staged`, tone: "" };
    case "warehouse": {
      const place = status.warehouses.find(w => w.name === node.name);
      if (!place) return { line: "not seen yet", tone: "" };
      if (place.state !== "ok") return { line: "away or ill", tone: "bad" };
      const of = place.dataflows.filter(d => d.name.split("[")[0] === flowShown.name);
      const behind = add(of.map(d => (d.committed ?? 0) - (d.arrived ?? 0))) ?? 0;
      return { line: behind > 0 ? `${count(behind)} behind` : "has all", tone: place.pusher && place.pusher.state === "has stopped" ? "bad" : "" };
    }
    default: return { line: "", tone: "" };
  }
};

function showFlows(status) {
  const names = status.dataflows.map(f => f.name);
  if (!names.includes(flowShown.name)) flowShown.name = names[0] ?? null;
  const buttons = $("flows");
  if ([...buttons.children].map(b => b.textContent).join() !== names.join()) {
    buttons.replaceChildren(...names.map(name => {
      const button = h("button", { type: "button" }, name);
      button.addEventListener("click", () => { flowShown.name = name; closeDetails(false); showFlows(status); });
      return button;
    }));
  }
  for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.textContent === flowShown.name));
  const flow = status.dataflows.find(f => f.name === flowShown.name);
  flowShown.flow = flow;
  if (!flow) { $("picture").replaceChildren(h("p", { className: "none" }, "No dataflow is declared.")); return; }
  // Of a large one, the tables would hide the rest.
  if (!flowShown.tables.has(flow.name)) flowShown.tables.set(flow.name, flow.nodes.length <= 40);
  const withTables = flowShown.tables.get(flow.name);
  $("tables").setAttribute("aria-pressed", String(withTables));
  $("tables").hidden = !flow.nodes.some(n => n.kind === "table");
  const signature = JSON.stringify([flow.name, withTables, flow.nodes.map(n => n.id), flow.edges]);
  if (signature !== flowShown.signature) {
    flowShown.signature = signature;
    flowShown.picture = new Picture(flow, withTables, choose);
    $("picture").replaceChildren(flowShown.picture.root);
    fit();
  }
  flowShown.picture.update(flow.nodes, said(status));
  if (flowShown.chosen) showDetails();
}

function scaleTo(scale) {
  flowShown.scale = Math.min(2.5, Math.max(0.25, scale));
  flowShown.picture?.size(flowShown.scale);
}
function fit() {
  const room = $("picture").clientWidth - 2;
  // Smaller than this, nobody can read it: then it scrolls.
  if (flowShown.picture) scaleTo(Math.max(0.75, Math.min(1.15, room / flowShown.picture.width)));
}

function choose(id) {
  flowShown.chosen = id;
  $("details").hidden = false;
  flowShown.picture.mark(id);
  flowShown.linked = null;
  showDetails();
  $("close").focus();
}
function showDetails() {
  const { flow, chosen } = flowShown;
  const node = flow.nodes.find(n => n.id === chosen);
  if (!node) { closeDetails(false); return; }
  write($("details-kind"), node.nested ? `${KINDS[node.kind]}, in one transaction with others: ${node.unit}` : KINDS[node.kind]);
  write($("details-name"), node.name);
  const figures = Object.entries(node.figures).flatMap(([name, value]) => { const [title, form] = NAMES[name]; return [h("dt", {}, title), h("dd", {}, form(value))]; });
  $("details-figures").replaceChildren(...figures);
  if (flowShown.linked === chosen) return;
  flowShown.linked = chosen;
  const links = (title, edges, end) => {
    const ids = [...new Set(edges.map(e => e[end]))];
    if (!ids.length) return [];
    const buttons = ids.map(id => {
      const button = h("button", { type: "button" }, id.slice(id.indexOf(":") + 1));
      button.addEventListener("click", () => choose(id));
      return button;
    });
    return [h("p", { className: "quiet" }, title), h("div", { className: "flows" }, ...buttons)];
  };
  const of = (way, end) => flow.edges.filter(e => e.way === way && e[end] === chosen);
  $("details-links").replaceChildren(
    ...links("Takes from", of("flows", "taker"), "giver"), ...links("Gives to", of("flows", "giver"), "taker"),
    ...links("Reads", of("reads", "taker"), "giver"), ...links("Read by", of("reads", "giver"), "taker"),
    ...links("Writes", of("writes", "giver"), "taker"), ...links("Written by", of("writes", "taker"), "giver"),
  );
}
function closeDetails(back = true) {
  if ($("details").hidden) return;
  const { chosen, picture } = flowShown;
  flowShown.chosen = null;
  $("details").hidden = true;
  picture?.mark(null);
  if (back && chosen) picture.focus(chosen);
}

// States: what is said when there is nothing to show, or not all of it

function state(name, text) {
  $("state").dataset.state = name;
  write($("state"), text);
}
function notice(text, { away = false, again = false } = {}) {
  $("notice").hidden = !text;
  $("notice").dataset.state = away ? "away" : "";
  write($("notice").firstElementChild, text);
  $("again").hidden = !again;
}
function askForKey(wrong) {
  state(wrong ? "wrong" : "none", wrong ? "The key is refused" : "A key is needed");
  notice("");
  $("main").hidden = $("forget").hidden = true;
  $("ask").hidden = false;
  write($("wrong"), wrong);
  if (wrong) $("key").select();
  $("key").focus();
}

function show(status) {
  now = Date.parse(status.at);
  $("ask").hidden = true;
  $("main").hidden = $("forget").hidden = false;
  $("main").classList.remove("stale");
  const engine = status.engine;
  state(engine.up ? "up" : "down", `${engine.up ? "The engine runs" : "No engine runs"} · ${new Date(status.at).toLocaleTimeString()}`);
  notice(engine.up ? "" : "No engine runs, or not all of it: rates are not known, and what is shown is what the cores and warehouses hold. `headrace status` tells more.");
  showFlows(status);
  showTiles(status);
  showWarehouses(status);
  tables.queries.show(status.queries, q => `${q.started_at} ${q.id}`);
  tables.migrations.show(status.migrations, m => m.id);
  tables.letters.show(status.dead_letters, d => `${d.dataflow} ${d.reason}`);
  tables.parked.show(status.parked, p => `${p.dataflow}.${p.table}`);
  tables.lookups.show(status.lookups, l => l.name);
}

// Asking

let timer = null, failures = 0, asking = null;

function later(ms) {
  clearTimeout(timer);
  timer = setTimeout(ask, ms);
}

async function ask() {
  clearTimeout(timer);
  const key = sessionStorage.getItem(KEY);
  if (!key) { askForKey(""); return; }
  if (document.hidden) return; // it is asked again as soon as somebody looks
  asking?.abort();
  const mine = asking = new AbortController();
  const timeout = setTimeout(() => mine.abort(), TIMEOUT_MS);
  try {
    const reply = await fetch("/v1/status", { headers: { Authorization: `Bearer ${key}` }, signal: mine.signal, cache: "no-store" });
    if (reply.status === 401 || reply.status === 403) {
      const problem = await reply.json();
      sessionStorage.removeItem(KEY);
      askForKey(reply.status === 401 ? "This key is not known here: it is mistyped, expired or revoked." : problem.detail);
      return;
    }
    if (!reply.ok) throw new Error(`the API answers ${reply.status}`);
    const status = await reply.json();
    if (mine !== asking || sessionStorage.getItem(KEY) !== key) return;
    failures = 0;
    show(status);
    later(EVERY_MS);
  } catch (error) {
    if (mine !== asking) return; // a newer one has taken its place
    away(error);
  } finally {
    clearTimeout(timeout);
  }
}

function away(error) {
  if (!(error instanceof TypeError) && error.name !== "AbortError" && !/^the API answers/.test(error.message)) throw error; // a bug of the page
  const wait = RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)];
  const why = /^the API answers/.test(error.message) ? error.message : "the API does not answer";
  state("away", "The API is away");
  $("ask").hidden = true;
  $("forget").hidden = false;
  $("main").classList.add("stale");
  const seen = $("main").hidden ? `${why[0].toUpperCase()}${why.slice(1)}.` : `What you see is old: ${why}.`;
  notice(`${seen} It is asked again in ${wait / 1000} s.`, { away: true, again: true });
  later(wait);
}

// Controls

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem(THEME, name);
  write($("theme"), THEMES[name]);
  $("theme").setAttribute("aria-label", `Colours: ${name === "auto" ? "as the system" : name}`);
}

$("ask").addEventListener("submit", event => {
  event.preventDefault();
  const key = $("key").value.trim();
  if (!/^[\x20-\x7e]+$/.test(key)) { askForKey("A key has plain letters, digits and signs only."); return; }
  sessionStorage.setItem(KEY, key);
  $("key").value = "";
  state("loading", "Loading");
  ask();
});
$("forget").addEventListener("click", () => { sessionStorage.removeItem(KEY); asking?.abort(); asking = null; clearTimeout(timer); askForKey(""); });
$("again").addEventListener("click", ask);
$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
});
$("tables").addEventListener("click", () => { flowShown.tables.set(flowShown.name, !flowShown.tables.get(flowShown.name)); closeDetails(false); ask(); });
$("in").addEventListener("click", () => scaleTo(flowShown.scale * 1.25));
$("out").addEventListener("click", () => scaleTo(flowShown.scale / 1.25));
$("fit").addEventListener("click", fit);
$("close").addEventListener("click", () => closeDetails());
document.addEventListener("keydown", event => { if (event.key === "Escape") closeDetails(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && sessionStorage.getItem(KEY)) ask(); });

let held = null;
$("picture").addEventListener("pointerdown", event => {
  if (event.pointerType !== "mouse" || event.button !== 0 || event.target.closest(".node")) return;
  held = { x: event.clientX + $("picture").scrollLeft, y: event.clientY + $("picture").scrollTop };
  $("picture").classList.add("held");
});
window.addEventListener("pointermove", event => {
  if (held) $("picture").scrollTo(held.x - event.clientX, held.y - event.clientY);
});
window.addEventListener("pointerup", () => { held = null; $("picture").classList.remove("held"); });

theme(Object.hasOwn(THEMES, localStorage.getItem(THEME)) ? localStorage.getItem(THEME) : "auto");
ask();
