// SPDX-License-Identifier: Apache-2.0
// Rows that leave the page: as csv, and as text between tabs. Both are defused as the csv of the command is: a cell
// that a spreadsheet would run gets a ' in front.

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$|^[+-]?(nan|inf|infinity)$/i;

function defused(text) {
  return /^[=+\-@\t\r]/.test(text) && !NUMBER.test(text) ? `'${text}` : text;
}

function csvCell(text) {
  return /[,"\r\n]/.test(text) ? `"${defused(text).replaceAll('"', '""')}"` : defused(text);
}

/** Six digits: pages hold numbers to five. */
export function exportedNumber(value) {
  if (value === Infinity) return "inf";
  if (value === -Infinity) return "-inf";
  return Number.isInteger(value) && Math.abs(value) < 2 ** 31 ? String(value) : String(Number(value.toPrecision(6)));
}

function plainText(value) {
  if (value === null) return "";
  return typeof value === "number" ? exportedNumber(value) : String(value);
}

/** A function row -> cell of a csv; each text of a column is looked at once. */
function csvColumn(column) {
  if (column.form === "constant") {
    const cell = csvCell(plainText(column.constant));
    return () => cell;
  }
  if (column.form !== "words") return (row) => plainText(column.get(row));
  const cells = column.words.map(csvCell);
  return (row) => cells[column.values[row]];
}

function nextTurn() {
  return new Promise((done) => setTimeout(done));
}

/** The rows as a csv with the report's columns, made in parts: the page stays alive meanwhile. */
export async function csvOfRows(table, rows) {
  const columns = await Promise.all(table.names.map(async (name) => csvColumn(await table.column(name))));
  const parts = [`${table.names.map(csvCell).join(",")}\n`];
  const together = 5000;
  for (let start = 0; start < rows.length; start += together) {
    const lines = Array.from(rows.subarray(start, start + together), (row) => columns.map((cell) => cell(row)).join(","));
    parts.push(`${lines.join("\n")}\n`);
    await nextTurn();
  }
  return new Blob(parts, { type: "text/csv" });
}

/** Names and cells of a row in two lines between tabs, for a spreadsheet. */
export async function tabbedRow(table, row) {
  const cells = await table.row(row);
  const line = (texts) => texts.map((text) => defused(text.replace(/[\t\r\n]/g, " "))).join("\t");
  return `${line(cells.map(([name]) => name))}\n${line(cells.map(([, value]) => plainText(value)))}\n`;
}

/** Hands a file to the reader. */
export function saveFile(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
