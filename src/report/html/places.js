// SPDX-License-Identifier: Apache-2.0
// The rows of a table as places of the model: what the map, the plot of depth and the tree show.
//
//   place    a module, or an operator in one, with all its rows
//   group    places that belong together: a layer, a module with its operators, a part of a very long list
//   times    an error in units of what rounding explains of it
import { number, toneOf } from "./format.js";
import { EQUALITY_MEANING, explainedOf, JUDGEMENT_MEANING } from "./judgement.js";

/** Ends of the classes of `times`. Below the first (k_out of the localisation) nothing stands out. */
export const HEAT_ENDS = [4, 10, 30, 100, 1e3, 1e4, 1e5];
/** Levels of a row or a cell; from `beyond` on one for each of HEAT_ENDS. The worst has the largest. */
export const LEVEL = { unknown: 0, equal: 1, within: 2, beyond: 3, broken: 10 };
export const MARK = { none: 0, grown: 1, broken: 2, wrong: 3 };

const MOST_CHILDREN = 150;
const NOT_IN_A_STEP = -1; // token_id of weights

function levelOf(times) {
  if (Number.isNaN(times)) return LEVEL.unknown;
  if (times === 0) return LEVEL.equal;
  return LEVEL.within + d3.bisectRight(HEAT_ENDS, times);
}

function timesOf(error, explained) {
  if (error === null) return NaN;
  if (error === 0) return 0;
  return explained > 0 ? error / explained : Infinity;
}

const PLACE_COLUMNS = ["token_id", "rank", "module", "operator", "role", "rounding", "err_own", "noise_floor", "verdict", "result", "node", "weight_name", "my_op_type", "golden_op_type", "nan_only_in_my", "inf_only_in_my", "different", "largest_ulp", "relative_error"];
// The first of these that a table has is the error of a row: a comparison of statistics has only norms.
const ERROR_COLUMNS = ["relative_euclidean_distance", "err_out", "l2norm_stat_relative_error"];

/** What the page says of each row, by its error in units of what rounding explains. */
class Judgements {
  /** isClean: the verdict is that rounding explains all of it, which one rounding alone need not */
  constructor(table, columns, isClean) {
    this.columns = columns;
    this.isClean = isClean;
    this.hasScale = true;
    this.length = table.length;
    this.times = { all: new Float64Array(table.length), own: new Float64Array(table.length) };
    this.level = { all: new Uint8Array(table.length), own: new Uint8Array(table.length) };
    this.mark = new Uint8Array(table.length);
    this.step = Array.from({ length: table.length }, (_, row) => readStep(columns.axis.get(row)));
    for (let row = 0; row < table.length; row++) this.judge(row);
  }

  error(row) {
    return this.columns.error.get(row);
  }

  /** What rounding explains of the row: the one denominator of all its errors. */
  explained(row) {
    return explainedOf(this.columns.noise_floor.get(row), this.columns.rounding.get(row));
  }

  /** A weight that differs is an error of its own. */
  isWeight(row) {
    return this.columns.role.get(row) === "weight";
  }

  own(row) {
    return this.columns.err_own.get(row) ?? (this.isWeight(row) ? this.error(row) : null);
  }

  rank(row) {
    return this.columns.rank.get(row);
  }

  verdict(row) {
    return this.columns.verdict.get(row) ?? "";
  }

  name(row) {
    return this.columns.node.get(row) ?? this.columns.weight_name.get(row) ?? "(model)";
  }

  type(row) {
    return this.columns.my_op_type.get(row) ?? this.columns.golden_op_type.get(row) ?? "";
  }

  judge(row) {
    const verdict = this.verdict(row);
    const broken = verdict.startsWith("nan_") || this.columns.nan_only_in_my.get(row) > 0 || this.columns.inf_only_in_my.get(row) > 0;
    this.times.all[row] = timesOf(this.error(row), this.explained(row));
    this.times.own[row] = timesOf(this.own(row), this.columns.noise_floor.get(row) ?? this.explained(row));
    const most = this.isClean ? LEVEL.within : LEVEL.broken;
    this.level.all[row] = broken ? LEVEL.broken : Math.min(most, levelOf(this.times.all[row]));
    this.level.own[row] = verdict === "nan_origin" ? LEVEL.broken : Math.min(most, levelOf(this.times.own[row]));
    if (toneOf(verdict) === "bad") this.accuse(row);
    else if (broken) this.mark[row] = MARK.broken;
    else if (verdict === "amplified") this.mark[row] = MARK.grown;
  }

