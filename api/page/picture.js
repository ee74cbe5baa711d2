// The picture: a dataflow in layers, from the left to the right, and figures beside its nodes.
// All text goes in as text: nothing that comes from the API is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 42, GAP = 13, BETWEEN = 54, MARGIN = 18, THREAD = 7;
const SWEEPS = 12;
const CHARACTER = 7.1; // the width of one, about

export const svg = (name, attributes = {}, ...children) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// Which layer each node is in: after all that give to it, and streams from outside just before
// their first taker, so that their edges are short.
function layers(nodes, edges) {
  const at = new Map(), before = new Map(nodes.map(n => [n.id, []]));
  const forward = edges.filter(e => e.way !== "reads");
  for (const edge of forward) before.get(edge.taker).push(edge.giver);
  const place = (id, path) => {
    if (at.has(id)) return at.get(id);
    if (path.has(id)) return 0;
    path.add(id);
    const found = Math.max(-1, ...before.get(id).map(giver => place(giver, path))) + 1;
    path.delete(id);
    at.set(id, found);
    return found;
  };
  for (const node of nodes) place(node.id, new Set());
  const end = Math.max(0, ...nodes.filter(n => n.kind !== "warehouse").map(n => at.get(n.id))) + 1;
  for (const node of nodes) {
    const takers = edges.filter(e => e.giver === node.id).map(e => at.get(e.taker));
    if (node.kind === "warehouse") at.set(node.id, end);
    else if (!before.get(node.id).length && takers.length) at.set(node.id, Math.max(0, Math.min(...takers) - 1));
  }
  const used = [...new Set(at.values())].sort((a, b) => a - b);
  return new Map([...at].map(([id, layer]) => [id, used.indexOf(layer)]));
}

// An edge over several layers is led through points in between, and those that come from one stream,
// or go to one warehouse, share them: many threads become one.
function routes(edges, at, columns) {
  const points = new Map();
  return edges.map(edge => {
    const [from, to] = [at.get(edge.giver), at.get(edge.taker)];
    const shared = edge.taker.startsWith("warehouse:") || edge.taker.startsWith("outlet:") ? edge.taker : edge.giver;
    const through = [];
    for (let layer = from + 1; layer < to; layer++) {
      const id = `${shared}@${layer}`;
      if (!points.has(id)) {
        points.set(id, { id, thread: true, height: THREAD, width: 0 });
        columns[layer].push(points.get(id));
      }
      through.push(points.get(id));
    }
    return { edge, through, ahead: to > from };
  });
}

const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;

// Places the cells of a column as near as can be to where they want to be, in their order.
function settle(column, wanted) {
  const blocks = [];
  let offset = 0;
  for (const cell of column) {
    const block = { sum: wanted(cell) - offset - cell.height / 2, count: 1, cells: [[cell, offset]] };
    offset += cell.height + GAP;
    blocks.push(block);
    while (blocks.length > 1) {
      const [one, other] = blocks.slice(-2);
      if (one.sum / one.count <= other.sum / other.count) break;
      blocks.splice(-2, 2, { sum: one.sum + other.sum, count: one.count + other.count, cells: [...one.cells, ...other.cells] });
    }
  }
  for (const block of blocks) for (const [cell, over] of block.cells) cell.y = block.sum / block.count + over;
}

export function layout(nodes, edges) {
  const at = layers(nodes, edges);
  const columns = Array.from({ length: Math.max(0, ...at.values()) + 1 }, () => []);
  const cells = new Map();
  for (const node of nodes) {
    const name = cut(node.name, 24);
    const width = Math.max(112, Math.ceil(name.length * CHARACTER) + 26);
    const cell = { id: node.id, node, name, width, height: HEIGHT };
    cells.set(node.id, cell);
    columns[at.get(node.id)].push(cell);
  }
  const ways = routes(edges, at, columns);
  const beside = new Map(columns.flat().map(cell => [cell, { left: [], right: [] }]));
  for (const { edge, through, ahead } of ways) {
    if (!ahead) continue;
    const path = [cells.get(edge.giver), ...through, cells.get(edge.taker)];
    path.slice(1).forEach((cell, i) => {
      beside.get(path[i]).right.push(cell);
      beside.get(cell).left.push(path[i]);
    });
  }
  for (const column of columns) column.forEach((cell, i) => { cell.rank = i; });
  const order = (column, side) => {
    const wish = new Map(column.map(cell => {
      const near = beside.get(cell)[side];
      return [cell, near.length ? mean(near.map(n => n.rank)) : cell.rank];
    }));
    column.sort((a, b) => wish.get(a) - wish.get(b));
    column.forEach((cell, i) => { cell.rank = i; });
  };
  for (let i = 0; i < SWEEPS; i++) {
    columns.forEach(column => order(column, "left"));
    [...columns].reverse().forEach(column => order(column, "right"));
  }
  let x = MARGIN;
  for (const column of columns) {
    const width = Math.max(...column.map(cell => cell.width));
    let y = 0;
    for (const cell of column) {
      Object.assign(cell, { x: x + (width - cell.width) / 2, y, column: x, of: width });
      y += cell.height + GAP;
    }
    x += width + BETWEEN;
  }
  const middle = cell => cell.y + cell.height / 2;
  for (let i = 0; i < SWEEPS; i++) {
    for (const side of ["left", "right"]) {
      for (const column of side === "left" ? columns : [...columns].reverse()) {
        settle(column, cell => {
          const near = [...beside.get(cell)[side], ...(cell.thread ? beside.get(cell)[side === "left" ? "right" : "left"] : [])];
          return near.length ? mean(near.map(middle)) : middle(cell);
        });
      }
    }
  }
  const all = columns.flat(), top = Math.min(...all.map(c => c.y)) - MARGIN;
  for (const cell of all) cell.y -= top;
  return {
    cells, ways, columns,
    width: x - BETWEEN + MARGIN,
    height: Math.max(...all.map(c => c.y + c.height)) + MARGIN,
  };
}

