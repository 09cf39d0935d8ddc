// SPDX-License-Identifier: Apache-2.0
// The map: places of the model downwards in execution order, steps and ranks across. A cell is the worst row of its
// place and step. Layers are folded; one at a time is open.
import { h } from "./dom.js";
import { counted, shortened } from "./format.js";
import { HEAT_ENDS, LEVEL, MARK, readPlaces, stepName } from "./places.js";
import { DepthPlot } from "./plots.js";
import { state } from "./state.js";
import { rowTip, tipBox } from "./tip.js";

const MAP_CELL = { least: 12, most: 44, numbers: 34 }; // width in pixels; from `numbers` on a cell has its number
const MAP_LABELS = { least: 108, most: 230 };
const MAP_SIGN = ["", "▴", "✕", "◆"]; // by MARK
const NOTHING_OPEN = "-";

// ---- columns ----

function inParts(list, size) {
  const parts = [];
  for (let first = 0; first < list.length; first += size) parts.push(list.slice(first, first + size));
  return parts;
}

function spanText(list, name = String) {
  return list.length === 1 ? name(list[0]) : `${name(list[0])}-${name(list.at(-1))}`;
}

function columnOf(steps, ranks, manyRanks, axis) {
  const step = stepName(steps[0]) === "weights" ? "weights" : `${axis}${steps.length > 1 ? "s" : ""} ${spanText(steps)}`;
  const rank = `rank${ranks.length > 1 ? "s" : ""} ${spanText(ranks)}`;
  return { steps, ranks, short: spanText(steps, stepName), rank: spanText(ranks), name: manyRanks ? `${step}, ${rank}` : step };
}

/** Columns of [steps] and [ranks], at most about `most`: neighbours share one where there are more. */
function mapColumns(places, most) {
  const range = /^(\d+)-(\d+)$/.exec(state.get("steps"));
  const steps = range ? places.steps.filter((step) => step >= Number(range[1]) && step <= Number(range[2])) : places.steps;
  const weights = steps.filter((step) => stepName(step) === "weights");
  const numbered = steps.filter((step) => stepName(step) !== "weights");
  const rankParts = inParts(places.ranks, Math.ceil(places.ranks.length / most));
  const size = Math.max(1, Math.ceil((numbered.length * rankParts.length) / Math.max(1, most - weights.length * rankParts.length)));
  const stepParts = [...weights.map((step) => [step]), ...inParts(numbered, size)];
  return stepParts.flatMap((part) => rankParts.map((ranks) => columnOf(part, ranks, places.ranks.length > 1, places.axis)));
}

/** Column of each row, -1 outside. */
function columnsOfRows({ judgements }, columns) {
  const known = new Map();
  columns.forEach((column, i) => column.steps.forEach((step) => column.ranks.forEach((rank) => known.set(`${step} ${rank}`, i))));
  const list = new Int32Array(judgements.length);
  for (let row = 0; row < list.length; row++)
    list[row] = known.get(`${judgements.step[row]} ${judgements.rank(row)}`) ?? -1;
  return list;
}

// ---- cells ----

/** [{count, worst} or null] of a line. */
function cellsOf(places, line, columnOfRow, count, by) {
  const cells = new Array(count).fill(null);
  for (const row of line.rows) {
    const at = columnOfRow[row];
    if (at < 0) continue;
    const cell = (cells[at] ??= { count: 0, worst: row });
    cell.count++;
    if (places.judgements.isWorse(row, cell.worst, by)) cell.worst = row;
  }
  return cells;
}

function cellWords(places, line, column, cell, by) {
  if (cell === null) return `${line.name || "(model)"}, ${column.name}: not captured`;
  const { judgements } = places;
  const verdict = judgements.verdict(cell.worst).replaceAll("_", " ");
  return `${line.name || "(model)"}, ${column.name}: ${[...new Set([judgements.levelWords(cell.worst, by), verdict])].filter(Boolean).join(", ")}`;
}

function shortTimes(times) {
  if (times === Infinity) return "∞";
  if (times >= 9995) return times.toExponential(0).replace("e+", "e");
  return times < 9.95 ? times.toFixed(1) : times.toFixed(0);
}

