// SPDX-License-Identifier: Apache-2.0
// Where two tensors differ: cells of a picture joined over two axes, as a map in colours.
import { sizedBox } from "./charts.js";
import { h, s } from "./dom.js";
import { number } from "./format.js";
import { axisName, pooled, rangeText } from "./cells.js";

const HEAT_LEFT = 52;
const HEAT_COLOURS = {
  light: ["#fdf0d0", "#fdbb6b", "#e3574a", "#8c1d5b", "#2d0a3f"],
  dark: ["#33204f", "#7b2a7e", "#d6485a", "#fca35d", "#fff4cf"],
};
const SAME_COLOUR = { light: "#e4e9ee", dark: "#2b3138" };
const BROKEN_COLOUR = { light: "#0550ae", dark: "#79b8ff" };
const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");

function scheme() {
  return darkScheme.matches ? "dark" : "light";
}

/** Colour of an error: lighter or darker by its logarithm, from the smallest to the largest that there is. */
function heatScale(values) {
  const known = values.filter((value) => value > 0 && Number.isFinite(value));
  const [low, high] = known.length > 0 ? d3.extent(known) : [1, 1];
  const place = low < high ? d3.scaleLog([low, high], [0, 1]) : () => 1;
  const paint = d3.interpolateRgbBasis(HEAT_COLOURS[scheme()]);
  const colour = (value) => {
    if (value === 0) return SAME_COLOUR[scheme()];
    return Number.isFinite(value) ? paint(place(value)) : BROKEN_COLOUR[scheme()];
  };
  return { low, high, colour, paint, isEmpty: known.length === 0, hasSame: values.includes(0), hasBroken: values.includes(Infinity) };
}

/** Ticks that can be read: powers of ten inside, or the two ends. */
function heatTicks(scale) {
  const powers = d3.range(Math.ceil(Math.log10(scale.low)), Math.floor(Math.log10(scale.high)) + 1).map((power) => 10 ** power);
  const thinned = powers.filter((_, i) => i % Math.ceil(powers.length / 4) === 0);
  return thinned.length >= 2 ? thinned : [scale.low, scale.high];
}

/** "1e-8" of powers of ten, which number() gives digits that say nothing. */
function tickText(tick) {
  return Number.isInteger(Math.log10(tick)) && tick < 1e-3 ? `1e${Math.log10(tick)}` : number(tick);
}

function swatch(colour, words, sign = "") {
  return h("span", { class: "swatch" }, h("span", { class: "sign", style: `background: ${colour}` }, sign), words);
}

function heatLegend(scale, words) {
  const width = 240;
  const parts = [];
  if (scale.hasSame) parts.push(swatch(scale.colour(0), "no difference"));
  if (!scale.isEmpty) {
    const at = scale.low < scale.high ? d3.scaleLog([scale.low, scale.high], [14, width - 26]) : () => width / 2;
    const bands = d3.range(64).map((i) => s("rect", { x: 14 + (i * (width - 40)) / 64, y: 0, width: (width - 40) / 64 + 0.5, height: 10, fill: scale.paint(scale.low < scale.high ? i / 63 : 1) }));
    const ticks = scale.low < scale.high ? heatTicks(scale) : [scale.high];
    parts.push(s("svg", { width, height: 28, role: "img", "aria-label": `colours from ${number(scale.low)} to ${number(scale.high)}` },
      bands, ticks.map((tick) => [s("line", { x1: at(tick), x2: at(tick), y1: 10, y2: 14 }), s("text", { x: at(tick), y: 25, "text-anchor": "middle" }, tickText(tick))])));
  }
  if (scale.hasBroken) parts.push(swatch(scale.colour(Infinity), "NaN or infinity on one side only", "×"));
  return h("div", { class: "heat-legend" }, h("span", {}, words), parts);
}

function paintCells(canvas, plane, scale, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  const edge = (i, count, size) => Math.round((i * size) / count);
  for (let row = 0; row < plane.rows.bins; row++) {
    const top = edge(row, plane.rows.bins, canvas.height);
    const tall = edge(row + 1, plane.rows.bins, canvas.height) - top;
    for (let column = 0; column < plane.columns.bins; column++) {
      const left = edge(column, plane.columns.bins, canvas.width);
      pen.fillStyle = scale.colour(plane.values[row * plane.columns.bins + column]);
      pen.fillRect(left, top, edge(column + 1, plane.columns.bins, canvas.width) - left, tall);
    }
  }
}

/** Words for a cell: where, how much. */
function cellText(plane, row, column, measure) {
  const value = plane.values[row * plane.columns.bins + column];
  const places = [plane.rows, plane.columns].map((axis, i) => (axis.axis < 0 ? null : `${axisName(axis)} ${rangeText(axis, i === 0 ? row : column)}`));
  const size = value === Infinity ? "NaN or infinity on one side only" : value === 0 ? "no difference" : `${measure} ${number(value)}`;
  return `${places.filter(Boolean).join(", ")}: ${size}`;
}

/** Ticks of an axis: positions in the tensor at pixels. */
function tensorTicks(axis, length, room) {
  const scale = d3.scaleLinear([0, axis.size], [0, length]);
  const ticks = scale.ticks(Math.max(2, Math.floor(length / room))).filter((tick) => Number.isInteger(tick) && tick < axis.size);
  return ticks.map((tick) => [tick, scale(tick + Math.min(0.5, axis.width / 2))]);
}

