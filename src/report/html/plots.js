// SPDX-License-Identifier: Apache-2.0
// Error against depth: one step's places in execution order, with what rounding explains and the own errors.
import { h, s } from "./dom.js";
import { number } from "./format.js";
import { LEVEL, MARK, stepName } from "./places.js";
import { state } from "./state.js";
import { rowTip } from "./tip.js";

const DEPTH = { height: 340, left: 56, right: 14, top: 22, bottom: 44 };

// ---- what is plotted ----

/** Step and rank of the plot: the reader's, else those of the first bad one, else the first. */
function depthChoice(places) {
  const steps = places.steps.filter((step) => stepName(step) !== "weights");
  const wanted = [state.get("step"), String(places.first?.step ?? "")];
  const step = wanted.map((text) => steps.find((one) => String(one) === text)).find((one) => one !== undefined) ?? steps[0] ?? places.steps[0];
  const wantedRanks = [state.get("rank"), String(places.first?.rank ?? "")];
  const rank = wantedRanks.map((text) => places.ranks.find((one) => String(one) === text)).find((one) => one !== undefined) ?? places.ranks[0];
  return { steps: steps.length > 0 ? steps : places.steps, step, rank };
}

/** The worst output of each place, or its worst tensor where no output was compared. */
function depthPoints(places, { step, rank }) {
  const { judgements } = places;
  const { role } = judgements.columns;
  const points = [];
  for (const place of places.places) {
    const rows = place.rows.filter((row) => judgements.step[row] === step && judgements.rank(row) === rank);
    const outputs = rows.filter((row) => role.get(row) === "output");
    const row = judgements.worst(outputs.length > 0 ? outputs : rows);
    if (row !== null) points.push({ place, row, error: judgements.error(row), floor: judgements.explained(row), own: judgements.own(row) });
  }
  return points;
}

/** [[place on the axis, text]]: where layers begin; without layers, numbers of places. */
function layerTicks(points, width) {
  const starts = [];
  let last = null;
  points.forEach(({ place }, i) => {
    let outermost = place;
    while (outermost.parent?.parent) outermost = outermost.parent;
    const number = outermost.children && !outermost.isPart ? /\d+/.exec(outermost.name)?.[0] : undefined;
    if (number !== undefined && outermost !== last) starts.push([i, number]);
    last = outermost;
  });
  if (starts.length < 2) return { isLayers: false, ticks: d3.ticks(1, points.length, 8).filter(Number.isInteger).map((tick) => [tick - 1, String(tick)]) };
  const apart = (26 / width) * points.length; // places between two numbers that can be read
  const ticks = [];
  for (const start of starts) if (ticks.length === 0 || start[0] - ticks.at(-1)[0] >= apart) ticks.push(start);
  return { isLayers: true, ticks };
}

// ---- the drawing ----

function depthScales(points, width) {
  const positive = points.flatMap(({ error, floor, own }) => [error, floor, own]).filter((value) => value > 0 && value < Infinity);
  const least = 10 ** Math.floor(Math.log10((d3.min(positive) ?? 1e-3) / 1.5));
  const most = 10 ** Math.ceil(Math.log10((d3.max(positive) ?? 1) * 1.05));
  const x = d3.scaleLinear([-0.5, Math.max(points.length - 0.5, 0.5)], [DEPTH.left, width - DEPTH.right]);
  // Below the least value of the axis there is room for what is equal.
  const y = d3.scaleLog([least, Math.max(most, least * 10)], [DEPTH.height - DEPTH.bottom - 14, DEPTH.top]);
  const bottom = DEPTH.height - DEPTH.bottom;
  return { x, y, bottom, height: (value) => (value > 0 ? Math.max(y(Math.min(value, y.domain()[1])), DEPTH.top) : bottom) };
}

function powerText(value) {
  const power = Math.round(Math.log10(value));
  return power >= -3 && power <= 3 ? String(10 ** power) : `1e${power}`;
}