function cellKind(judgements, row, by) {
  return judgements.mark[row] === MARK.wrong ? "wrong" : `level-${judgements.level[by][row]}`;
}

function cellElement(places, line, column, cell, by, width) {
  const attributes = { role: "gridcell", "aria-label": cellWords(places, line, column, cell, by) };
  if (cell === null) return h("div", { ...attributes, class: "map-cell absent" });
  const { judgements } = places;
  const [mark, level, times] = [judgements.mark[cell.worst], judgements.level[by][cell.worst], judgements.times[by][cell.worst]];
  const written = judgements.hasScale && width >= MAP_CELL.numbers && level >= LEVEL.beyond && level < LEVEL.broken ? shortTimes(times) : "";
  return h("div", { ...attributes, class: `map-cell ${cellKind(judgements, cell.worst, by)}`, "data-row": cell.worst, "data-count": cell.count }, MAP_SIGN[mark], written);
}

// ---- lines ----

function ancestors(place) {
  const list = [];
  for (let group = place?.parent; group; group = group.parent) list.push(group);
  return list;
}

/** Keys of the open groups: those around the first bad one until the reader chooses. */
function openKeys(places) {
  const chosen = state.get("open");
  if (chosen === NOTHING_OPEN) return new Set();
  if (chosen === "") return new Set(ancestors(places.first?.place).map((group) => group.key));
  const find = (group) => (group.key === chosen ? group : group.children?.map(find).find(Boolean));
  const found = find(places.root);
  return new Set(found ? [found, ...ancestors(found)].map((group) => group.key) : []);
}

function linesOf(group, open, depth = 0) {
  return group.children.flatMap((child) => {
    const isOpen = child.children !== undefined && open.has(child.key);
    return [{ ...child, depth, isOpen }, ...(isOpen ? linesOf(child, open, depth + 1) : [])];
  });
}

function toggleLine(line) {
  const outer = line.parent.key === "" ? NOTHING_OPEN : line.parent.key;
  state.set({ open: line.isOpen ? outer : line.key });
}

function lineHead(line, width) {
  const sign = line.children === undefined ? "" : line.isOpen ? "▾" : "▸";
  const size = line.children === undefined ? "" : ` (${counted(line.children.length, "place")})`;
  const text = shortened(line.label, Math.floor((width - 22 - line.depth * 10) / 6.6));
  return h("div", {
    role: "rowheader", class: "map-line-head", title: `${line.name || "(model)"}${size}`, style: `padding-left:${line.depth * 10}px`,
    "aria-expanded": line.children === undefined ? null : String(line.isOpen), "aria-label": `${line.name || "(model)"}${size}`,
  }, h("span", { class: "twist" }, sign), text);
}

// ---- the grid ----

/** Heads of all columns; numbers only as dense as they can be read. */
function columnHeads(columns, width) {
  const { count, perStep } = axesOf(columns);
  const weights = columns.length - count;
  const upright = columns.some((column) => typeof column.steps[0] === "string" && stepName(column.steps[0]) !== "weights");
  const stride = Math.ceil((upright ? 14 : 26) / (width * perStep)) * perStep;
  const text = (column, i) => {
    if (i < weights) return stepName(column.steps[0]);
    if ((i - weights) % stride === 0) return headText(columns, column);
    return width >= 26 ? `·${column.ranks[0]}` : "";
  };
  return columns.map((column, i) =>
    h("div", { role: "columnheader", class: `map-column-head${i < weights ? " weights" : ""}${upright ? " upright" : ""}`, "aria-label": column.name, title: column.name }, h("span", {}, text(column, i))));
}

/** What columns differ in; weights are not counted. `perStep`: ranks beside each other. */
function axesOf(columns) {
  const numbered = columns.filter((column) => column.short !== "weights");
  const different = (key) => new Set(numbered.map((column) => column[key])).size;
  const [steps, ranks] = [different("short"), different("rank")];
  return { count: numbered.length, steps, ranks, perStep: steps > 1 ? Math.max(1, ranks) : 1, step: numbered[0]?.short };
}