  /** What is wrong by itself is as wrong as its own error, which the sentence tells, too. */
  accuse(row) {
    this.mark[row] = MARK.wrong;
    if (Number.isNaN(this.times.own[row])) return;
    this.times.all[row] = this.times.own[row];
    this.level.all[row] = Math.max(this.level.own[row], this.level.all[row] === LEVEL.broken ? LEVEL.broken : 0);
  }

  /** Says whether row a is worse than row b, by all of its error or by its own. */
  isWorse(a, b, by) {
    if (this.mark[a] === MARK.wrong || this.mark[b] === MARK.wrong) {
      if (this.mark[a] !== this.mark[b]) return this.mark[a] === MARK.wrong;
    }
    const [levelA, levelB] = [this.level[by][a], this.level[by][b]];
    return levelA !== levelB ? levelA > levelB : this.times[by][a] > this.times[by][b];
  }

  /** The worst of several rows; null of none. */
  worst(rows, by = "all") {
    let worst = null;
    for (const row of rows) if (worst === null || this.isWorse(row, worst, by)) worst = row;
    return worst;
  }

  /** The level of a row in words. */
  levelWords(row, by) {
    const [level, times] = [this.level[by][row], this.times[by][row]];
    const what = by === "own" ? "own error" : "error";
    if (level === LEVEL.unknown) return by === "own" ? "own error not known" : "not judged";
    if (level === LEVEL.equal) return by === "own" ? "no error of its own" : "equal";
    if (level === LEVEL.broken) return "NaN or infinity";
    if (level === LEVEL.within) return `${times >= HEAT_ENDS[0] ? "explained by the rounding of all before it" : "within rounding"} (${timesText(times)})`;
    return `${what} ${timesText(times)} what rounding explains`.replace("× what", "times what");
  }

  meaning(row) {
    return JUDGEMENT_MEANING[this.verdict(row)];
  }

  /** [[name, value], ...] of what is known of a row. */
  measured(row) {
    const times = timesOf(this.error(row), this.explained(row));
    const said = [
      ["error", `${number(this.error(row))} relative L2`, this.error(row) !== null],
      ["rounding explains", number(this.explained(row)), this.explained(row) !== null],
      ["error / rounding", timesText(times), !Number.isNaN(times)],
      ["own error", number(this.own(row)), this.own(row) !== null],
      ["own error / rounding", timesText(this.times.own[row]), !Number.isNaN(this.times.own[row])],
    ];
    return said.filter(([, , known]) => known);
  }
}

/** Levels of results that should be equal bit for bit, by their word; any other word accuses. */
const LEVEL_OF_WORD = { same: LEVEL.equal, inherited: LEVEL.beyond, "not invariant": LEVEL.beyond + 3, missing: LEVEL.beyond, unseen: LEVEL.unknown, "not judged": LEVEL.unknown };

/** The same of rows that are equal or not: operators in several runs of one program. */
class Equalities extends Judgements {
  constructor(table, columns) {
    super(table, columns, false);
    this.hasScale = false;
  }

  judge(row) {
    const verdict = this.verdict(row);
    const level = LEVEL_OF_WORD[verdict];
    this.times.all[row] = this.times.own[row] = NaN;
    this.level.all[row] = this.level.own[row] = level ?? LEVEL.beyond;
    if (level === undefined) this.mark[row] = MARK.wrong;
    else if (verdict === "not invariant") this.mark[row] = MARK.grown;
  }

  levelWords() {
    return ""; // the word of the verdict says it
  }

  meaning(row) {
    return EQUALITY_MEANING[this.verdict(row)];
  }

  measured(row) {
    return [["elements that differ", "different"], ["worst ULP", "largest_ulp"], ["relative L2", "relative_error"]]
      .map(([name, column]) => [name, number(this.columns[column].get(row))])
      .filter(([, value]) => value !== "");
  }
}

// ---- the tree of groups ----

// Of ggml's names "attn_norm-3", "cache_k_l3 (view)": "layer 3"; null of others.
function ggmlLayer(module) {
  const found = /(?:-|_l)(\d+)\)?(?: \(.*\))*$/.exec(module);
  return found ? `layer ${found[1]}` : null;
}

