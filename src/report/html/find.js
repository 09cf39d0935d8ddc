// SPDX-License-Identifier: Apache-2.0
// Which rows are shown, and in which order. Words are looked for among the texts of a column, each once, and only
// then among the rows; rows are sorted as plain numbers, without a call for each comparison.
import { searchWords } from "./format.js";

/** The texts of a column in one, lower case, a line each. */
class SearchedText {
  constructor(words) {
    const lines = words.map((word) => word.toLowerCase());
    this.text = lines.join("\n");
    this.ends = new Uint32Array(lines.length);
    let end = -1;
    lines.forEach((line, place) => (this.ends[place] = end += line.length + 1));
  }

  /** 1 for each text that holds the word; null when none does. */
  placesWith(word) {
    let found = null;
    let place = 0;
    for (let at = this.text.indexOf(word); at >= 0; at = this.text.indexOf(word, this.ends[place] + 1)) {
      while (this.ends[place] <= at) place++;
      found ??= new Uint8Array(this.ends.length);
      found[place] = 1;
    }
    return found;
  }
}

const searched = new WeakMap(); // column -> SearchedText

function searchedText(column) {
  if (!searched.has(column)) searched.set(column, new SearchedText(column.words));
  return searched.get(column);
}

function textColumns(table) {
  const isText = (one) => one.form === "words" || (one.form === "constant" && typeof one.value === "string");
  return Promise.all(table.descriptions.filter(isText).map((one) => table.column(one.name)));
}

/** Makes ready what the first search needs. */
export async function prepareSearch(table) {
  for (const column of await textColumns(table)) {
    if (column.form === "words") searchedText(column);
  }
}

/** Clears the marks of rows that have the word in no column. */
function keepWord(marks, columns, word) {
  if (columns.some((column) => column.form === "constant" && column.constant.toLowerCase().includes(word))) return;
  const found = new Uint8Array(marks.length);
  for (const column of columns) {
    const places = column.form === "words" ? searchedText(column).placesWith(word) : null;
    if (places === null) continue;
    const values = column.values;
    for (let row = 0; row < found.length; row++) found[row] |= places[values[row]];
  }
  for (let row = 0; row < marks.length; row++) marks[row] &= found[row];
}

/** Clears the marks of rows whose cell does not pass `test`, which is asked once for each text. */
function keepCells(marks, column, test) {
  if (column.form === "words") {
    const passes = Uint8Array.from(column.words, (word) => test(word));
    for (let row = 0; row < marks.length; row++) marks[row] &= passes[column.values[row]];
  } else if (!test(column.text(0))) {
    marks.fill(0);
  }
}

/** The rows that pass, in execution order. filters: { q, level, verdict, result } as the address has them. */
export async function rowsThatPass(table, filters) {
  const marks = new Uint8Array(table.length).fill(1);
  for (const name of ["verdict", "result"]) {
    if (filters[name]) keepCells(marks, await table.column(name), (text) => text === filters[name]);
  }
  if (filters.level) keepCells(marks, await table.column("level"), (text) => text.split(" ").includes(filters.level));
  const words = searchWords(filters.q ?? "");
  const columns = words.length > 0 ? await textColumns(table) : [];
  for (const word of words) keepWord(marks, columns, word);
  const rows = new Uint32Array(table.length);
  let count = 0;
  for (let row = 0; row < marks.length; row++) {
    if (marks[row] === 1) rows[count++] = row;
  }
  return rows.subarray(0, count);
}

const ranks = new WeakMap(); // column of words -> rank of each text

/** Texts by letters, numbers in them by size: layers.2 stands before layers.10. Sorted as texts that end with their
 * places: a function that compares takes three times as long. */
function ranksOf(column) {
  if (ranks.has(column)) return ranks.get(column);
  const keys = column.words.map((word, place) => `${word.replace(/\d+/g, (digits) => digits.padStart(12, "0"))}\0${place}`);
  const made = new Uint32Array(keys.length);
  keys.sort().forEach((key, rank) => (made[Number(key.slice(key.lastIndexOf("\0") + 1))] = rank));
  ranks.set(column, made);
  return made;
}

const LAST = 2 ** 32 - 1; // of empty cells, whatever the direction

/** A function row -> whole number in [0, LAST) that grows with the cell; LAST for an empty one. */
function sortKey(column) {
  if (column.form === "words") {
    const rank = ranksOf(column);
    return (row) => (column.values[row] === 0 ? LAST : rank[column.values[row]]);
  }
  if (column.form === "integer") return (row) => (column.get(row) === null ? LAST : column.values[row] + 2 ** 31);
  if (column.form === "constant") return () => 0;
  // Bits of float32 grow with the number when the sign is turned around, and all bits of a negative one.
  const bits = new Int32Array(column.values.buffer, column.values.byteOffset, column.values.length);
  return (row) => (Number.isNaN(column.values[row]) ? LAST : (bits[row] < 0 ? ~bits[row] : bits[row] ^ 0x80000000) >>> 0);
}

/** The rows by a column, the largest first when `descending`; equal ones keep their order. */
export function sortedRows(rows, column, descending) {
  const key = sortKey(column);
  const room = 2 ** 21; // key and place share the 53 bits of a number
  if (rows.length > room) throw new Error(`more than ${room} rows are not sorted`);
  const keys = new Float64Array(rows.length);
  for (let i = 0; i < rows.length; i++) {
    const value = key(rows[i]);
    keys[i] = (descending && value !== LAST ? LAST - 1 - value : value) * room + i;
  }
  keys.sort();
  return Uint32Array.from(keys, (one) => rows[one % room]);
}

/** Texts of a column with the number of their rows: [["wrong", 3], ...], most frequent first. */
export function textCounts(column, length) {
  if (column.form === "constant") return column.constant ? [[String(column.constant), length]] : [];
  const counts = new Uint32Array(column.words.length);
  for (const place of column.values) counts[place]++;
  const pairs = column.words.map((word, place) => [word, counts[place]]).filter(([word]) => word !== "");
  return pairs.sort((a, b) => b[1] - a[1]);
}
