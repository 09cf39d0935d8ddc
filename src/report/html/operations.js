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
const TOTAL_TONES = { passed: "good", failed: "bad", errors: "bad", not_supported: "open" };

function totalCell(column, text) {
  if (text === "0" || text === "") return "";
  return h("span", { class: TOTAL_TONES[column] ?? "" }, text);
}

export function operationsView(page) {
  const { columns, rows } = page.totals;
  const shown = rows.map((row) => row.map((text, i) => totalCell(columns[i], text)));
  return smallTable("operations by type", columns.map((column) => TOTAL_HEADS[column] ?? column), shown);
}
