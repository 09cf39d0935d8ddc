// SPDX-License-Identifier: Apache-2.0
// The map: places of the model downwards in execution order, steps and ranks across. A cell is the worst row of its
// place and step. Layers are folded; one at a time is open.
import { h } from "./dom.js";
import { counted, shortened } from "./format.js";
import { HEAT_ENDS, LEVEL, MARK, readPlaces, stepName, timesText } from "./places.js";
import { depthPlot } from "./plots.js";
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

function rangeText(list, name = String) {
  return list.length === 1 ? name(list[0]) : `${name(list[0])}–${name(list.at(-1))}`;
}

function columnOf(steps, ranks, manyRanks) {
  const step = stepName(steps[0]) === "weights" ? "weights" : `step${steps.length > 1 ? "s" : ""} ${rangeText(steps)}`;
  const rank = `rank${ranks.length > 1 ? "s" : ""} ${rangeText(ranks)}`;
  return { steps, ranks, short: rangeText(steps, stepName), rank: rangeText(ranks), name: manyRanks ? `${step}, ${rank}` : step };
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
  return stepParts.flatMap((part) => rankParts.map((ranks) => columnOf(part, ranks, places.ranks.length > 1)));
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

function levelWords(level, times, by) {
  const what = by === "own" ? "own error" : "error";
  if (level === LEVEL.unknown) return by === "own" ? "own error not known" : "not judged";
  if (level === LEVEL.equal) return by === "own" ? "no error of its own" : "equal";
  if (level === LEVEL.broken) return "NaN or infinity";
  if (level === LEVEL.within) return `within rounding (${timesText(times)})`;
  return `${what} ${timesText(times)} what rounding explains`.replace("× what", "times what");
}

function cellWords(places, line, column, cell, by) {
  if (cell === null) return `${line.name || "(model)"}, ${column.name}: not captured`;
  const { judgements } = places;
  const verdict = judgements.verdict(cell.worst).replaceAll("_", " ");
  return `${line.name || "(model)"}, ${column.name}: ${levelWords(judgements.level[by][cell.worst], judgements.times[by][cell.worst], by)}${verdict ? `, ${verdict}` : ""}`;
}

function shortTimes(times) {
  if (times === Infinity) return "∞";
  if (times >= 9995) return times.toExponential(0).replace("e+", "e");
  return times < 9.95 ? times.toFixed(1) : times.toFixed(0);
}

function cellElement(places, line, column, cell, by, width) {
  const attributes = { role: "gridcell", "aria-label": cellWords(places, line, column, cell, by) };
  if (cell === null) return h("div", { ...attributes, class: "cell absent" });
  const { judgements } = places;
  const [mark, level, times] = [judgements.mark[cell.worst], judgements.level[by][cell.worst], judgements.times[by][cell.worst]];
  const written = width >= MAP_CELL.numbers && level >= LEVEL.beyond && level < LEVEL.broken ? shortTimes(times) : "";
  const kind = mark === MARK.wrong ? "wrong" : `level-${level}`;
  return h("div", { ...attributes, class: `cell ${kind}`, "data-row": cell.worst }, MAP_SIGN[mark], written);
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
    role: "rowheader", class: "line-head", title: `${line.name || "(model)"}${size}`, style: `padding-left:${line.depth * 10}px`,
    "aria-expanded": line.children === undefined ? null : String(line.isOpen), "aria-label": `${line.name || "(model)"}${size}`,
  }, h("span", { class: "twist" }, sign), text);
}

// ---- the grid ----

function columnHeads(columns, width) {
  const stride = Math.ceil(26 / width);
  return columns.map((column, i) => {
    const isWeights = column.short === "weights";
    const shown = isWeights || (i - Number(columns[0].short === "weights")) % stride === 0;
    return h("div", { role: "columnheader", class: `column-head${isWeights ? " weights" : ""}`, "aria-label": column.name, title: column.name }, shown ? h("span", {}, headText(column, columns, i)) : "");
  });
}

