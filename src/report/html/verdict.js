// SPDX-License-Identifier: Apache-2.0
// The top: what, where, how sure, next; and what could not be judged.
import { hasBlob } from "./data.js";
import { copyText, facts, fold, h } from "./dom.js";
import { number } from "./format.js";
import { FLOOR_WORDS, LEVEL_WORDS } from "./judgement.js";
import { state } from "./state.js";

const TONES = { bad: "wrong", good: "in order", open: "open" };

function commandLine(command) {
  const button = h("button", { class: "small", onclick: () => copyText(command) }, "copy");
  return h("p", { class: "next" }, h("span", { class: "label" }, "next"), h("code", {}, command), button);
}

/** A button that opens the row of a finding. */
function place(finding, row) {
  const text = finding.module || finding.my || "(model)";
  if (row === null || row === undefined) return h("code", {}, text);
  return h("button", { class: "link", onclick: () => state.set({ row }) }, text);
}

function findingItem(finding, row) {
  const measured = [
    ["own error", number(finding.e_own)],
    ["rounding explains", number(finding.floor)],
    ["error of the inputs", number(finding.e_in)],
    ["error of the output", number(finding.e_out)],
  ];
  return h("li", {}, place(finding, row), " ", h("span", {}, finding.text), facts(measured));
}

function findings(title, list, rows) {
  if (list.length === 0) return null;
  return fold(`${title} (${list.length})`, false, h("ol", {}, list.map((one, i) => findingItem(one, rows?.[i]))));
}

function obligations(verdict) {
  if (verdict.obligations.length === 0) return null;
  const open = verdict.obligations.filter((one) => !one.holds);
  const items = verdict.obligations.map((one) =>
    h("li", { class: one.holds ? "good" : "open" }, `${one.holds ? "holds" : "open"}: ${one.name}${one.open ? `: ${one.open}` : ""}`));
  return fold(`What this stands on: ${verdict.obligations.length - open.length} of ${verdict.obligations.length} hold`, open.length > 0, h("ul", {}, items));
}

function unjudged(verdict) {
  const reasons = Object.entries(verdict.coverage.unjudged);
  const total = reasons.reduce((sum, [, count]) => sum + count, 0);
  if (total === 0) return null;
  return fold(`Not judged: ${total}`, false, h("ul", {}, reasons.map(([reason, count]) => h("li", {}, `${count}: ${reason}`))));
}

/** Lists that stand above all views: what was found, each with its place and numbers. */
function listedFindings({ title, open, count, items }) {
  const words = (one) => (one.text.startsWith(one.place) ? one.text.slice(one.place.length).replace(/^:? /, "") : one.text);
  const shown = items.map((one) => h("li", {}, place({ module: one.place }, one.row), " ", h("span", {}, words(one)), facts(one.facts.map(([name, value]) => [name, number(value)]))));
  const more = count > items.length ? h("p", { class: "note" }, `and ${count - items.length} more`) : null;
  return fold(`${title} (${count})`, open, h("ol", { class: "found" }, shown), more);
}

function list(title, texts) {
  if (!texts || texts.length === 0) return null;
  return fold(`${title} (${texts.length})`, false, h("ul", {}, texts.map((text) => h("li", {}, text))));
}

function chain(verdict) {
  if (verdict.chain.length === 0) return null;
  const links = verdict.chain.map((link) => h("li", {}, h("code", {}, link.my || "(model)"), ` ${number(link.e_out)}`));
  return fold(`The way to the output (${links.length})`, false, h("p", {}, "Relative L2 distance from golden after each."), h("ol", {}, links));
}

function judged(verdict) {
  const coverage = verdict.coverage;
  const what = verdict.level === "O" ? "operators" : "values";
  return facts([
    ["confidence", verdict.confidence],
    ["judged", coverage.judgeable > 0 ? `${coverage.judged} of ${coverage.judgeable} ${what}` : null],
    ["weights", coverage.weights > 0 ? `${coverage.weights_compared} of ${coverage.weights} compared` : null],
    ["judged by", LEVEL_WORDS[verdict.level] ?? verdict.level],
    ["allowed is", FLOOR_WORDS[verdict.floor] ?? verdict.floor],
  ]);
}

/** Which run is which, and when it was captured. */
function runLine({ name, path, properties }) {
  const when = (properties.started ?? "").replace("T", " ").replace("Z", " UTC");
  return h("div", {}, h("dt", {}, name), h("dd", {}, h("code", {}, path), when && ` captured ${when}`));
}

/** What shows the first that is wrong: {names as the sentence has them, open()}; null where nothing is. */
function suspectOf(page) {
  const candidate = page.verdict?.candidates?.[0];
  const row = page.verdict?.candidate_rows?.[0] ?? page.first_row ?? null;
  if (candidate === undefined && row === null) return null;
  const listed = (page.lists ?? []).flatMap(({ items }) => items).find((one) => one.row === row);
  const name = candidate?.module ?? listed?.place ?? "";
  const elsewhere = hasBlob("graph") ? { view: "graph" } : { view: "modules", q: name };
  const operator = candidate && candidate.my !== candidate.module ? candidate.op_type : null;
  return { names: [name, operator].filter(Boolean), open: () => state.set(row === null ? elsewhere : { row }) };
}

/** The sentence; the names of the first that is wrong, its module and its operator, open it. */
function sentence(text, suspect) {
  const parts = [];
  let rest = text;
  for (const name of suspect?.names ?? []) {
    const at = rest.indexOf(name);
    if (at < 0) continue;
    parts.push(rest.slice(0, at), h("button", { class: "link suspect", onclick: suspect.open }, name));
    rest = rest.slice(at + name.length);
  }
  return h("h1", {}, parts, rest);
}

/** The banner, with everything that the verdict says. */
export function verdictBanner(page) {
  const verdict = page.verdict;
  const suspect = suspectOf(page);
  const parts = [h("p", { class: "tone" }, TONES[page.tone] ?? ""), sentence(page.sentence, suspect)];
  if (suspect !== null) parts.push(h("p", {}, h("button", { class: "primary", onclick: suspect.open }, "Open the suspect")));
  parts.push(h("dl", { class: "facts runs" }, page.sides.map(runLine)));
  if (verdict) parts.push(judged(verdict));
  if (page.facts) parts.push(facts(page.facts.map(([name, value]) => [name, number(value)])));
  if (verdict?.next ?? page.next) parts.push(commandLine(verdict?.next ?? page.next));
  if (page.counts_sentence && page.counts_sentence !== page.sentence) parts.push(h("p", { class: "note" }, page.counts_sentence));
  parts.push((page.lists ?? []).map(listedFindings));
  if (verdict)
    parts.push(
      findings("Candidates", verdict.candidates, verdict.candidate_rows),
      findings("Suspicions that were refuted or cannot be decided", verdict.suspicions),
      findings("Golden itself", verdict.golden_findings),
      obligations(verdict),
      unjudged(verdict),
      chain(verdict),
      list("Remarks", verdict.remarks),
    );
  parts.push(list("Why the runs are not comparable as a whole", page.gaps), list("Notes", page.notes), list("Warnings", page.warnings));
  return h("header", { class: `banner ${page.tone}`, "aria-label": "verdict" }, parts.flat().filter(Boolean));
}