/** Names of the groups that a place belongs to, the outermost first. A module with operators is a group of them. */
function groupNames({ module, operator }, hasOperators) {
  const names = [];
  if (operator.startsWith("ggml.")) {
    const layer = ggmlLayer(module);
    if (layer !== null) names.push(layer);
  } else if (/^\d+_[^/]*/.test(module)) {
    names.push(module.split("/", 1)[0]); // ATB's "2_Prefill_layer/1_Attention"
  } else {
    const parts = module.split(".");
    parts.forEach((part, i) => /^\d+$/.test(part) && names.push(parts.slice(0, i + 1).join(".")));
  }
  if (hasOperators && names.at(-1) !== module) names.push(module);
  return names;
}

function nameWithin(name, outer, isRoot = false) {
  if (name === outer) return isRoot ? "(model)" : "as a whole";
  return outer !== "" && name.startsWith(outer) ? name.slice(outer.length).replace(/^(\.|\/|::)/, "") : name;
}

function newGroup(name, parent) {
  return { key: parent === null ? "" : name || "(model)", name, parent, children: [], groups: new Map(), rows: [], order: Infinity };
}

function placeInto(root, place, hasOperators) {
  let group = root;
  for (const name of groupNames(place, hasOperators)) {
    if (!group.groups.has(name)) {
      const added = newGroup(name, group);
      group.groups.set(name, added);
      group.children.push(added);
    }
    group = group.groups.get(name);
  }
  group.children.push(place);
}

/** A list too long to look at becomes a list of its parts. */
function cutInParts(group) {
  if (group.children.length <= MOST_CHILDREN) return;
  const size = Math.max(50, Math.ceil(group.children.length / 100));
  const parts = [];
  for (let first = 0; first < group.children.length; first += size) {
    const children = group.children.slice(first, first + size);
    const [from, to] = [children[0], children.at(-1)].map((child) => nameWithin(child.name, group.name, group.key === ""));
    const part = { ...newGroup(`${from} … ${to}`, group), key: `${group.key}#${first}`, isPart: true, children, order: children[0].order };
    parts.push(part);
  }
  group.children = parts;
}

/** Orders the children, puts a lone child in the place of its group, gives labels and rows. */
function finishGroup(group) {
  group.children = group.children.map((child) => {
    if (!child.children) return child;
    finishGroup(child);
    return child.children.length === 1 ? child.children[0] : child;
  });
  group.children.sort((a, b) => a.order - b.order);
  group.order = group.children.length > 0 ? group.children[0].order : Infinity;
  cutInParts(group);
  settleGroup(group);
}

function settleGroup(group) {
  const outer = group.isPart ? group.parent.name : group.name;
  for (const child of group.children) {
    child.parent = group;
    child.label = child.isPart ? child.name : nameWithin(child.name, outer, outer === "" && (group.key === "" || group.isPart === true)) || "(model)";
    if (child.isPart) settleGroup(child);
  }
  group.rows = group.children.length === 1 ? group.children[0].rows : group.children.flatMap((child) => child.rows);
}

const RANK_OF_ROLE = { output: 0, input: 1 };

function rankOfRole(judgements, row) {
  return RANK_OF_ROLE[judgements.columns.role.get(row)] ?? 2;
}

/** All places, each with its rows. A place counts as executed with its outputs, where it has some. */
function gatherPlaces(judgements) {
  const { module, operator } = judgements.columns;
  const places = new Map();
  for (let row = 0; row < judgements.length; row++) {
    const [inModule, inOperator] = [module.get(row) ?? "", operator.get(row) ?? ""];
    const key = `${inModule}\n${inOperator}`;
    if (!places.has(key)) {
      const name = inOperator === "" ? inModule : `${inModule}::${inOperator}`;
      places.set(key, { key, module: inModule, operator: inOperator, name, rows: [], role: 3 });
    }
    const place = places.get(key);
    place.rows.push(row);
    place.role = Math.min(place.role, rankOfRole(judgements, row));
  }
  return [...places.values()];
}