function headText(columns, column) {
  const { steps, ranks } = axesOf(columns);
  return ranks > 1 && steps === 1 ? String(column.ranks[0]) : String(column.steps[0]);
}

/** Says whether the first bad one is shown in that line. */
function holdsFirst(places, line) {
  if (places.first === null || line.isOpen) return false;
  return line.key === places.first.place.key || ancestors(places.first.place).some((group) => group.key === line.key);
}

/** The column of the first bad one; -1 where it is not shown. */
function firstColumn({ first, judgements, ranks }, columns) {
  if (first === null) return -1;
  const step = first.row !== null ? judgements.step[first.row] : first.step;
  const rank = first.row !== null ? judgements.rank(first.row) : first.rank;
  return columns.findIndex((column) => column.steps.includes(step) && (ranks.length === 1 || column.ranks.includes(rank)));
}

const LEAST_MAP = 380; // pixels
const LETTER = 7; // pixels of a letter of the callout, about

/** What the ring is, below it; moved to the left where it would not fit. */
function mapCallout(places, i, count, size) {
  const left = size.label + i * (size.cell + 1);
  const room = Math.min(size.room, Math.max(size.label + count * (size.cell + 1), LEAST_MAP));
  const text = shortened(places.first.text, Math.floor(room / LETTER) - 3);
  const shift = Math.max(-left, Math.min(0, room - left - (text.length + 3) * LETTER));
  const words = h("span", { class: shift < 0 ? "map-callout moved" : "map-callout", "aria-hidden": "true", style: `left:${shift < 0 ? shift : 16}px` }, text);
  return [h("span", { class: "map-callout", "aria-hidden": "true" }, "↑"), words];
}

function markFirst(places, element, i, count, size) {
  element.classList.add("first");
  element.setAttribute("aria-label", `${places.first.text}: ${element.getAttribute("aria-label")}`);
  element.append(...mapCallout(places, i, count, size));
}

function lineElement(places, line, columns, columnOfRow, by, size) {
  const cells = cellsOf(places, line, columnOfRow, columns.length, by);
  const elements = cells.map((cell, i) => cellElement(places, line, columns[i], cell, by, size.cell));
  const first = holdsFirst(places, line) ? firstColumn(places, columns) : -1;
  if (first >= 0) markFirst(places, elements[first], first, columns.length, size);
  return h("div", { role: "row", class: first >= 0 ? "map-line marked" : "map-line" }, lineHead(line, size.label), elements);
}

/** "step" over the columns of steps. */
function axisTitle(columns, size, axis) {
  const { count, steps, ranks, step } = axesOf(columns);
  if (count === 0) return null;
  const text = ranks < 2 ? `${axis} →` : steps > 1 ? `${axis}, its ranks side by side →` : `${axis}${/-/.test(step) ? "s" : ""} ${step}, rank →`;
  const left = size.label + 3 + (columns.length - count) * (size.cell + 1);
  return h("p", { class: "axis-title", "aria-hidden": "true", style: `padding-left:${left}px` }, text);
}

/** Widths in pixels of the labels and of a cell, and the columns that fit. */
function fittedMap(places, room) {
  const label = Math.round(Math.max(MAP_LABELS.least, Math.min(MAP_LABELS.most, room * 0.4)));
  const most = Math.max(2, Math.floor((room - label) / MAP_CELL.least));
  const columns = mapColumns(places, most);
  const cell = Math.max(8, Math.min(MAP_CELL.most, Math.floor((room - label) / columns.length)));
  return { columns, label, cell, room };
}

/** {heads and lines as elements, lines, columns, title, style, width in pixels} */
function drawnMap(places, room, by) {
  const { columns, ...size } = fittedMap(places, room);
  const columnOfRow = columnsOfRows(places, columns);
  const lines = linesOf(places.root, openKeys(places));
  const head = h("div", { role: "row", class: "map-line heads" }, h("div", { role: "columnheader", class: "map-line-head note" }, "place"), columnHeads(columns, size.cell));
  const elements = [head, ...lines.map((line) => lineElement(places, line, columns, columnOfRow, by, size))];
  const style = `--label:${size.label}px;--cell:${size.cell}px;--count:${columns.length};--row:${lines.length > 60 ? 16 : 20}px`;
  return { elements, lines, columns, style, title: axisTitle(columns, size, places.axis), width: size.label + columns.length * (size.cell + 1) };
}

