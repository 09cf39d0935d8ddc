// SPDX-License-Identifier: Apache-2.0
// All rows: find, sort, choose columns, copy, save. What is shown stands in the address.
import { columnMeaning, columnTitle, columnWidth, filledColumns, firstColumns, isChecked } from "./columns.js";
import { copyText, fold, h } from "./dom.js";
import { csvOfRows, saveFile, tabbedRow } from "./export.js";
import { prepareSearch, rowsThatPass, sortedRows, textCounts } from "./find.js";
import { counted, number, shortened, toneOf } from "./format.js";
import { Grid } from "./grid.js";
import { state } from "./state.js";

const FILTERS = ["q", "level", "verdict", "result"];

/** The sort of the address: { name, descending }, or null. Without one opcheck's failures come first. */
function chosenSort(table) {
  const text = state.get("sort") || (isChecked(table) ? "result" : "");
  const name = text.replace(/^-/, "");
  return table.has(name) ? { name, descending: text.startsWith("-") } : null;
}

/** The columns of the address, or the usual ones. */
function chosenColumns(table) {
  const names = state.get("columns").split(",").filter((name) => table.has(name));
  return names.length > 0 ? names : firstColumns(table);
}

/** First click: the largest, which are the worst; texts from their beginning. Then the other way, then none. */
function nextSort(table, column) {
  const sort = chosenSort(table);
  const first = column.isText ? column.name : `-${column.name}`;
  const second = column.isText ? `-${column.name}` : column.name;
  if (sort?.name !== column.name) return first;
  return state.get("sort") === first ? second : "";
}

function headCell(table, column) {
  const sort = chosenSort(table);
  const direction = sort?.name !== column.name ? "none" : sort.descending ? "descending" : "ascending";
  const mark = { none: "", descending: " ▼", ascending: " ▲" }[direction];
  const click = () => state.set({ sort: nextSort(table, column) });
  const title = `${column.name}${columnMeaning(column.name) ? `: ${columnMeaning(column.name)}` : ""}`;
  return h(
    "div",
    { role: "columnheader", class: column.isText ? "grid-cell" : "grid-cell number", "aria-sort": direction },
    h("button", { class: "grid-sort", title, onclick: click }, columnTitle(column.name), h("span", { "aria-hidden": "true" }, mark)),
  );
}

/** Letters that a path has room for: half of a narrow window, as grid.js has it. */
function roomForPath() {
  return Math.max(12, Math.min(47, Math.floor(innerWidth / 15) - 3));
}

/** Where there is little room the end tells most: "….5.self_attn.q_proj output". */
function shortPath(text, room) {
  return room >= 30 || text.length <= room ? shortened(text, room) : `…${text.slice(1 - room)}`;
}

function gridText(column, value) {
  if (value === null) return "";
  if (column.name === "cosine_similarity") return value.toFixed(5); // as exact as the page has it
  if (column.name === "node" || column.name === "weight_name") return shortPath(value, roomForPath());
  return number(value).replace(/^torch\./, "");
}

/** Four digits of a number; a path is cut in its middle, and stands in the title as a whole. */
function fillCell(cell, column, row) {
  const text = gridText(column, column.get(row));
  if (cell.textContent !== text) cell.textContent = text;
  cell.title = column.isText ? column.text(row) : "";
  if (column.name === "verdict" || column.name === "result") cell.className = `grid-cell ${toneOf(text)}`;
}

function selectFilter(name, label, counts) {
  const options = counts.map(([text, count]) => h("option", { value: text }, `${text} (${count.toLocaleString("en")})`));
  const select = h("select", { onchange: () => state.set({ [name]: select.value }) }, h("option", { value: "" }, "all"), options);
  return { element: h("label", {}, h("span", {}, label), select), update: () => (select.value = state.get(name)) };
}

/** Rows of each sheet: a pair may stand in several. */
function levelCounts(column, length) {
  const counts = new Map();
  for (const [text, count] of textCounts(column, length)) {
    for (const level of text.split(" ")) counts.set(level, (counts.get(level) ?? 0) + count);
  }
  return [...counts];
}

/** Selects of the columns that tell rows apart. */
async function selects(table) {
  const labels = { level: "level", verdict: "verdict", result: "result" };
  const made = [];
  for (const [name, label] of Object.entries(labels)) {
    const column = await table.column(name);
    const counts = name === "level" ? levelCounts(column, table.length) : textCounts(column, table.length);
    if (counts.length > 1 || (counts.length === 1 && counts[0][1] < table.length)) made.push(selectFilter(name, label, counts));
  }
  return made;
}

function searchField(table) {
  let timer = 0;
  const input = h("input", { type: "search", placeholder: "words that a row must have", spellcheck: "false", onfocus: () => prepareSearch(table) });
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => state.set({ q: input.value.trim() }, true), 150);
  });
  const update = () => {
    if (input.value.trim() !== state.get("q")) input.value = state.get("q");
  };
  return { element: h("label", { class: "grid-search" }, h("span", {}, "find"), input), update };
}

function setColumns(table, names) {
  const usual = firstColumns(table);
  state.set({ columns: names.join() === usual.join() ? "" : names.join() }, true);
}