/** Places in execution order: what a later step has alone stands behind what it follows there. */
function inExecutionOrder(places, judgements) {
  const placeOfRow = new Array(judgements.length);
  for (const place of places) for (const row of place.rows) placeOfRow[row] = place;
  const [start, before] = [{ next: null }, new Map()];
  let end = start;
  for (let row = 0; row < judgements.length; row++) {
    const place = placeOfRow[row];
    if (place.role !== rankOfRole(judgements, row)) continue;
    const run = `${judgements.step[row]} ${judgements.rank(row)}`;
    if (place.next === undefined) {
      const after = before.get(run) ?? end;
      [place.next, after.next] = [after.next, place];
      if (after === end) end = place;
    }
    before.set(run, place);
  }
  const list = [];
  for (let place = start.next; place !== null; place = place.next) list.push(place);
  list.forEach((place, i) => (place.order = i));
  return list;
}

// ---- steps and ranks ----

function compareSteps(a, b) {
  const place = (step) => (typeof step === "number" ? step : NOT_IN_A_STEP + 0.5); // the warm-up: behind the weights
  return place(a) - place(b);
}

/** "0" of a column of words and 0 are the same step. */
function readStep(text) {
  return typeof text === "string" && /^-?\d+$/.test(text) ? Number(text) : text;
}

/** "weights", "warmup", "3" */
export function stepName(step) {
  return step === null || step === NOT_IN_A_STEP ? "weights" : String(step);
}

// ---- all of it ----

function placeOfRow(places, judgements, row) {
  const { module, operator } = judgements.columns;
  return places.find((one) => one.module === (module.get(row) ?? "") && one.operator === (operator.get(row) ?? ""));
}

/** The first that is wrong: {row (or null), place, text}; null where none is known. */
function firstBad(page, places, judgements) {
  if (page.first_row !== undefined && page.first_row !== null) {
    const place = placeOfRow(places, judgements, page.first_row);
    return { row: page.first_row, place, text: `first: ${place.name} (${judgements.verdict(page.first_row)})` };
  }
  const candidate = page.verdict?.candidates?.[0];
  if (candidate === undefined) return null;
  const row = page.verdict.candidate_rows?.[0] ?? null;
  const place =
    row !== null
      ? placeOfRow(places, judgements, row)
      : places.find((one) => one.module === candidate.module);
  if (place === undefined) return null;
  return { row, place, step: candidate.step, rank: candidate.rank, text: `first bad: ${place.name || "(model)"} (${candidate.verdict.replaceAll("_", " ")})` };
}

async function readAllPlaces(page) {
  const table = page.table;
  const columns = await table.columns(PLACE_COLUMNS);
  if (page.kind === "opcheck") columns.verdict = columns.result;
  const axis = page.axis ?? { column: "token_id", name: "step" };
  columns.axis = await table.column(axis.column);
  columns.error = await table.column(ERROR_COLUMNS.find((name) => !table.isEmpty(name)) ?? ERROR_COLUMNS[0]);
  const isClean = page.verdict !== null && page.tone === "good";
  const judgements = new (page.axis ? Equalities : Judgements)(table, columns, isClean);
  const places = inExecutionOrder(gatherPlaces(judgements), judgements);
  const withOperators = new Set(places.filter((place) => place.operator !== "").map((place) => place.module));
  const root = newGroup("", null);
  for (const place of places) placeInto(root, place, withOperators.has(place.module));
  finishGroup(root);
  const steps = [...new Set(judgements.step)].sort(compareSteps);
  const ranks = [...new Set(judgements.step.map((_, row) => judgements.rank(row)))].sort((a, b) => a - b);
  const isOrdered = page.order_known !== false && steps.some((step) => stepName(step) !== "weights");
  return { judgements, places, root, steps, axis: axis.name, ranks, isOrdered, first: firstBad(page, places, judgements) };
}

/**
 * What a page says by place; read once.
 *
 * judgements   of the rows
 * places       leaves, in execution order (isOrdered) or in that of the report
 * root         the outermost group
 * steps, ranks of the rows; axis says what the steps are: steps, runs, scenarios
 * first        the first that is wrong, or null
 */
export function readPlaces(page) {
  page.readPlaces ??= readAllPlaces(page);
  return page.readPlaces;
}

/** 18.8 -> "18.8 ×", 4.2e15 -> "more than a million ×" (as locate's sentences), Infinity -> "beyond any rounding" */
export function timesText(times) {
  if (Number.isNaN(times)) return "not known";
  if (times === Infinity) return "more than any rounding";
  if (times > 1e6) return "more than a million ×";
  if (times >= 1e4) return `${times.toFixed(0)} ×`;
  return `${Number(times.toPrecision(3))} ×`;
}
