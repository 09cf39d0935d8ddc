// SPDX-License-Identifier: Apache-2.0
// The panel of the open row: one pair of tensors, all that the page holds about it.
import { blobJson, hasBlob } from "./data.js";
import { copyText, facts, fold, h, smallTable } from "./dom.js";
import { number, toneOf } from "./format.js";
import { EQUALITY_MEANING, explainedOf, JUDGEMENT_MEANING } from "./judgement.js";
import { pictureSection } from "./picture.js";
import { state } from "./state.js";

const NO_STEP = -1; // of weights

const METRICS = [
  ["relative L2 distance", "relative_euclidean_distance"],
  ["one rounding explains", "rounding"],
  ["cosine similarity", "cosine_similarity"],
  ["largest |mine - golden|", "max_absolute_error"],
  ["mean |mine - golden|", "mean_absolute_error"],
  ["largest |mine - golden| / |golden|", "max_relative_error"],
  ["mean of that", "mean_relative_error"],
  ["KL divergence", "kl_divergence"],
  ["values compared", "compared_count"],
  ["values left out", "masked_count"],
  ["signal to noise, dB", "sqnr_db"],
];

const PAIRING = [
  ["matched by", "matched_by"],
  ["confidence of the pair", "confidence"],
  ["note", "note"],
  ["reason of failure", "cmp_fail_reason"],
  ["result", "result"],
  ["limit", "exceeded"],
  ["quantisation", "quantisation"],
  ["file of golden", "golden_data_path"],
  ["file of mine", "my_data_path"],
];

/** Cosines of good pairs differ in their last digits only: all five that the page holds. */
function nearOne(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(5))) : "";
}

/** A list with the rows that have something in that column. */
function chosenFacts(row, names) {
  return facts(names.map(([name, column]) => [name, column === "cosine_similarity" ? nearOne(row[column]) : number(row[column])]));
}

function title(row) {
  return row.node ?? row.weight_name ?? row.data_id ?? "tensor";
}

function stepText(step) {
  return step === null || step === undefined || step === NO_STEP ? null : String(step);
}

function whereabouts(row) {
  return facts([
    ["module", row.module],
    ["operator", row.operator],
    ["role", row.role],
    ["slot", row.slot],
    ["step", stepText(row.token_id)],
    ["rank", number(row.rank)],
    ["call", row.call ? number(row.call) : null],
    ["in the tables", row.level],
  ]);
}

/** The finding of the verdict that is about this row, or null. */
function findingOf(page, index) {
  const place = page.verdict?.candidate_rows?.indexOf(index) ?? -1;
  return place < 0 ? null : page.verdict.candidates[place];
}

function times(error, floor) {
  if (error === undefined || floor === null) return null;
  return error > 0 && floor === 0 ? "more than any rounding" : `${number(floor > 0 ? error / floor : 0)} ×`;
}

/** What is said of a row that no verdict has a word for. */
function plainWords(row) {
  if (row.cmp_fail_reason) return ["open", "cannot be compared", row.cmp_fail_reason];
  if (row.max_absolute_error === 0 && !row.nan_only_in_golden && !row.nan_only_in_my) return ["good", "equal", "Every value is golden's."];
  const { rounding, relative_euclidean_distance: distance } = row;
  if (distance === undefined) return ["", "not judged", "The page holds no verdict on this row."];
  if (rounding > 0 && distance <= 4 * rounding) return ["good", "close", "It differs by no more than a few roundings to its type."];
  return ["", "differs", "It differs from golden; nothing says why."];
}

function judgementSection(page, row, index) {
  const [tone, word, meaning] = row.verdict ? [toneOf(row.verdict), row.verdict.replaceAll("_", " "), JUDGEMENT_MEANING[row.verdict] ?? ""] : plainWords(row);
  const finding = findingOf(page, index);
  const explained = explainedOf(row.noise_floor, row.rounding);
  const source = finding?.source ?? page.sources?.[row.module];
  return [
    h("p", { class: "judgement" }, h("strong", { class: tone }, word), " ", meaning),
    finding ? h("p", {}, finding.text) : null,
    facts([
      ["own error", number(row.err_own)],
      ["error of the inputs", number(row.err_in)],
      ["error of this tensor", number(row.err_out)],
      ["rounding explains", number(explained)],
      ["own error / rounding", times(row.err_own, row.noise_floor ?? explained)],
      ["error of this tensor / rounding", times(row.err_out, explained)],
      ["this tensor / inputs", row.amplification === undefined ? null : `${number(row.amplification)} ×`],
      ["own error by", { exact: "computing the operator again", replay: "golden's program on these inputs", measured: "what healthy runs differ by" }[row.own_source] ?? row.own_source],
      ["confidence", row.verdict_confidence],
      ["line", source ? h("code", {}, source) : null],
    ]),
  ];
}