/** A box for every column; ticked ones are shown, new ones behind the others. */
function columnChooser(table) {
  const boxes = filledColumns(table).map((name) => {
    const box = h("input", { type: "checkbox", onchange: () => {
      const others = chosenColumns(table).filter((one) => one !== name);
      setColumns(table, box.checked ? [...others, name] : others);
    } });
    const meaning = columnMeaning(name);
    return { name, box, element: h("label", {}, box, h("span", {}, columnTitle(name), meaning && h("small", {}, ` ${meaning}`))) };
  });
  const buttons = h("p", {}, h("button", { class: "small", onclick: () => setColumns(table, firstColumns(table)) }, "the usual ones"), " ",
    h("button", { class: "small", onclick: () => setColumns(table, filledColumns(table)) }, "all"));
  const element = fold("Columns", false, buttons, h("div", { class: "grid-chooser" }, boxes.map((one) => one.element)));
  const update = () => {
    const shown = chosenColumns(table);
    boxes.forEach(({ name, box }) => (box.checked = shown.includes(name)));
    element.firstChild.textContent = `Columns (${shown.length} of ${boxes.length})`;
  };
  return { element, update };
}

class TableView {
  constructor(page, controls) {
    this.page = page;
    this.table = page.table;
    this.controls = controls;
    this.rows = new Uint32Array();
    this.columns = [];
    this.turn = 0;
    this.grid = new Grid({
      label: "rows",
      makeCells: () => this.columns.map((column) => h("div", { role: "gridcell", class: column.isText ? "grid-cell" : "grid-cell number" })),
      fill: (cells, index) => cells.forEach((cell, i) => fillCell(cell, this.columns[i], this.rows[index])),
      open: (index) => state.set({ row: this.rows[index] }),
      copy: (index) => this.copyRow(index),
    });
    this.count = h("p", { class: "grid-count", role: "status" });
    this.said = h("span", { class: "note", role: "status" });
    this.save = h("button", { onclick: () => this.saveRows() }, "Save these rows as csv");
    this.copyButton = h("button", { onclick: () => this.copyRow(this.grid.active) }, "Copy row");
    this.copyButton.title = "the active row, with names, for a spreadsheet; key c in the table";
  }

  async copyRow(index) {
    if (this.rows.length === 0) return;
    await copyText(await tabbedRow(this.table, this.rows[index]));
    this.said.textContent = `row ${this.rows[index]} is copied`;
  }

  async saveRows() {
    this.save.disabled = true;
    this.said.textContent = "one moment";
    saveFile("rows.csv", await csvOfRows(this.table, this.rows));
    this.said.textContent = `${counted(this.rows.length, "row")} saved`;
    this.save.disabled = false;
  }

  async updateColumns() {
    const names = chosenColumns(this.table);
    const columns = await Promise.all(names.map((name) => this.table.column(name)));
    if (names.join() !== chosenColumns(this.table).join()) return; // others were chosen meanwhile
    this.columns = columns;
    this.showColumns();
  }

  showColumns() {
    const focused = [...this.grid.head.children].indexOf(document.activeElement?.parentElement);
    const widths = this.columns.map((column) => columnWidth(column.name, column.isText));
    this.grid.setColumns(this.columns.map((column) => headCell(this.table, column)), widths);
    if (focused >= 0) this.grid.head.children[focused]?.firstChild.focus();
    this.grid.setRows(this.rows.length, this.grid.active, this.rows.indexOf(state.row ?? -1));
  }

  /** The rows of the address's filters, in its order. */
  async updateRows() {
    const turn = ++this.turn;
    const filters = Object.fromEntries(FILTERS.map((key) => [key, state.get(key)]));
    let rows = await rowsThatPass(this.table, filters);
    const sort = chosenSort(this.table);
    if (sort) rows = sortedRows(rows, await this.table.column(sort.name), sort.descending);
    if (turn !== this.turn) return; // asked for anew meanwhile
    this.rows = rows;
    this.showRows();
  }

  showRows() {
    const opened = state.row === null ? -1 : this.rows.indexOf(state.row);
    this.showColumns();
    this.grid.setRows(this.rows.length, 0, opened);
    this.grid.element.scrollTop = 0;
    if (opened >= 0) this.grid.moveTo(opened);
    const all = counted(this.table.length, "row");
    this.count.textContent = this.rows.length === this.table.length ? all : `${this.rows.length.toLocaleString("en")} of ${all}`;
    this.empty.hidden = this.rows.length > 0;
    this.save.disabled = this.rows.length === 0;
    this.controls.forEach((control) => control.update());
  }

  layout() {
    const clear = () => state.set(Object.fromEntries(FILTERS.map((key) => [key, ""])));
    this.empty = h("p", { hidden: true }, "No row has all of this. ", h("button", { class: "small", onclick: clear }, "show all rows"));
    const bar = h("div", { class: "grid-bar" }, this.controls.slice(0, -1).map((control) => control.element), this.count);
    const below = h("div", { class: "grid-bar" }, this.copyButton, this.save, this.said);
    const keys = "Each row is a pair of tensors, in the order of execution. A click on a head sorts. In the table: arrows, "
      + "Page Up and Down, Home and End move; Enter opens; c copies.";
    const note = h("p", { class: "note" }, this.page.kind === "comparison" ? keys : keys.replace("a pair of tensors", this.page.row_is ?? "one record"));
    return h("div", {}, bar, this.controls.at(-1).element, this.grid.element, this.empty, below, note);
  }
}

/** The view of all rows. */
export async function tableView(page) {
  const table = page.table;
  const view = new TableView(page, [searchField(table), ...(await selects(table)), columnChooser(table)]);
  const element = view.layout();
  state.on([...FILTERS, "sort"], () => view.updateRows());
  state.on(["columns"], () => view.updateColumns().then(() => view.controls.forEach((control) => control.update())));
  state.on(["row"], () => view.grid.markOpened(view.rows.indexOf(state.row ?? -1)));
  await view.updateColumns();
  await view.updateRows();
  return element;
}