/** What columns differ in. */
function axesOf(columns) {
  const numbered = columns.filter((column) => column.short !== "weights");
  const many = (key) => numbered.some((column) => column[key] !== numbered[0][key]);
  return { count: numbered.length, manyRanks: many("rank"), manySteps: many("short"), step: numbered[0]?.short };
}

function headText(column, columns, i) {
  const { manyRanks, manySteps } = axesOf(columns);
  if (column.short === "weights" || !manyRanks) return String(stepName(column.steps[0]));
  if (!manySteps) return String(column.ranks[0]);
  return columns[i - 1]?.short === column.short ? `·${column.ranks[0]}` : `${column.steps[0]}·${column.ranks[0]}`;
}

function holdsFirst(places, line, column) {
  const { first, judgements } = places;
  if (first === null || line.isOpen) return false;
  const isIn = line.children === undefined ? line.key === first.place.key : ancestors(first.place).some((group) => group.key === line.key);
  if (!isIn) return false;
  const step = first.row !== null ? judgements.step[first.row] : first.step;
  const rank = first.row !== null ? judgements.rank(first.row) : first.rank;
  return column.steps.includes(step) && (column.ranks.includes(rank) || column.ranks.length < 2);
}

const LETTER = 7; // pixels of a letter of the callout, about

/** What the ring is, below it; moved to the left where it would not fit. */
function mapCallout(places, i, count, size) {
  const left = size.label + i * (size.cell + 1);
  const room = size.label + count * (size.cell + 1);
  const text = shortened(places.first.text, Math.floor(room / LETTER) - 3);
  const shift = Math.max(-left, Math.min(0, Math.max(room, 320) - left - (text.length + 2) * LETTER));
  const words = h("span", { class: shift < 0 ? "callout moved" : "callout", "aria-hidden": "true", style: `left:${shift < 0 ? shift : 16}px` }, text);
  return [h("span", { class: "callout", "aria-hidden": "true" }, "↑"), words];
}

function lineElement(places, line, columns, columnOfRow, by, size) {
  const cells = cellsOf(places, line, columnOfRow, columns.length, by);
  let marked = false;
  const elements = cells.map((cell, i) => {
    const element = cellElement(places, line, columns[i], cell, by, size.cell);
    if (cell !== null && holdsFirst(places, line, columns[i])) {
      marked = true;
      element.classList.add("first");
      element.setAttribute("aria-label", `${places.first.text}: ${element.getAttribute("aria-label")}`);
      element.append(...mapCallout(places, i, columns.length, size));
    }
    element.count = cell?.count ?? 0;
    return element;
  });
  return h("div", { role: "row", class: marked ? "line marked" : "line" }, lineHead(line, size.label), elements);
}

/** "step" over the columns of steps. */
function axisTitle(columns, size) {
  const { count, manyRanks, manySteps, step } = axesOf(columns);
  if (count === 0) return null;
  const text = !manyRanks ? "step →" : manySteps ? "step·rank →" : `step ${step}, rank →`;
  const left = size.label + 3 + (columns.length - count) * (size.cell + 1);
  return h("p", { class: "axis-title", "aria-hidden": "true", style: `padding-left:${left}px` }, text);
}

/** Widths in pixels of the labels and of a cell, and the columns that fit. */
function fittedMap(places, room) {
  const label = Math.round(Math.max(MAP_LABELS.least, Math.min(MAP_LABELS.most, room * 0.4)));
  const most = Math.max(2, Math.floor((room - label) / MAP_CELL.least));
  const columns = mapColumns(places, most);
  const cell = Math.max(8, Math.min(MAP_CELL.most, Math.floor((room - label) / columns.length)));
  return { columns, label, cell };
}

function gridOf(places, room) {
  const { columns, ...size } = fittedMap(places, room);
  const by = state.get("errors") === "own" ? "own" : "all";
  const columnOfRow = columnsOfRows(places, columns);
  const lines = linesOf(places.root, openKeys(places));
  const head = h("div", { role: "row", class: "line heads" }, h("div", { role: "columnheader", class: "line-head note" }, "place"), columnHeads(columns, size.cell));
  const rows = lines.map((line) => lineElement(places, line, columns, columnOfRow, by, size));
  const grid = h("div", {
    role: "grid", class: "grid", tabindex: 0, "aria-label": "errors by place and step", "aria-readonly": "true",
    style: `--label:${size.label}px;--cell:${size.cell}px;--count:${columns.length};--row:${lines.length > 60 ? 16 : 20}px`,
  }, head, rows);
  return { grid, title: axisTitle(columns, size), lines, columns, width: size.label + columns.length * (size.cell + 1) };
}

