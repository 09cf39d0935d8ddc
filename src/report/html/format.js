// SPDX-License-Identifier: Apache-2.0
// Numbers and names for people.

/** Four digits: 0.0312, 12.5, 3.1e-7; "" for null. */
export function number(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (value === 0 || !Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace("e+", "e");
}

/** "1 pair", "3 pairs"; thousands are grouped. */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** Cut in the middle: the number of a layer and the end of a name tell most. */
export function shortened(text, width) {
  if (text.length <= width) return text;
  const head = Math.ceil((width - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (width - 1 - head))}`;
}

/** Words of the search: all must be in the text, whatever their case. */
export function searchWords(query) {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}

/** Why an operator differs between runs that should be equal: repeat/differences.hpp; and a leak. */
const DIFFERENT = ["operator", "random", "uninitialised", "input", "other operators", "leak"];

/** "wrong" | "open" | "fine" | "" of the words that reports use for a row. */
export function toneOf(word) {
  const wrong = ["own_error", "weight", "attribute", "constant", "topology", "edge", "gap", "measured_floor", "nan_origin", "structural", "rank_divergence", ...DIFFERENT];
  if ([...wrong, "wrong", "FAILED", "ERROR", "fail"].includes(word)) return "bad";
  if (["inherited", "amplified", "drift", "nan_inherited", "NOT_SUPPORTED", "not invariant", "missing"].includes(word)) return "open";
  return ["equal", "noise", "pass", "PASS", "identical", "same"].includes(word) ? "good" : "";
}
