// SPDX-License-Identifier: Apache-2.0
// Small charts of one tensor: bars that stand side by side, an outline over them, an axis below.
import { h, s } from "./dom.js";

const CHART = { left: 52, right: 12, top: 8, bottom: 34 };

/** A box whose drawing is made again when its width changes: draw(width) gives one element or a list. */
export function sizedBox(attributes, draw) {
  const box = h("div", attributes);
  let width = 0;
  const watcher = new ResizeObserver(() => {
    const now = Math.floor(box.clientWidth);
    if (now === width || now === 0) return;
    width = now;
    box.replaceChildren(...[draw(width)].flat());
  });
  watcher.observe(box);
  return box;
}

/** What stands for what: [[class of the sign, words], ...] */
export function legend(entries) {
  return h("p", { class: "legend" }, entries.map(([sign, words]) => h("span", {}, h("span", { class: `sign ${sign}` }), words)));
}

/** "M x y H ..." along the tops of bars of equal width. */
function outlinePath(values, x, y) {
  const steps = values.map((value, i) => `${i === 0 ? "M" : "L"}${x(i)},${y(value)}H${x(i + 1)}`);
  return steps.join("");
}

function valueAxis(y, format, left) {
  const ticks = y.ticks(3);
  return s("g", { class: "axis", "aria-hidden": "true" }, ticks.map((tick) => [
    s("line", { x1: left, x2: y.right, y1: y(tick), y2: y(tick), class: "grid" }),
    s("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, format(tick)),
  ]));
}

function placeAxis(ticks, x, y, right, label) {
  const anchor = (at) => (x(at) > right - 24 ? "end" : x(at) < CHART.left + 24 ? "start" : "middle");
  return s("g", { class: "axis", "aria-hidden": "true" },
    s("line", { x1: CHART.left, x2: right, y1: y, y2: y }),
    ticks.map(([at, text]) => [
      s("line", { x1: x(at), x2: x(at), y1: y, y2: y + 4 }),
      s("text", { x: x(at), y: y + 15, "text-anchor": anchor(at) }, text),
    ]),
    s("text", { x: (CHART.left + right) / 2, y: y + 30, "text-anchor": "middle", class: "quiet" }, label));
}

/**
 * Bars of equal width, and another list as an outline.
 * name      what a screen reader says of the whole
 * values    heights of the bars; Infinity: not finite, a hatched bar up to the top
 * outline   heights of the outline, or null
 * ticks     [[place, text], ...]; place 2 is the left edge of bar 2
 * label     of the axis of places
 * format    of heights
 * titles    words for each bar
 * marked    bars that are pointed at
 */
export function barChart(width, { name, values, outline = null, ticks, label, format, titles, marked = [], height = 130 }) {
  const right = width - CHART.right;
  const bottom = height - CHART.bottom;
  const finite = [...values, ...(outline ?? [])].filter(Number.isFinite);
  const x = d3.scaleLinear([0, values.length], [CHART.left, right]);
  const y = d3.scaleLinear([0, Math.max(d3.max(finite) ?? 0, 0) || 1], [bottom, CHART.top]);
  y.right = right;
  const top = (value) => (Number.isFinite(value) ? y(value) : CHART.top);
  const bars = values.map((value, i) =>
    s("rect", { x: x(i), y: top(value), width: Math.max(x(i + 1) - x(i) - (x(1) - x(0) > 4 ? 1 : 0), 0.5), height: bottom - top(value), class: Number.isFinite(value) ? "bar" : "bar broken" }));
  const hits = values.map((value, i) =>
    s("rect", { x: x(i), y: CHART.top, width: x(i + 1) - x(i), height: bottom - CHART.top, class: "hit" }, s("title", {}, titles(i))));
  return s("svg", { width, height, class: "chart", role: "img", "aria-label": name },
    valueAxis(y, format, CHART.left),
    bars,
    outline ? s("path", { d: outlinePath(outline, x, top), class: "outline" }) : null,
    marked.map((i) => s("path", { d: `M${x(i + 0.5)},${CHART.top + 2}l-4,-7h8z`, class: "pointer" })),
    placeAxis(ticks, x, bottom, right, label),
    hits);
}

/** At most `most` of the places 0 ... count, evenly. */
export function evenPlaces(count, most) {
  const step = Math.max(1, Math.ceil(count / most));
  return d3.range(0, count + 1, step);
}