function depthAxes(points, scales, width, isOrdered) {
  const { x, y, bottom } = scales;
  const { isLayers, ticks } = layerTicks(points, width - DEPTH.left - DEPTH.right);
  const decades = d3.range(Math.round(Math.log10(y.domain()[0])), Math.round(Math.log10(y.domain()[1])) + 1).map((power) => 10 ** power);
  const stride = Math.ceil(decades.length / 9);
  const label = `${isOrdered ? "execution order" : "order of the report"}${isLayers ? "; numbers are layers" : ""}`;
  return s("g", { class: "axis", "aria-hidden": "true" },
    decades.filter((_, i) => i % stride === 0).map((value) => [
      s("line", { class: "guide", x1: DEPTH.left, x2: width - DEPTH.right, y1: y(value), y2: y(value) }),
      s("text", { x: DEPTH.left - 6, y: y(value) + 4, "text-anchor": "end" }, powerText(value)),
    ]),
    points.some(({ error }) => error === 0) ? s("text", { x: DEPTH.left - 6, y: bottom + 3, "text-anchor": "end" }, "equal") : null,
    s("line", { x1: DEPTH.left, x2: width - DEPTH.right, y1: bottom, y2: bottom }),
    ticks.map(([at, text]) => [
      s("line", { x1: x(at), x2: x(at), y1: bottom, y2: bottom + 4 }),
      s("text", { x: x(at), y: bottom + 16, "text-anchor": "middle" }, text),
    ]),
    s("text", { x: (DEPTH.left + width - DEPTH.right) / 2, y: bottom + 36, "text-anchor": "middle" }, label),
    s("text", { x: 4, y: 12 }, "relative L2 distance from golden"));
}

function depthFloor(points, { x, bottom, height }) {
  const area = d3.area().curve(d3.curveStepAfter).x(([at]) => x(at)).y0(bottom).y1(([, floor]) => height(floor));
  const floors = points.map(({ floor }, i) => [i - 0.5, floor ?? 0]);
  if (floors.length > 0) floors.push([points.length - 0.5, floors.at(-1)[1]]);
  return s("path", { class: "floor", d: area(floors) });
}

function depthLine(points, { x, height }) {
  const line = d3.line().defined(({ error }) => error > 0 && error < Infinity).x((_, i) => x(i)).y(({ error }) => height(error));
  return s("path", { class: "total", d: line(points) });
}

function depthBars(points, { x, bottom, height }, judgements) {
  const width = Math.max(1, Math.min(10, (x(1) - x(0)) * 0.6));
  const bars = points.map((point, i) => ({ ...point, i })).filter(({ own }) => own > 0);
  const path = (list) => list.map(({ i, own }) => `M${(x(i) - width / 2).toFixed(1)},${bottom}V${height(own).toFixed(1)}h${width.toFixed(1)}V${bottom}Z`).join("");
  const isWrong = ({ row }) => judgements.mark[row] === MARK.wrong;
  return [
    s("path", { class: "own", d: path(bars.filter((bar) => !isWrong(bar))) }),
    s("path", { class: "own wrong", d: path(bars.filter(isWrong)) }),
  ];
}

// Equal values at the bottom, NaN at the top, what is wrong by itself on the line.
function depthSigns(points, { x, bottom, height }, judgements) {
  const at = (i, y, text, kind) => s("text", { class: `mark ${kind}`, x: x(i), y: y + 4, "text-anchor": "middle" }, text);
  const equal = points.flatMap(({ error }, i) => (error === 0 ? [`M${(x(i) - 1.5).toFixed(1)},${bottom}h3`] : []));
  const others = points.flatMap(({ row, error }, i) => {
    if (judgements.level.all[row] === LEVEL.broken) return [at(i, DEPTH.top + 6, "✕", "broken")];
    return judgements.mark[row] === MARK.wrong ? [at(i, height(error), "◆", "wrong")] : [];
  });
  return [s("path", { class: "equal", d: equal.join("") }), others];
}

function depthFirst(points, { x, bottom }, places, width) {
  const i = points.findIndex(({ place }) => place === places.first?.place);
  if (i < 0) return null;
  const isRight = x(i) > width * 0.6;
  return s("g", { class: "first-line" },
    s("line", { x1: x(i), x2: x(i), y1: DEPTH.top - 4, y2: bottom }),
    s("text", { x: x(i) + (isRight ? -6 : 6), y: DEPTH.top + 6, "text-anchor": isRight ? "end" : "start" }, isRight ? "first bad →" : "← first bad"));
}

/** The facts of the plot in words. */
function depthSummary(points, places, stepText) {
  const { judgements } = places;
  const worst = judgements.worst(points.map(({ row }) => row));
  const beyond = points.filter(({ row }) => judgements.level.all[row] >= LEVEL.beyond).length;
  const first = places.first ? ` ${places.first.text}.` : "";
  return `Error against depth, ${stepText}: ${points.length} places, ${beyond} beyond rounding.${first} Worst: ${judgements.name(worst)}, ${number(judgements.error(worst)) || "not known"}. Arrow keys go through the places, Enter opens one.`;
}

// ---- all of it ----