const curve = (x1, y1, x2, y2) => {
  const bend = Math.max(24, (x2 - x1) / 2);
  return `C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
};

function line(way, cells) {
  const from = cells.get(way.edge.giver), to = cells.get(way.edge.taker);
  let [x, y] = [from.x + from.width, from.y + from.height / 2];
  if (!way.ahead) { // back to who ran before: below, in a bow
    const [tx, ty] = [to.x, to.y + to.height / 2];
    const low = Math.max(from.y + from.height, to.y + to.height) + 18;
    return `M${x} ${y}C${x + 40} ${low} ${tx - 40} ${low} ${tx} ${ty}`;
  }
  let path = `M${x} ${y}`;
  for (const point of way.through) {
    const py = point.y + point.height / 2;
    path += curve(x, y, point.column, py) + `L${point.column + point.of} ${py}`;
    [x, y] = [point.column + point.of, py];
  }
  return path + curve(x, y, to.x, to.y + to.height / 2);
}

// Draws a dataflow once; `update` writes figures into what is drawn.
export class Picture {
  constructor(flow, withTables, choose) {
    const shown = flow.nodes.filter(n => withTables || n.kind !== "table");
    const ids = new Set(shown.map(n => n.id));
    this.edges = flow.edges.filter(e => ids.has(e.giver) && ids.has(e.taker));
    this.found = layout(shown, this.edges);
    this.parts = new Map();
    this.choose = choose;
    const { width, height, cells, ways } = this.found;
    this.width = width;
    this.height = height;
    this.root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": flow.name });
    this.root.append(...this.nests(shown, cells));
    this.lines = ways.map(way => {
      const made = svg("path", { class: `edge ${way.edge.way}`, d: line(way, cells) });
      this.root.append(made);
      return { way, made };
    });
    this.rates = this.lines.filter(({ way }) => this.isRated(way)).map(({ way }) => {
      const from = cells.get(way.edge.giver), next = way.through[0] ?? cells.get(way.edge.taker);
      const end = way.through.length ? next.column : next.x;
      const label = svg("text", {
        class: "rate", x: (from.x + from.width + end) / 2,
        y: (from.y + from.height / 2 + next.y + next.height / 2) / 2 - 4,
      });
      this.root.append(label);
      return { way, label };
    });
    for (const column of this.found.columns) {
      for (const cell of column) if (!cell.thread) this.root.append(this.drawn(cell));
    }
    this.enter(shown[0]?.id);
    this.root.addEventListener("keydown", event => this.key(event));
  }

  // One label for all that a stream gives along one thread.
  isRated(way) {
    if (!/^(border|stream):/.test(way.edge.giver)) return false;
    const first = this.found.ways.find(w => w.edge.giver === way.edge.giver
      && (w.through[0] ?? w.edge.taker) === (way.through[0] ?? way.edge.taker));
    return first === way;
  }

  nests(nodes, cells) {
    const units = Map.groupBy ? Map.groupBy(nodes.filter(n => n.nested), n => n.unit) : new Map();
    return [...units].flatMap(([unit, members]) => {
      const held = members.map(n => cells.get(n.id));
      const [x, y] = [Math.min(...held.map(c => c.x)) - 9, Math.min(...held.map(c => c.y)) - 9];
      const [right, low] = [Math.max(...held.map(c => c.x + c.width)) + 9, Math.max(...held.map(c => c.y + c.height)) + 9];
      const name = svg("text", { class: "nest-name", x: x + 4, y: y - 3 });
      name.textContent = `${unit}: one transaction`;
      return [svg("rect", { class: "nest", x, y, width: right - x, height: low - y, rx: 12 }), name];
    });
  }

  drawn(cell) {
    const { node, x, y, width, height } = cell;
    const name = svg("text", { x: x + 14, y: y + 17 }), figure = svg("text", { class: "figure", x: x + 14, y: y + 32 });
    name.textContent = cell.name;
    const made = svg(
      "g", { class: "node", "data-kind": node.kind, "data-id": node.id, tabindex: "-1", role: "button" },
      svg("rect", { x, y, width, height, rx: node.kind === "stream" ? 21 : 8 }),
      ...(node.kind === "stream" ? [] : [svg("rect", { class: "bar", x, y: y + 8, width: 3, height: height - 16, rx: 1.5 })]),
      name, figure,
    );
    made.addEventListener("click", () => this.choose(node.id));
    made.addEventListener("focus", () => this.enter(node.id));
    this.parts.set(node.id, { made, figure, node, cell });
    return made;
  }

  // Only one node is in the order of Tab; from there, arrows lead on.
  enter(id) {
    const part = this.parts.get(id);
    if (!part) return;
    this.parts.get(this.at)?.made.setAttribute("tabindex", "-1");
    this.at = id;
    part.made.setAttribute("tabindex", "0");
  }

  focus(id) {
    this.enter(id);
    this.parts.get(id)?.made.focus();
    this.parts.get(id)?.made.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  key(event) {
    const part = this.parts.get(event.target.dataset?.id);
    if (!part || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") this.choose(part.node.id);
    else if (event.key.startsWith("Arrow")) {
      const next = this.next(part.cell, event.key.slice(5));
      if (next) this.focus(next.id);
    } else return;
    event.preventDefault();
  }

  next(cell, where) {
    const columns = this.found.columns.map(c => c.filter(one => !one.thread));
    const number = columns.findIndex(c => c.includes(cell)), column = columns[number];
    if (where === "Up" || where === "Down") return column[column.indexOf(cell) + (where === "Up" ? -1 : 1)];
    const side = columns[number + (where === "Left" ? -1 : 1)] ?? [];
    const linked = new Set(this.edges.flatMap(e => (e.giver === cell.id ? [e.taker] : e.taker === cell.id ? [e.giver] : [])));
    const far = one => Math.abs(one.y - cell.y) + (linked.has(one.id) ? 0 : 10000);
    return [...side].sort((a, b) => far(a) - far(b))[0];
  }

  mark(id) {
    for (const [other, { made }] of this.parts) made.classList.toggle("chosen", other === id);
    for (const { way, made } of this.lines) made.classList.toggle("near", way.edge.giver === id || way.edge.taker === id);
  }

  size(scale) {
    this.root.setAttribute("width", Math.round(this.width * scale));
    this.root.setAttribute("height", Math.round(this.height * scale));
  }

  // `said` gives for a node its line of figures, its tone and its rate.
  update(nodes, said) {
    for (const node of nodes) {
      const part = this.parts.get(node.id);
      if (!part) continue;
      const { line, tone } = said(node);
      part.node = node;
      if (part.figure.textContent !== line) part.figure.textContent = line;
      const chosen = part.made.classList.contains("chosen") ? "chosen" : "";
      part.made.setAttribute("class", ["node", chosen, tone, line ? "" : "bare"].join(" ").trim());
      part.made.setAttribute("aria-label", `${node.kind === "border" ? "stream from outside" : node.kind} ${node.name}${line ? `: ${line}` : ""}`);
    }
    const byId = new Map(nodes.map(n => [n.id, n]));
    for (const { way, made } of this.lines) {
      const rate = way.edge.way === "flows" ? this.rateOf(byId, way.edge) : 0;
      made.classList.toggle("live", rate > 0);
      if (way.edge.way === "flows") made.style.strokeWidth = rate > 0 ? String(1.4 + Math.min(3, Math.log10(1 + rate) * 0.7)) : "";
    }
    for (const { way, label } of this.rates) {
      const text = said(byId.get(way.edge.giver)).rate ?? "";
      if (label.textContent !== text) label.textContent = text;
    }
  }

  rateOf(byId, edge) {
    const of = id => { const f = byId.get(id)?.figures ?? {}; return f.tuples_per_s ?? f.batches_per_s ?? null; };
    if (edge.giver.startsWith("outlet:")) return byId.get(edge.giver)?.figures.staged_rows ?? 0;
    return of(edge.giver) ?? 0;
  }
}