// ---- pointing and keys ----

function movedTo(event, at, rows, columns) {
  const far = event.ctrlKey;
  const steps = {
    ArrowUp: [at[0] - 1, at[1]], ArrowDown: [at[0] + 1, at[1]], ArrowLeft: [at[0], at[1] - 1], ArrowRight: [at[0], at[1] + 1],
    PageUp: [at[0] - 10, at[1]], PageDown: [at[0] + 10, at[1]], Home: [far ? 0 : at[0], 0], End: [far ? rows : at[0], columns],
  };
  const to = steps[event.key];
  return to && [Math.max(0, Math.min(rows, to[0])), Math.max(0, Math.min(columns, to[1]))];
}

/** Makes the grid answer to pointer and keys. `at` is [line, column] of the active cell; 0 are heads. */
function watchMap(map, places, tip) {
  const { grid, lines, columns } = map;
  const element = ([line, column]) => grid.children[line].children[column];
  const placeOf = (target) => {
    const cell = target.closest(".grid > .line > *");
    return cell && [[...grid.children].indexOf(cell.parentNode), [...cell.parentNode.children].indexOf(cell)];
  };
  const tell = ([line, column]) => {
    const cell = element([line, column]);
    const row = cell.dataset.row;
    if (row !== undefined) tip.show(cell, rowTip(places.judgements, Number(row), cell.count, `${lines[line - 1].name || "(model)"}, ${columns[column - 1].name}`));
    else if (cell.classList.contains("absent")) tip.show(cell, h("p", {}, cell.getAttribute("aria-label")));
    else tip.hide();
  };
  const use = ([line, column]) => {
    if (line > 0 && column > 0) {
      const row = element([line, column]).dataset.row;
      if (row !== undefined) state.set({ row });
    } else if (line > 0) useLine(places, lines[line - 1]);
    else if (column > 0) useColumn(columns[column - 1]);
  };
  const activate = (to) => {
    grid.querySelector(".active")?.removeAttribute("id");
    grid.querySelector(".active")?.classList.remove("active");
    map.at = to;
    const cell = element(to);
    cell.id = "map-active";
    cell.classList.add("active");
    grid.setAttribute("aria-activedescendant", "map-active");
    return cell;
  };
  grid.addEventListener("keydown", (event) => {
    const to = movedTo(event, map.at, lines.length, columns.length);
    if (to) activate(to).scrollIntoView({ block: "nearest" });
    else if (event.key === "Enter" || event.key === " ") use(map.at);
    else if (event.key === "Escape") return tip.hide();
    else return;
    event.preventDefault();
    if (to) tell(map.at);
  });
  grid.addEventListener("focus", () => activate(map.at));
  grid.addEventListener("blur", tip.hide);
  grid.addEventListener("pointerover", (event) => placeOf(event.target) && tell(placeOf(event.target)));
  grid.addEventListener("pointerleave", tip.hide);
  grid.addEventListener("click", (event) => {
    const to = placeOf(event.target);
    if (!to) return;
    activate(to);
    use(to);
  });
  activate(map.at);
}

function useLine(places, line) {
  if (line.children !== undefined) toggleLine(line);
  else state.set({ row: places.judgements.worst(line.rows) });
}

/** Of several steps: shows each of them. Of one: the plot is of it. */
function useColumn(column) {
  if (column.steps.length > 1) state.set({ steps: `${column.steps[0]}-${column.steps.at(-1)}` });
  else if (column.short !== "weights") state.set({ step: column.steps[0], rank: column.ranks[0] });
}

// ---- what the colours mean ----