function depthSelect(name, values) {
  const options = values.map((value) => h("option", { value: String(value) }, stepName(value)));
  return h("select", { name, "aria-label": `${name} of the plot`, onchange: (event) => state.set({ [name]: event.target.value }) }, options);
}

function depthLegend(knowsOwn) {
  const entry = (kind, words) => h("span", { class: "entry" }, h("span", { class: `depth-key ${kind}` }), words);
  return h("div", { class: "map-legend" }, entry("total", "error"), entry("floor", "rounding explains this much"),
    knowsOwn ? [entry("own", "own error"), entry("own wrong", "own error, wrong by itself")] : null);
}

/** The plot of one step, with its choice of steps and its legend. */
export class DepthPlot {
  constructor(places, tip) {
    Object.assign(this, { places, tip, points: [], at: null });
    const { steps } = depthChoice(places);
    this.selects = { step: depthSelect("step", steps), rank: depthSelect("rank", places.ranks) };
    const shown = [steps.length > 1 && ["step ", this.selects.step], places.ranks.length > 1 && ["rank ", this.selects.rank]].filter(Boolean);
    [this.heading, this.legend] = [h("h3", {}), h("div", {})];
    this.said = h("p", { class: "unseen", role: "status" });
    this.drawing = s("svg", { class: "depth", height: DEPTH.height, role: "img", tabindex: 0 });
    this.listen();
    this.element = h("div", {}, this.heading, h("div", { class: "map-controls" }, shown.map((part) => h("label", {}, part))), this.legend, this.drawing, this.said);
  }

  listen() {
    const on = (name, answer) => this.drawing.addEventListener(name, answer);
    on("pointermove", (event) => this.show(this.pointAt(event)));
    on("pointerleave", () => this.hide());
    on("blur", () => this.hide());
    on("click", (event) => this.open(this.pointAt(event)));
    on("keydown", (event) => this.answerKey(event));
  }

  draw(width) {
    const choice = depthChoice(this.places);
    const manyRanks = this.places.ranks.length > 1;
    const stepText = stepName(choice.step) === "weights" ? "weights" : `step ${choice.step}${manyRanks ? `, rank ${choice.rank}` : ""}`;
    this.points = depthPoints(this.places, choice);
    this.at = Math.max(0, this.points.findIndex(({ place }) => place === this.places.first?.place));
    this.heading.textContent = `Error against depth, ${stepText}`;
    for (const name of ["step", "rank"]) this.selects[name].value = String(choice[name]);
    this.legend.replaceChildren(this.points.length > 0 ? depthLegend(this.points.some(({ own }) => own > 0)) : h("p", { class: "note" }, "No tensor of it was compared."));
    this.drawing.toggleAttribute("hidden", this.points.length === 0);
    if (this.points.length > 0) this.fill(width, stepText);
  }

  fill(width, stepText) {
    const { points, places } = this;
    const scales = depthScales(points, width);
    this.scales = scales;
    this.cursor = s("line", { class: "cursor", y1: DEPTH.top, y2: scales.bottom, visibility: "hidden" });
    this.drawing.setAttribute("width", width);
    this.drawing.setAttribute("aria-label", depthSummary(points, places, stepText));
    const parts = [
      depthFloor(points, scales), depthAxes(points, scales, width, places.isOrdered), depthBars(points, scales, places.judgements),
      depthLine(points, scales), depthFirst(points, scales, places, width), depthSigns(points, scales, places.judgements), this.cursor,
    ];
    this.drawing.replaceChildren(...parts.flat(Infinity).filter(Boolean));
  }

  pointAt(event) {
    const at = Math.round(this.scales.x.invert(event.clientX - this.drawing.getBoundingClientRect().left));
    return Math.max(0, Math.min(this.points.length - 1, at));
  }

  show(at) {
    this.at = at;
    const { row, place } = this.points[at];
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.scales.x(at));
    this.cursor.setAttribute("visibility", "visible");
    this.tip.show(this.cursor, rowTip(this.places.judgements, row, 1, place.name || "(model)"));
  }

  hide() {
    this.cursor?.setAttribute("visibility", "hidden");
    this.tip.hide();
  }

  open(at) {
    this.hide();
    state.set({ row: this.points[at].row });
  }

  answerKey(event) {
    const { at, points } = this;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: points.length - 1 }[event.key];
    if (event.key === "Escape") return this.hide();
    if (event.key === "Enter" || event.key === " ") this.open(at);
    else if (to === undefined) return;
    else {
      this.show(Math.max(0, Math.min(points.length - 1, to)));
      this.said.textContent = `${points[this.at].place.name || "(model)"}: error ${number(points[this.at].error) || "not known"}`;
    }
    event.preventDefault();
  }
}