// ---- pointing and keys ----

function movedTo(event, at, lines, columns) {
  const far = event.ctrlKey;
  const places = {
    ArrowUp: [at[0] - 1, at[1]], ArrowDown: [at[0] + 1, at[1]], ArrowLeft: [at[0], at[1] - 1], ArrowRight: [at[0], at[1] + 1],
    PageUp: [at[0] - 10, at[1]], PageDown: [at[0] + 10, at[1]], Home: [far ? 0 : at[0], 0], End: [far ? lines : at[0], columns],
  };
  const to = places[event.key];
  return to && [Math.max(0, Math.min(lines, to[0])), Math.max(0, Math.min(columns, to[1]))];
}

/** The grid, and what answers to pointer and keys. `at` is [line, column] of the active cell; number 0 are heads. */
class MapGrid {
  constructor(places, tip) {
    Object.assign(this, { places, tip, lines: [], columns: [], at: [1, 1] });
    this.grid = h("div", { role: "grid", class: "map-grid", tabindex: 0, "aria-label": `${places.judgements.hasScale ? "errors" : "results"} by place and ${places.axis}`, "aria-readonly": "true" });
    const on = (name, answer) => this.grid.addEventListener(name, answer);
    on("keydown", (event) => this.answerKey(event));
    on("click", (event) => this.answerClick(event));
    on("pointerover", (event) => this.tell(this.placeOf(event.target)));
    on("pointerleave", tip.hide);
    on("blur", tip.hide);
  }

  /** Shows another map; the active cell stays in its place. */
  take({ elements, lines, columns, style }) {
    const key = this.lines[this.at[0] - 1]?.key;
    const line = this.at[0] === 0 ? 0 : Math.max(1, lines.findIndex((one) => one.key === key) + 1);
    Object.assign(this, { lines, columns });
    this.grid.setAttribute("style", style);
    this.grid.replaceChildren(...elements);
    this.activate([line, Math.min(this.at[1], columns.length)]);
  }

  element([line, column]) {
    return this.grid.children[line].children[column];
  }

  placeOf(target) {
    const cell = target.closest(".map-grid > .map-line > *");
    return cell && [[...this.grid.children].indexOf(cell.parentNode), [...cell.parentNode.children].indexOf(cell)];
  }

  activate(to) {
    this.grid.querySelector("#map-active")?.removeAttribute("id");
    this.at = to;
    this.element(to).id = "map-active";
    this.grid.setAttribute("aria-activedescendant", "map-active");
  }

  tell(at) {
    if (at === null) return;
    const cell = this.element(at);
    const { row, count } = cell.dataset;
    if (row !== undefined && Number(row) === state.row) this.tip.hide(); // the panel says it all
    else if (row !== undefined)
      this.tip.show(cell, rowTip(this.places.judgements, Number(row), Number(count), `${this.lines[at[0] - 1].name || "(model)"}, ${this.columns[at[1] - 1].name}`));
    else if (cell.classList.contains("absent")) this.tip.show(cell, h("p", {}, cell.getAttribute("aria-label")));
    else this.tip.hide();
  }

  use([line, column]) {
    if (line > 0 && column === 0) useLine(this.places, this.lines[line - 1]);
    else if (line === 0 && column > 0) useColumn(this.columns[column - 1]);
    else if (line > 0 && this.element([line, column]).dataset.row) state.set({ row: this.element([line, column]).dataset.row });
  }

  answerKey(event) {
    const to = movedTo(event, this.at, this.lines.length, this.columns.length);
    if (to) {
      this.activate(to);
      this.element(to).scrollIntoView({ block: "nearest" });
      this.tell(to);
    } else if (event.key === "Enter" || event.key === " ") this.use(this.at);
    else return event.key === "Escape" ? this.tip.hide() : undefined;
    event.preventDefault();
  }

