// SPDX-License-Identifier: Apache-2.0
// Where and how one pair of tensors differs: map, profiles, histograms, worst elements.
import { axisName, jsonNumber, openPicture, pooled, rangeText } from "./cells.js";
import { barChart, evenPlaces, legend, sizedBox } from "./charts.js";
import { h, smallTable } from "./dom.js";
import { counted, number } from "./format.js";
import { heatMap } from "./heat.js";
import { state } from "./state.js";

/** "[0, 3, 17]", and which value of an element that has several. */
function elementText({ index, part }) {
  return `[${index.join(", ")}]${part === undefined ? "" : ` part ${part}`}`;
}

function value(given) {
  return number(jsonNumber(given));
}

/** "12 %" of a part of a whole. */
function percent(part) {
  return `${number(Number((100 * part).toPrecision(3)))} %`;
}

function choice(label, options, chosen, onchange) {
  const select = h("select", { onchange: () => onchange(Number(select.value)) }, options.map(([given, text]) => h("option", { value: given, selected: given === chosen }, text)));
  return h("label", { class: "choice" }, label, select);
}

/** The map with what the reader chooses: two axes and how cells are joined. */
function heatSection(picture, pointed) {
  const last = picture.axes.length - 1;
  const chosen = { rowAxis: last - 1, columnAxis: last, measure: "max" };
  const names = picture.axes.map((axis, place) => [place, `axis ${axis} (${picture.sizes[place]})`]);
  const place = h("div", {});
  const controls = h("div", { class: "choices" });
  const show = () => {
    place.replaceChildren(heatMap(picture, { ...chosen, index: pointed.index }));
  };
  const set = (key) => (given) => {
    const other = key === "rowAxis" ? "columnAxis" : "rowAxis";
    if (chosen[other] === given) chosen[other] = chosen[key];
    chosen[key] = given;
    controls.replaceChildren(...chooser());
    show();
  };
  const chooser = () => [
    ...(last > 0 ? [choice("down", names, chosen.rowAxis, set("rowAxis")), choice("across", names, chosen.columnAxis, set("columnAxis"))] : []),
    choice("each cell shows", [[0, "the largest"], [1, "the RMS"]], chosen.measure === "max" ? 0 : 1, (given) => {
      chosen.measure = given === 0 ? "max" : "rms";
      show();
    }),
  ];
  controls.append(...chooser());
  pointed.listeners.push(show);
  show();
  const joined = last > 1 ? " The other axes are joined." : "";
  return [h("h3", {}, "Where it differs"), h("p", { class: "note" }, `|mine - golden| by place; each cell is one element or a block of them.${joined}`), controls, place];
}

/** Bars of the largest error along one axis, the RMS as an outline. */
function profile(picture, place, pointed) {
  const draw = (width) => {
    const most = Math.min(256, width - 64);
    const largest = pooled(picture, -1, place, "max", most);
    const rms = pooled(picture, -1, place, "rms", most).values;
    const axis = largest.columns;
    const ticks = d3.ticks(0, axis.size - 1, Math.max(2, Math.floor(width / 70))).filter(Number.isInteger);
    const worst = d3.maxIndex(largest.values);
    return barChart(width, {
      name: `Largest difference along ${axisName(axis)}: ${number(largest.values[worst])} at ${rangeText(axis, worst)}`,
      values: [...largest.values],
      outline: [...rms],
      ticks: ticks.map((at) => [at / axis.width + Math.min(0.5, axis.bins / 2), String(at)]),
      label: `${axisName(axis)} (${counted(axis.size, "position")})`,
      format: number,
      titles: (bin) => `${axisName(axis)} ${rangeText(axis, bin)}: largest ${number(largest.values[bin])}, RMS ${number(rms[bin])}`,
      marked: pointed.index ? [largest.cellOf(pointed.index)[1]] : [],
    });
  };
  return sizedBox({ class: "profile" }, draw);
}

function profileSection(picture, pointed) {
  const place = h("div", {});
  const show = () => place.replaceChildren(...picture.axes.map((_, i) => profile(picture, i, pointed)));
  pointed.listeners.push(show);
  show();
  return [h("h3", {}, "Along each axis"), legend([["fill", "largest |mine - golden|"], ["line", "root mean square"]]), place];
}

/** Words for what no bin can hold. */
function uncounted(name, histogram) {
  const parts = [];
  if (histogram.nan > 0) parts.push(`${histogram.nan} NaN`);
  if (histogram.inf > 0) parts.push(`${histogram.inf} infinite`);
  return parts.length > 0 ? `${name}: ${parts.join(", ")}` : null;
}

