// SPDX-License-Identifier: Apache-2.0
// Columns of the table for people: which come first, what they are called, what they say.

/** Name in the report -> [title, meaning, width in characters] */
const KNOWN = {
  token_id: ["step", "number of the call of the model since the capture began; -1: weights", 6],
  node: ["node", "path of the module, and the operator in it", 44],
  weight_name: ["weight", "name of the parameter", 44],
  op_type: ["type", "class of the module, or the operator", 20],
  role: ["role", "input or output of the node", 8],
  slot: ["slot", "which of its inputs or outputs; empty: the only output", 16],
  level: ["levels", "sheets of the report that show the pair", 18],
  verdict: ["verdict", "what the verdict says of this tensor", 12],
  result: ["result", "pass or fail against the limits of the command, or of opcheck", 17],
  relative_euclidean_distance: ["rel L2", "|mine - golden| / |golden|, Euclidean norms: 0 is equal", 10],
  err_own: ["own error", "rel L2 that the node itself adds, on the inputs that it was given", 11],
  rounding: ["rounding", "rel L2 that one rounding to the coarser of both types explains", 10],
  cosine_similarity: ["cosine", "cosine of the angle between both tensors: 1 is the same direction", 10],
  max_absolute_error: ["max abs", "largest |mine - golden| of an element", 10],
  max_relative_error: ["max rel", "largest |mine - golden| / |golden| of an element", 10],
  l2norm_stat_relative_error: ["norm, rel", "relative difference of both Euclidean norms", 11],
  max_stat_relative_error: ["max, rel", "relative difference of both maxima", 10],
  mean_stat_relative_error: ["mean, rel", "relative difference of both means", 11],
  golden_dtype: ["golden dtype", "element type on the golden side", 12],
  my_dtype: ["my dtype", "element type on the side under test", 12],
  golden_shape: ["golden shape", "sizes of the golden tensor", 16],
  my_shape: ["my shape", "sizes of the tensor under test", 16],
  sqnr_db: ["SQNR, dB", "signal to quantisation noise: 10 log10(|golden|² / |mine - golden|²)", 10],
  quantisation: ["quantisation", "how the weight was quantised", 16],
  cmp_fail_reason: ["reason", "why no number could be computed", 28],
  problem: ["problem", "what is wrong with the record", 24],
  step: ["step", "number of the call of the model since the capture began", 6],
  op_id: ["id", "of the operation: its place in the tree of the run", 12],
  op_name: ["type", "of the operation", 24],
  module: ["module", "path of the module", 32],
  operator: ["operator", "as the framework calls it", 26],
  output: ["output", "which of the results", 12],
  reason: ["reason", "why it did not pass, or could not be judged", 60],
  z: ["z", "error in standard deviations of what rounding explains", 10],
  e: ["e", "largest error of an element in units of what rounding allows", 10],
  worst_index: ["worst element", "its index", 16],
  run: ["run", "number of the run, held against the first one", 6],
  scenario: ["scenario", "which forward calls the program made", 18],
  different: ["elements", "that differ bit for bit", 10],
  largest_ulp: ["worst ULP", "largest difference in units of the last place", 11],
  relative_error: ["rel L2", "relative L2 distance of the row", 10],
  case_name: ["case", "name of the case", 28],
};

const FIRST = [
  "run", "scenario", "token_id", "weight_name", "node", "role", "slot", "op_type", "verdict", "result", "relative_euclidean_distance", "err_own",
  "different", "largest_ulp", "relative_error", "l2norm_stat_relative_error", "max_stat_relative_error", "mean_stat_relative_error", "cosine_similarity",
  "max_absolute_error", "sqnr_db", "quantisation", "cmp_fail_reason", "dtype", "shape", "golden_dtype", "my_dtype",
  "golden_shape", "my_shape", "min", "max", "mean", "l2norm", "problem",
];

/** Of opcheck, whose first columns are the original's. */
const FIRST_CHECKED = [
  "result", "step", "op_id", "op_name", "module", "operator", "output", "reason", "z", "e", "worst_ulp", "allowed_ulp",
  "max_abs", "max_rel", "dtype", "shape", "worst_index", "worst_golden", "worst_mine",
];

/** The node of a pair is a label that says these, too: "model.norm output 0". */
const IN_LABEL = ["role", "slot"];

export function columnTitle(name) {
  return KNOWN[name]?.[0] ?? name.replaceAll("_", " ");
}

/** What a column says; "" where its name says it all. */
export function columnMeaning(name) {
  return KNOWN[name]?.[1] ?? "";
}

const NARROW = { window: 600, column: 18 }; // pixels; characters

/** In characters; in a narrow window no column takes all of it. */
export function columnWidth(name, isText) {
  const wanted = KNOWN[name]?.[2] ?? (isText ? 20 : 11);
  return Math.max(innerWidth < NARROW.window ? Math.min(wanted, NARROW.column) : wanted, columnTitle(name).length + 3);
}

/** Columns that have something in some row, as the report orders them. */
export function filledColumns(table) {
  return table.names.filter((name) => !table.isEmpty(name));
}

/** Rows are those of opcheck. */
export function isChecked(table) {
  return table.has("reason") && table.has("result") && !table.has("my_dtype");
}

/** Those that are shown first. A table of other names shows its first twelve. */
export function firstColumns(table) {
  const filled = filledColumns(table);
  if (isChecked(table)) return FIRST_CHECKED.filter((name) => filled.includes(name));
  const known = FIRST.filter((name) => filled.includes(name) && !(table.has("my_dtype") && IN_LABEL.includes(name)));
  return known.length >= 5 ? known : filled.slice(0, 12);
}