  answerClick(event) {
    const to = this.placeOf(event.target);
    if (to === null) return;
    this.activate(to);
    this.tip.hide();
    this.use(to);
  }
}

function useLine(places, line) {
  if (line.children !== undefined) toggleLine(line);
  else state.set({ row: places.judgements.worst(line.rows) });
}

/** Of several steps: shows each of them. Of one: the plot is of it. */
function useColumn(column) {
  if (column.steps.length > 1 && typeof column.steps[0] === "number") state.set({ steps: `${column.steps[0]}-${column.steps.at(-1)}` });
  else if (column.short !== "weights") state.set({ step: column.steps[0], rank: column.ranks[0] });
}

// ---- what the colours mean ----

function classLegend() {
  const ends = HEAT_ENDS.map((end) => (end >= 1e4 ? `1e${Math.log10(end)}` : String(end)));
  const scale = ends.map((end, i) => h("span", { class: "step" }, h("span", { class: `map-cell level-${LEVEL.beyond + i}` }), h("span", { class: "end" }, end)));
  return h("span", { class: "scale" }, h("span", { class: "words" }, "times what rounding explains, from"), scale);
}

function legendEntry(kind, words, sign = "") {
  return h("span", { class: "entry" }, h("span", { class: `map-cell ${kind}` }, sign), words);
}

/** Where cells are words and no numbers: each word once. */
function wordEntries({ judgements }) {
  const rows = new Map();
  for (let row = 0; row < judgements.length; row++) if (!rows.has(judgements.verdict(row))) rows.set(judgements.verdict(row), row);
  const listed = [...rows].sort(([, a], [, b]) => judgements.mark[b] - judgements.mark[a] || judgements.level.all[b] - judgements.level.all[a]);
  return listed.map(([word, row]) => legendEntry(cellKind(judgements, row, "all"), word, MAP_SIGN[judgements.mark[row]]));
}

function mapLegend(places, by) {
  const levels = new Set(places.judgements.level[by]);
  const marks = new Set(places.judgements.mark);
  const entry = legendEntry;
  if (!places.judgements.hasScale)
    return h("div", { class: "map-legend", role: "group", "aria-label": "legend" }, wordEntries(places), places.first ? entry("ringed", "first") : null);
  return h("div", { class: "map-legend", role: "group", "aria-label": "legend" },
    marks.has(MARK.wrong) ? entry("wrong", "wrong by itself", MAP_SIGN[MARK.wrong]) : null,
    places.first ? entry("ringed", "first bad") : null,
    entry("level-1", by === "own" ? "no own error" : "equal"),
    entry("level-2", places.judgements.isClean ? "explained by rounding" : `within rounding (below ${HEAT_ENDS[0]} times)`),
    places.judgements.isClean ? null : classLegend(),
    marks.has(MARK.grown) ? entry("level-3", "grew here", MAP_SIGN[MARK.grown]) : null,
    levels.has(LEVEL.broken) ? entry("level-10", "NaN or infinity", MAP_SIGN[MARK.broken]) : null,
    levels.has(LEVEL.unknown) ? entry("level-0", by === "own" ? "own error not known" : "not judged") : null,
    entry("absent", "not captured"));
}

function errorSwitch(by) {
  const button = (name, words, title) =>
    h("button", { class: "small", "aria-pressed": String(by === name), title, onclick: () => state.set({ errors: name === "all" ? "" : name }) }, words);
  return h("span", { class: "switch", role: "group", "aria-label": "colour by" }, h("span", { class: "note" }, "colour by "),
    button("all", "all of the error", "how far each tensor is from golden, whatever the cause"),
    button("own", "own error", "what each operator adds to the error of its inputs"));
}

function mapControls(page, by, axis) {
  const knowsOwn = !page.table.isEmpty("err_own");
  const range = state.get("steps");
  return h("div", { class: "map-controls" },
    knowsOwn ? errorSwitch(by) : null,
    range ? h("button", { class: "small", onclick: () => state.set({ steps: "" }) }, `${axis}s ${range}: show all ${axis}s`) : null);
}