function heatAxes(plane, width, height) {
  const across = tensorTicks(plane.columns, width, 60).map(([tick, at]) => s("text", { x: HEAT_LEFT + at, y: height + 16, "text-anchor": "middle" }, String(tick)));
  const down = plane.rows.axis < 0 ? [] : tensorTicks(plane.rows, height, 30).map(([tick, at]) => s("text", { x: HEAT_LEFT - 6, y: at + 4, "text-anchor": "end" }, String(tick)));
  const rowLabel = plane.rows.axis < 0 ? null : s("text", { class: "quiet", "text-anchor": "middle", transform: `translate(11 ${height / 2}) rotate(-90)` }, axisName(plane.rows));
  return [across, down, rowLabel, s("text", { class: "quiet", "text-anchor": "middle", x: HEAT_LEFT + width / 2, y: height + 32 }, axisName(plane.columns))];
}

/** A ring around a cell, large enough to be seen. */
function cellRing(plane, [row, column], width, height, name) {
  const wide = width / plane.columns.bins;
  const tall = height / plane.rows.bins;
  const size = [Math.max(wide, 9) + 3, Math.max(tall, 9) + 3];
  const left = HEAT_LEFT + (column + 0.5) * wide - size[0] / 2;
  const top = (row + 0.5) * tall - size[1] / 2;
  const ring = { x: left, y: top, width: size[0], height: size[1], rx: 3 };
  return s("g", { class: name, "data-row": row, "data-column": column }, s("rect", { ...ring, class: "halo" }), s("rect", { ...ring, class: "ring" }));
}

/** Moves the cursor by keys and by the pointer; tell(cell) is called with the cell, or null when it leaves. */
function followCursor(plot, plane, width, height, start, tell) {
  let at = start;
  const go = (row, column) => {
    at = [Math.min(Math.max(row, 0), plane.rows.bins - 1), Math.min(Math.max(column, 0), plane.columns.bins - 1)];
    tell(at);
  };
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - HEAT_LEFT, event.clientY - box.top];
    if (x < 0 || y < 0 || x >= width || y >= height) return tell(null);
    go(Math.floor((y * plane.rows.bins) / height), Math.floor((x * plane.columns.bins) / width));
  });
  plot.addEventListener("pointerleave", () => tell(null));
  plot.addEventListener("blur", () => tell(null));
  plot.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    go(at[0] + move[0], at[1] + move[1]);
  });
}

/** The largest cell, in words. */
function heatName(plane, measure) {
  const worst = d3.maxIndex(plane.values);
  const columns = plane.columns.bins;
  return `Heat map of the difference. Largest: ${cellText(plane, Math.floor(worst / columns), worst % columns, measure)}. Arrow keys move over the cells.`;
}

/**
 * The map of a picture.
 * rowAxis, columnAxis   places in picture.axes; rowAxis -1: one row
 * measure               "max" or "rms"
 * index                 element that is pointed at, one number for each axis of the tensor; null: none
 */
export function heatMap(picture, { rowAxis, columnAxis, measure, index }) {
  const words = measure === "max" ? "largest |mine - golden|" : "root mean square of mine - golden";
  const draw = (boxWidth) => {
    const width = boxWidth - HEAT_LEFT - 4;
    const plane = pooled(picture, rowAxis, columnAxis, measure, Math.min(256, width));
    const height = Math.max(24, plane.rows.bins * Math.max(1, Math.min(18, Math.floor(240 / plane.rows.bins))));
    const scale = heatScale(plane.values);
    const canvas = h("canvas", { "aria-hidden": "true", style: `left: ${HEAT_LEFT}px` });
    paintCells(canvas, plane, scale, width, height);
    const cursor = s("g", {});
    const pointed = index ? plane.cellOf(index) : null;
    const overlay = s("svg", { width: boxWidth, height: height + 38, "aria-hidden": "true" }, heatAxes(plane, width, height), pointed ? cellRing(plane, pointed, width, height, "pointed") : null, cursor);
    const readout = h("p", { class: "readout", role: "status" });
    const rest = pointed ? `Ringed: ${cellText(plane, ...pointed, words)}` : "Point at a cell, or move with the arrow keys.";
    readout.textContent = rest;
    const plot = h("div", { class: "heat-plot", tabindex: 0, role: "application", "aria-label": heatName(plane, words), style: `height: ${height + 38}px` }, canvas, overlay);
    followCursor(plot, plane, width, height, pointed ?? [0, -1], (cell) => {
      cursor.replaceChildren(...(cell ? [cellRing(plane, cell, width, height, "cursor")] : []));
      readout.textContent = cell ? cellText(plane, ...cell, words) : rest;
    });
    return [plot, readout, heatLegend(scale, words)];
  };
  const box = sizedBox({ class: "heat" }, draw);
  const again = () => (box.isConnected ? box.clientWidth > 0 && box.replaceChildren(...draw(Math.floor(box.clientWidth))) : darkScheme.removeEventListener("change", again));
  darkScheme.addEventListener("change", again);
  return box;
}
