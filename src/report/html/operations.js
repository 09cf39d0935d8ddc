// SPDX-License-Identifier: Apache-2.0
// How the operations of each type did: the first view of opcheck's page.
import { h, smallTable } from "./dom.js";

const TOTAL_HEADS = {
  op_name: "type",
  cases: "operations",
  outputs: "outputs",
  passed: "pass",
  failed: "failed",
  not_supported: "not supported",
  errors: "error",
  first_reason: "first reason",
};
const TOTAL_ORDER = ["op_name", "failed", "errors", "not_supported", "passed", "cases", "outputs", "first_reason"];
const SUMS = ["total", "graphs of operations"]; // rows below those of the types
const TOTAL_TONES = { passed: "good", failed: "bad", errors: "bad", not_supported: "open" };

function totalCell(column, text) {
  if (text === "0" || text === "") return "";
  return h("span", { class: column === "first_reason" ? "long" : (TOTAL_TONES[column] ?? "") }, text);
}

/** Types of which something is wrong come first; columns of which no type has anything are left out. */
export function operationsView(page) {
  const { columns, rows } = page.totals;
  const at = (column) => columns.indexOf(column);
  const isWrong = (row) => Number(row[at("failed")]) + Number(row[at("errors")]) > 0 && !SUMS.includes(row[0]);
  const ordered = [...rows.filter(isWrong), ...rows.filter((row) => !isWrong(row))];
  const filled = TOTAL_ORDER.map(at).filter((i) => i >= 0 && rows.some((row) => row[i] !== "" && row[i] !== "0"));
  const shown = ordered.map((row) => filled.map((i) => totalCell(columns[i], row[i])));
  return smallTable("operations by type", filled.map((i) => TOTAL_HEADS[columns[i]] ?? columns[i]), shown);
}