function mapNote(places, columns) {
  const isShared = columns.some((column) => column.steps.length > 1);
  const downwards = places.isOrdered ? "execution order" : "the order of the report (that of execution is not known)";
  const across = axesOf(columns).count === 0 ? "" : ` Across: ${places.axis}s${isShared ? ", several in a column; its head shows them one by one" : ""}.`;
  return `Downwards: ${downwards}, a layer on a line until it is opened.${across} A cell is the worst ${places.judgements.hasScale ? "tensor" : "operator"} of its place${across ? ` and ${places.axis}` : ""}; it opens with a click or Enter.`;
}

// ---- the view ----

const BESIDE = 900; // pixels: from here on the plot stands beside the map
const GAP = 24;

/** Pixels that the map may take of those of both. */
function roomOfMap(width) {
  return width < BESIDE ? width - 2 : Math.max(width - 560, Math.min(width - 460, MAP_LABELS.most + MAP_CELL.most * 12));
}

/** Pixels that are left beside the panel of a row, which style.css puts there from `PANEL_BESIDE` on. */
const PANEL_BESIDE = 1100;
function roomBesidePanel(desk) {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  return Math.floor(desk - 1.2 * rem - Math.max(30 * rem, 0.42 * desk));
}

class MapView {
  constructor(page, places) {
    Object.assign(this, { page, places, tip: tipBox(), width: 0 });
    this.grid = new MapGrid(places, this.tip);
    this.plot = places.judgements.hasScale ? new DepthPlot(places, this.tip) : null;
    [this.top, this.title, this.note] = [h("div", {}), h("div", {}), h("p", { class: "note" })];
    this.mapPart = h("div", { class: "map-part" }, this.title, this.grid.grid, this.note);
    this.plotPart = h("div", { class: "plot-part", hidden: this.plot === null }, this.plot?.element);
    this.desk = h("div", { class: "map-desk" }, this.mapPart, this.plotPart);
    this.element = h("div", { class: "map" }, h("h2", {}, "Where the runs differ"), this.top, this.desk, this.tip.box);
    state.on(["errors", "open", "steps"], () => this.draw());
    state.on(["step", "rank"], () => this.drawPlot());
    new ResizeObserver(() => {
      if (this.desk.clientWidth === this.width || this.desk.clientWidth === 0) return;
      this.width = this.desk.clientWidth;
      this.draw();
    }).observe(this.desk);
  }

  draw() {
    if (this.width === 0) return; // not shown yet
    this.tip.hide();
    this.drawMap();
    this.drawPlot();
  }

  /** The same whether a row is open or not, so that opening one moves nothing. */
  room() {
    const desk = this.element.closest(".desk")?.clientWidth ?? this.width;
    const room = this.plot === null ? desk - 2 : roomOfMap(desk);
    if (innerWidth < PANEL_BESIDE) return room;
    this.top.style.maxWidth = `${roomBesidePanel(desk)}px`;
    return Math.min(room, roomBesidePanel(desk) - 2);
  }

  drawMap() {
    const by = state.get("errors") === "own" ? "own" : "all";
    const room = this.room();
    const map = drawnMap(this.places, room, by);
    this.top.replaceChildren(mapControls(this.page, by, this.places.axis), mapLegend(this.places, by));
    this.title.replaceChildren(map.title ?? "");
    this.grid.take(map);
    this.note.textContent = mapNote(this.places, map.columns);
    this.mapPart.style.width = `${Math.min(room, Math.max(map.width + 4, LEAST_MAP))}px`;
  }

  drawPlot() {
    if (this.width === 0 || this.plot === null) return;
    const room = this.width < BESIDE ? this.width : this.width - this.mapPart.offsetWidth - GAP;
    this.plotPart.style.width = `${room}px`;
    this.plot.draw(room);
  }
}

/** Map and plot, beside each other where there is room. */
export async function mapView(page) {
  if (page.table.length === 0) return h("p", { class: "note" }, page.axis ? "Nothing was compared." : "No tensor was compared.");
  return new MapView(page, await readPlaces(page)).element;
}