function heatLegend() {
  const ends = HEAT_ENDS.map((end) => (end >= 1e4 ? `1e${Math.log10(end)}` : String(end)));
  const scale = ends.map((end, i) => h("span", { class: "step" }, h("span", { class: `cell level-${LEVEL.beyond + i}` }), h("span", { class: "end" }, end)));
  return h("span", { class: "scale" }, h("span", { class: "words" }, "times what rounding explains, from"), scale);
}

function mapLegend(places, by) {
  const levels = new Set(places.judgements.level[by]);
  const marks = new Set(places.judgements.mark);
  const entry = (kind, words, sign = "") => h("span", { class: "entry" }, h("span", { class: `cell ${kind}` }, sign), words);
  return h("div", { class: "map-legend", role: "group", "aria-label": "legend" },
    marks.has(MARK.wrong) ? entry("wrong", "wrong by itself", MAP_SIGN[MARK.wrong]) : null,
    places.first ? entry("ringed", "first bad") : null,
    entry("level-1", by === "own" ? "no own error" : "equal"),
    entry("level-2", `within rounding (below ${HEAT_ENDS[0]} times)`),
    heatLegend(),
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

function mapControls(page, places, by) {
  const knowsOwn = !page.table.isEmpty("err_own");
  const range = state.get("steps");
  return h("div", { class: "map-controls" },
    knowsOwn ? errorSwitch(by) : null,
    range ? h("button", { class: "small", onclick: () => state.set({ steps: "" }) }, `steps ${range}: show all steps`) : null);
}

function mapNote(places, columns) {
  const isShared = columns.some((column) => column.steps.length > 1);
  const downwards = places.isOrdered ? "execution order" : "the order of the report (that of execution is not known)";
  const across = axesOf(columns).count === 0 ? "" : ` Across: steps${isShared ? ", several in a column; its head shows them one by one" : ""}.`;
  return `Downwards: ${downwards}, a layer on a line until it is opened.${across} A cell is the worst tensor of its place${across ? " and step" : ""}; it opens with a click or Enter.`;
}

// ---- the view ----

const MAP_KEYS = ["errors", "open", "steps"];
const PLOT_KEYS = ["step", "rank"];

/** Map and plot beside each other where there is room. */
export async function mapView(page) {
  const places = await readPlaces(page);
  if (page.table.length === 0) return h("p", { class: "note" }, "No tensor was compared.");
  const tip = tipBox();
  const [top, gridPart, plotPart] = [h("div", {}), h("div", { class: "map-part" }), h("div", { class: "plot-part" })];
  const desk = h("div", { class: "map-desk" }, gridPart, plotPart);
  const map = { at: [1, 1] };
  let width = 0;
  const drawMap = () => {
    const by = state.get("errors") === "own" ? "own" : "all";
    const hadFocus = gridPart.contains(document.activeElement);
    const room = width >= 900 ? Math.max(width - 560, Math.min(width - 460, MAP_LABELS.most + MAP_CELL.most * 12)) : width;
    Object.assign(map, gridOf(places, room - 2));
    map.at = [Math.min(map.at[0], map.lines.length), Math.min(map.at[1], map.columns.length)];
    top.replaceChildren(mapControls(page, places, by), mapLegend(places, by));
    gridPart.replaceChildren(...[map.title, map.grid].filter(Boolean), h("p", { class: "note" }, mapNote(places, map.columns)));
    gridPart.style.width = `${Math.min(room, Math.max(map.width + 4, 320))}px`;
    watchMap(map, places, tip);
    if (hadFocus) map.grid.focus();
  };
  const drawPlot = () => {
    const room = width >= 900 ? width - gridPart.offsetWidth - 24 : width;
    plotPart.replaceChildren(depthPlot(places, room, tip));
  };
  const draw = () => {
    tip.hide();
    drawMap();
    drawPlot();
  };
  state.on(MAP_KEYS, () => width > 0 && draw());
  state.on(PLOT_KEYS, () => width > 0 && drawPlot());
  new ResizeObserver(() => {
    if (desk.clientWidth === width || desk.clientWidth === 0) return;
    width = desk.clientWidth;
    draw();
  }).observe(desk);
  return h("div", { class: "map" }, h("h2", {}, "Where the runs differ"), top, desk, tip.box);
}