function countOf(row, ...names) {
  const counts = names.map((name) => row[name]).filter((count) => count !== undefined);
  return counts.length > 0 ? String(d3.sum(counts)) : "";
}

function statisticsSection(row) {
  const both = (name, column) => [name, number(row[`golden_${column}`]), number(row[`my_${column}`])];
  const nans = [countOf(row, "nan_only_in_golden", "nan_in_both"), countOf(row, "nan_only_in_my", "nan_in_both")];
  // The table has empty cells for NaN.
  const orNaN = ([name, ...cells]) => [name, ...cells.map((cell, side) => (cell === "" && Number(nans[side]) > 0 ? "NaN" : cell))];
  const rows = [
    both("dtype", "dtype"),
    both("shape", "shape"),
    orNaN(both("min", "min_value")),
    orNaN(both("max", "max_value")),
    orNaN(both("mean", "mean_value")),
    orNaN(both("L2 norm", "l2norm_value")),
    ["NaN", ...nans],
    ["infinite", countOf(row, "inf_only_in_golden", "inf_in_both"), countOf(row, "inf_only_in_my", "inf_in_both")],
    both("type", "op_type"),
  ].filter(([, golden, mine]) => golden !== "" || mine !== "");
  return smallTable("both sides", ["", "golden", "mine"], rows);
}

/** steps: the column of the table */
function linkItem(link, steps) {
  const text = link.name || link.type || link.id;
  const name = link.row === null ? h("code", {}, text) : h("button", { class: "link", onclick: () => state.set({ row: link.row }) }, text);
  const step = link.row === null ? null : stepText(steps.get(link.row));
  const words = [step && `step ${step}`, link.type === text ? "" : link.type, link.slot && `as ${link.slot}`, link.label, link.verdict && link.verdict.replaceAll("_", " ")];
  return h("li", {}, name, h("span", { class: "note" }, ` ${words.filter(Boolean).join(", ")}`));
}

function linkList(name, list, more, steps) {
  if (list.length === 0) return null;
  return [h("h4", {}, name), h("ul", { class: "plain" }, list.map((link) => linkItem(link, steps)), more > 0 ? h("li", { class: "note" }, `and ${more} more`) : null)];
}

function linkSection(links, steps) {
  if (!links || links.producers.length + links.consumers.length === 0) return null;
  return [
    h("h3", {}, "In the flow of data"),
    linkList("comes from", links.producers, links.more_producers, steps),
    linkList("goes to", links.consumers, links.more_consumers, steps),
  ];
}

/** The option that puts the picture of a row into the page. */
function pictureHint(row) {
  const name = row.module || title(row);
  const option = `--details '${String(name).replaceAll("'", "'\\''")}*'`;
  const equal = row.max_absolute_error === 0 ? " Equal tensors have none." : "";
  return [
    h("h3", {}, "Where it differs"),
    h("p", { class: "note" }, `The page holds this of the rows that differ most.${equal} To see it for this row, compare with`),
    h("p", { class: "next" }, h("code", {}, option), h("button", { class: "small", onclick: () => copyText(option) }, "copy")),
  ];
}

/** Rows of the same tensor in other steps, or of the same operator in other runs: [[step, row], ...] in their order. */
async function otherSteps(page, row, index) {
  const table = page.table;
  const { node, rank, call, token_id } = await table.columns(["node", "rank", "call", "token_id"]);
  const step = page.axis ? await table.column(page.axis.column) : token_id;
  const found = [];
  if (row.node === undefined) return found;
  for (let i = 0; i < table.length; i++) {
    if (page.axis && token_id.get(i) !== token_id.get(index)) continue;
    if (node.get(i) === row.node && rank.get(i) === rank.get(index) && call.get(i) === call.get(index)) found.push([step.get(i), i]);
  }
  return typeof found[0]?.[0] === "string" ? found : d3.sort(found, ([number]) => number);
}

