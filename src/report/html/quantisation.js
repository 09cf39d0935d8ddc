// SPDX-License-Identifier: Apache-2.0
// Weights of checkpoints by the way they are quantised, the noisiest first.
import { h, smallTable } from "./dom.js";
import { number } from "./format.js";
import { state } from "./state.js";

const WORST_OF_A_GROUP = 3;

function grouped(rows, columns) {
  const groups = new Map();
  for (let row = 0; row < rows; row++) {
    const kind = columns.quantisation.get(row) ?? columns.my_dtype.get(row) ?? "not known";
    if (!groups.has(kind)) groups.set(kind, []);
    groups.get(kind).push({ row, name: columns.weight_name.text(row), sqnr: columns.sqnr_db.get(row), error: columns.relative_euclidean_distance.get(row) });
  }
  return groups;
}

function middle(values) {
  const known = values.filter((value) => typeof value === "number").sort((a, b) => a - b);
  return known.length === 0 ? null : known[Math.floor(known.length / 2)];
}

function worstWeights(weights) {
  const worst = weights.filter((one) => one.error !== null).sort((a, b) => b.error - a.error).slice(0, WORST_OF_A_GROUP);
  return worst.map((one) =>
    h("div", {}, h("button", { class: "link", onclick: () => state.set({ row: one.row }) }, one.name), ` ${number(one.error)}`));
}

export async function quantisationView(page) {
  const names = ["weight_name", "quantisation", "my_dtype", "sqnr_db", "relative_euclidean_distance"];
  const groups = grouped(page.table.length, await page.table.columns(names));
  const rows = [...groups].map(([kind, weights]) => ({
    error: Math.max(...weights.map((one) => one.error ?? 0)),
    cells: [
      kind,
      weights.length,
      number(middle(weights.map((one) => one.sqnr))),
      number(middle(weights.map((one) => one.error))),
      worstWeights(weights),
    ],
  }));
  rows.sort((a, b) => b.error - a.error);
  const heads = ["kept as", "weights", "median SQNR (dB)", "median relative L2", "largest relative L2"];
  return smallTable("weights by quantisation", heads, rows.map((row) => row.cells));
}
