// SPDX-License-Identifier: Apache-2.0
// Rows in a window that scrolls: only those that can be seen are elements, and these are used again. All rows have one
// height, so a place on the bar is a row. Own code: nothing in the registries does this without a framework.
import { h } from "./dom.js";

const ROW_HEIGHT = 28; // pixels; style.css says the same
const TALLEST = 8_000_000; // pixels; browsers draw no taller element. Beyond, the bar moves in larger steps.
const SPARE = 4; // rows above and below the window

/** makeCells() -> elements of a row; fill(cells, index) writes row `index` into them; open(index) on a click or Enter */
export class Grid {
  constructor({ label, makeCells, fill, open, copy }) {
    Object.assign(this, { makeCells, fill, open, copy, count: 0, active: 0, opened: -1, pool: [] });
    this.head = h("div", { role: "row", class: "grid-row grid-head", "aria-rowindex": 1 });
    this.body = h("div", { role: "rowgroup", class: "grid-body" });
    this.element = h(
      "div",
      { role: "grid", class: "grid", tabindex: 0, "aria-label": label, "aria-readonly": "true", onkeydown: (event) => this.onKey(event), onscroll: () => this.draw() },
      h("div", { role: "rowgroup", class: "grid-heads" }, this.head),
      this.body,
    );
    new ResizeObserver(() => (this.waits && this.element.clientHeight > 0 ? this.moveTo(this.active) : this.draw())).observe(this.element);
  }

  /** Other columns: heads are elements, widths in characters. */
  setColumns(heads, widths) {
    this.head.replaceChildren(...heads);
    this.element.style.setProperty("--grid-columns", widths.map((width) => `min(${width}ch, 50vw)`).join(" "));
    this.element.setAttribute("aria-colcount", heads.length);
    this.body.replaceChildren();
    this.pool = [];
  }

  /** Other rows; `active` is the one that the keys start from. */
  setRows(count, active, opened) {
    Object.assign(this, { count, active: Math.max(0, Math.min(active, count - 1)), opened });
    const height = Math.min(count * ROW_HEIGHT, TALLEST);
    this.scale = count * ROW_HEIGHT > TALLEST ? (count * ROW_HEIGHT) / TALLEST : 1;
    this.body.style.height = `${height}px`;
    this.element.setAttribute("aria-rowcount", count + 1);
    this.pool.forEach((one) => (one.index = -1));
    this.draw();
  }

  markOpened(index) {
    this.opened = index;
    if (index >= 0) this.moveTo(index);
    else this.draw(true);
  }

  get pageRows() {
    return Math.max(1, Math.floor((this.element.clientHeight - this.head.offsetHeight) / ROW_HEIGHT) - 1);
  }

  /** Makes that row the active one and brings it into the window. */
  moveTo(index) {
    this.active = Math.max(0, Math.min(index, this.count - 1));
    this.waits = this.element.clientHeight === 0; // until the view is shown
    const top = (this.active * ROW_HEIGHT) / this.scale;
    const seen = this.element.clientHeight - this.head.offsetHeight - 2 * ROW_HEIGHT;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + seen) this.element.scrollTop = top - seen;
    this.draw(true);
  }

  onKey(event) {
    if (event.target !== this.element || this.count === 0) return;
    const key = event.key;
    if (key === "Enter" || key === " ") this.open(this.active);
    else if (key.toLowerCase() === "c" && !event.altKey) {
      if (getSelection().toString() !== "") return; // the browser copies what is marked
      this.copy(this.active);
    } else {
      const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: this.pageRows, PageUp: -this.pageRows, Home: -this.count, End: this.count };
      if (steps[key] === undefined) return;
      this.moveTo(this.active + steps[key]);
    }
    event.preventDefault();
  }

  /** The element for a row, from those that are there. */
  pooled(index, size) {
    while (this.pool.length < size) {
      const cells = this.makeCells();
      const one = { index: -1, cells, element: null };
      one.element = h("div", { role: "row", class: "grid-row", onclick: () => this.onClick(one.index) }, cells);
      this.body.append(one.element);
      this.pool.push(one);
    }
    return this.pool[index % this.pool.length];
  }

  onClick(index) {
    if (getSelection().toString() !== "") return; // text is being marked
    this.active = index;
    this.open(index);
    this.draw(true);
  }

  /** Fills what is in the window. marks: rows are where they were, but another one is active or open. */
  draw(marks = false) {
    if (this.scale === undefined || this.element.clientHeight === 0) return;
    const size = Math.ceil(this.element.clientHeight / ROW_HEIGHT) + 2 * SPARE;
    const top = this.element.scrollTop;
    const first = Math.max(0, Math.floor((top * this.scale) / ROW_HEIGHT) - SPARE);
    const shift = top - top * this.scale;
    for (let index = first; index < first + Math.max(size, this.pool.length); index++) this.place(index, size, shift, marks);
    const seen = this.pool.find((one) => one.index === this.active);
    if (seen) this.element.setAttribute("aria-activedescendant", seen.element.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  place(index, size, shift, marks) {
    const one = this.pooled(index, size);
    one.element.hidden = index >= this.count;
    if (index >= this.count) one.index = -1;
    if (one.element.hidden) return;
    one.element.style.transform = `translateY(${index * ROW_HEIGHT + shift}px)`;
    if (one.index !== index) this.fill(one.cells, index);
    else if (!marks && one.marked) return;
    one.index = index;
    one.marked = true;
    one.element.id = `grid-row-${index}`;
    one.element.setAttribute("aria-rowindex", index + 2);
    one.element.classList.toggle("active", index === this.active);
    one.element.setAttribute("aria-selected", String(index === this.opened));
  }
}