function stepChoice(page, steps, index) {
  if (steps.length < 2) return null;
  const select = h("select", { id: "tensor-step", onchange: () => state.set({ row: select.value }) }, steps.map(([step, row]) => h("option", { value: row, selected: row === index }, stepText(step) ?? "none")));
  return h("label", { class: "choice" }, page.axis ? `same operator in ${page.axis.name}` : "same tensor in step", select);
}

function neighbourButtons(table, index) {
  const button = (id, text, row) => h("button", { id, class: "small", disabled: row < 0 || row >= table.length, onclick: () => state.set({ row }) }, text);
  return [button("tensor-before", "◂ before", index - 1), button("tensor-after", "after ▸", index + 1)];
}

function closePanel() {
  state.set({ row: null });
}

function panelHead(heading, ...rest) {
  const close = h("button", { class: "small", id: "tensor-close", "aria-label": "close this panel", onclick: closePanel }, "✕");
  return h("div", { class: "tensor-head" }, heading, close, ...rest);
}

/** What the word of a row says that should be equal. */
function wordSection({ verdict }) {
  return h("p", { class: "judgement" }, h("strong", { class: toneOf(verdict) }, verdict), " ", EQUALITY_MEANING[verdict] ?? "");
}

/** A row of a run or of opcheck: no pair, so only what its columns say. */
function plainContents(row) {
  return smallTable("all columns", ["column", "value"], Object.entries(row).map(([name, cell]) => [name, number(cell)]));
}

async function pairContents(page, row, index) {
  const details = hasBlob(`details-${index}`) ? await blobJson(`details-${index}`) : null;
  const links = hasBlob("links") ? (await blobJson("links"))[index] : null;
  return [
    judgementSection(page, row, index),
    statisticsSection(row),
    details ? pictureSection(details) : pictureHint(row),
    linkSection(links, await page.table.column("token_id")),
    h("h3", {}, "Measured"),
    chosenFacts(row, METRICS),
    h("h3", {}, "The pair"),
    chosenFacts(row, PAIRING),
    fold("All columns", false, plainContents(row)),
  ];
}

async function panelContents(page, index) {
  if (index >= page.table.length) return [panelHead(h("h2", { tabindex: -1 }, `This page has no row ${index}`))];
  const row = Object.fromEntries(await page.table.row(index));
  const walk = h("div", { class: "choices" }, neighbourButtons(page.table, index), stepChoice(page, await otherSteps(page, row, index), index), h("span", { class: "note" }, `row ${index} of ${page.table.length}, in execution order`));
  const head = panelHead(h("h2", { tabindex: -1 }, title(row)), walk);
  if (page.axis) return [head, wordSection(row), plainContents(row)];
  if (page.kind !== "comparison") return [head, plainContents(row)];
  return [head, whereabouts(row), await pairContents(page, row, index)];
}

/** Puts the focus where the reader was in the panel, else on its heading. */
function focusPanel(panel, id) {
  const same = id ? document.getElementById(id) : null;
  const target = same && panel.contains(same) && !same.disabled ? same : panel.querySelector("h2");
  target.focus({ preventScroll: true });
  const { top } = target.getBoundingClientRect();
  if (top < 0 || top > innerHeight - 60) panel.scrollIntoView({ block: "start" });
}

function leavePanel(opener) {
  const target = opener?.isConnected && opener.offsetParent !== null ? opener : document.querySelector('[role="tab"][aria-selected="true"]');
  target?.focus();
}

/** The panel; it shows the open row, and nothing when none is open. */
export function tensorPanel(page) {
  const panel = h("section", { class: "tensor", "aria-label": "the open tensor", hidden: true });
  let opener = null;
  let shown = null;
  const update = async (byReader) => {
    const index = state.row;
    if (index === shown) return;
    if (shown === null) opener = document.activeElement;
    shown = index;
    const focused = panel.contains(document.activeElement) ? document.activeElement.id : null;
    if (index === null) {
      panel.hidden = true;
      panel.replaceChildren();
      return leavePanel(opener);
    }
    const contents = await panelContents(page, index);
    if (index !== shown) return;
    panel.replaceChildren(...contents.flat(Infinity).filter(Boolean));
    panel.hidden = false;
    panel.scrollTop = 0;
    if (byReader) focusPanel(panel, focused);
  };
  state.on(["row"], () => update(true));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented && state.row !== null) closePanel();
  });
  return { panel, ready: update(false) };
}