/** Both sides over the same bins: golden filled, mine as an outline. */
function valueSection(details) {
  const { golden_histogram: golden, mine_histogram: mine, sampled } = details;
  const edges = golden.edges.map(jsonNumber);
  const share = (counts) => counts.map((count) => count / Math.max(1, sampled));
  const range = (i) => `${number(edges[i])} to ${number(edges[i + 1])}`;
  const draw = (width) =>
    barChart(width, {
      name: `Values of golden and mine from ${number(edges[0])} to ${number(edges.at(-1))}`,
      values: share(golden.counts),
      outline: share(mine.counts),
      ticks: evenPlaces(golden.counts.length, Math.max(2, Math.floor(width / 80))).map((i) => [i, number(edges[i])]),
      label: "value",
      format: percent,
      titles: (i) => `${range(i)}: golden ${golden.counts[i]}, mine ${mine.counts[i]}`,
    });
  const rest = [uncounted("golden", golden), uncounted("mine", mine)].filter(Boolean);
  return [
    h("h3", {}, "Values"),
    h("p", { class: "note" }, "Share of the values of each side by their size."),
    legend([["fill", "golden"], ["line", "mine"]]),
    sizedBox({ class: "histogram" }, draw),
    rest.length > 0 ? h("p", { class: "note" }, `Outside the bars: ${rest.join("; ")}`) : null,
  ];
}

/** How many representable numbers lie between mine and golden. */
function ulpSection(details) {
  const { ulp, sampled } = details;
  if (!ulp) return [];
  const edges = ulp.edges.map(jsonNumber);
  const name = (i) => {
    if (i === edges.length - 1) return `${number(edges[i])} or more`;
    return edges[i + 1] - edges[i] <= 1 ? number(edges[i]) : `${number(edges[i])} to ${number(edges[i + 1] - 1)}`;
  };
  const draw = (width) =>
    barChart(width, {
      name: `Error in units in the last place of ${ulp.type}. ${ulp.counts.map((count, i) => (count > 0 ? `${name(i)}: ${percent(count / sampled)}` : null)).filter(Boolean).join("; ")}`,
      values: ulp.counts.map((count) => count / Math.max(1, sampled)),
      ticks: evenPlaces(edges.length - 1, Math.max(2, Math.floor(width / 60))).map((i) => [i + 0.5, `${number(edges[i])}${i === edges.length - 1 ? "+" : ""}`]),
      label: `error in ULP of ${ulp.type}`,
      format: percent,
      titles: (i) => `${name(i)} ULP: ${ulp.counts[i]} (${percent(ulp.counts[i] / sampled)})`,
    });
  const note = h("p", { class: "note" }, `Share of the values by how many steps of ${ulp.type} lie between mine and golden: 0 is equal, 1 the next number that the type has.`);
  return [h("h3", {}, "Error in units of the last place"), note, sizedBox({ class: "histogram" }, draw)];
}

/** Values around an element, both sides. */
function around(one, axis) {
  const { first, golden, mine } = one.around;
  const place = one.index[axis] ?? 0;
  const heads = [`axis ${axis}`, ...golden.map((_, i) => (first + i === place ? h("strong", {}, `${first + i} ◂`) : String(first + i)))];
  const difference = golden.map((given, i) => number(jsonNumber(mine[i]) - jsonNumber(given)));
  return smallTable(`around ${elementText(one)}`, heads, [["golden", ...golden.map(value)], ["mine", ...mine.map(value)], ["mine - golden", ...difference]]);
}

/** The worst elements. The chosen one is pointed at everywhere. */
function worstSection(details, pointed) {
  const { worst } = details;
  if (worst.length === 0) return [];
  const near = h("div", { class: "near" });
  const buttons = worst.map((one, i) => h("button", { class: "link", onclick: () => pointed.choose(i) }, elementText(one)));
  const show = () => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === pointed.element)));
    near.replaceChildren(...(pointed.index ? [around(worst[pointed.element], details.axes.at(-1))] : []));
  };
  pointed.listeners.push(show);
  show();
  const rows = worst.map((one, i) => [buttons[i], value(one.golden), value(one.mine), value(one.error), value(one.ulp)]);
  const table = smallTable("largest first", ["element", "golden", "mine", "|mine - golden|", "ULP"], rows);
  const note = h("p", { class: "note" }, "Choose one: it is ringed in the map, and its neighbours stand below.");
  return [h("h3", {}, "Worst elements"), note, h("div", { class: "worst" }, table), near];
}

let shownPointer = null;
state.on(["element"], () => shownPointer?.refresh());

/** Which of the worst elements is pointed at: its place stands in the address. */
function pointer(details) {
  shownPointer = {
    listeners: [],
    get element() {
      const text = state.get("element");
      return /^\d+$/.test(text) && Number(text) < details.worst.length ? Number(text) : null;
    },
    get index() {
      return this.element === null ? null : details.worst[this.element].index;
    },
    choose(element) {
      state.set({ element: element === this.element ? null : element }, true);
    },
    refresh() {
      for (const call of this.listeners) call();
    },
  };
  return shownPointer;
}

/** Everything that the page holds about where this pair differs. */
export function pictureSection(details) {
  const picture = openPicture(details);
  const pointed = pointer(details);
  const share = details.sampled < details.values ? `Histograms are of ${counted(details.sampled, "value")} out of ${details.values.toLocaleString("en")}, evenly spread; all else is of every value.` : null;
  return h("div", { class: "picture" },
    details.shape_of_error ? h("p", { class: "shape-of-error" }, "The difference is ", h("strong", {}, details.shape_of_error), ".") : null,
    worstSection(details, pointed),
    heatSection(picture, pointed),
    profileSection(picture, pointed),
    ulpSection(details),
    valueSection(details),
    share ? h("p", { class: "note" }, share) : null);
}
