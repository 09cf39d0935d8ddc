// SPDX-License-Identifier: Apache-2.0
// What the page holds, unpacked when it is asked for.   docs/formats/page.md

export function hasBlob(name) {
  return document.getElementById(`blob-${name}`) !== null;
}

/** Bytes of a blob; null where the page has none of that name. */
export async function blobBytes(name) {
  const element = document.getElementById(`blob-${name}`);
  if (element === null) return null;
  const packed = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export async function blobText(name) {
  const bytes = await blobBytes(name);
  return bytes === null ? null : new TextDecoder().decode(bytes);
}

export async function blobJson(name) {
  const text = await blobText(name);
  return text === null ? null : JSON.parse(text);
}

/** Four planes of `count` bytes each to 32-bit values: Float32Array, Int32Array or Uint32Array. */
export function fromPlanes(bytes, count, Type) {
  const joined = new Uint8Array(count * 4);
  for (let plane = 0; plane < 4; plane++) {
    const start = plane * count;
    for (let i = 0; i < count; i++) joined[i * 4 + plane] = bytes[start + i];
  }
  return new Type(joined.buffer);
}

const EMPTY_INTEGER = -(2 ** 31);

/** One column: get(row) is a number, a text, or null for an empty cell. */
class Column {
  constructor(description, values, words) {
    this.name = description.name;
    this.form = description.form;
    this.constant = description.value;
    this.values = values; // typed array; of words: indices
    this.words = words; // list of texts; only of words
  }

  get isText() {
    return this.form === "words" || typeof this.constant === "string";
  }

  get(row) {
    switch (this.form) {
      case "constant":
        return this.constant;
      case "words":
        return this.values[row] === 0 ? null : this.words[this.values[row]];
      case "integer":
        return this.values[row] === EMPTY_INTEGER ? null : this.values[row];
      default:
        return Number.isNaN(this.values[row]) ? null : this.values[row];
    }
  }

  text(row) {
    const value = this.get(row);
    return value === null ? "" : String(value);
  }
}

/** A table of the page. Columns are unpacked once, at their first use. */
export class Table {
  constructor(description) {
    this.length = description.rows;
    this.descriptions = description.columns;
    this.names = description.columns.map((column) => column.name);
    this.unpacked = new Map();
  }

  has(name) {
    return this.names.includes(name);
  }

  /** Says whether any row has something in that column. */
  isEmpty(name) {
    const description = this.descriptions.find((one) => one.name === name);
    return description === undefined || (description.form === "constant" && (description.value === null || description.value === ""));
  }

  /** Promise of a Column; one of empty cells where there is none of that name. */
  column(name) {
    if (!this.unpacked.has(name)) {
      const description = this.descriptions.find((one) => one.name === name);
      this.unpacked.set(name, this.unpack(description ?? { name, form: "constant", value: null }));
    }
    return this.unpacked.get(name);
  }

  async columns(names) {
    return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await this.column(name)])));
  }

  async unpack(description) {
    if (description.form === "constant") return new Column(description);
    const bytes = await blobBytes(description.blob);
    if (description.form === "number") return new Column(description, fromPlanes(bytes, this.length, Float32Array));
    if (description.form === "integer") return new Column(description, fromPlanes(bytes, this.length, Int32Array));
    const size = new DataView(bytes.buffer).getUint32(0, true);
    const words = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
    return new Column(description, fromPlanes(bytes.subarray(4 + size), this.length, Uint32Array), words);
  }

  /** All cells of a row as [name, value], without empty ones. */
  async row(index) {
    const columns = await Promise.all(this.names.map((name) => this.column(name)));
    return columns.map((column) => [column.name, column.get(index)]).filter(([, value]) => value !== null && value !== "");
  }
}

export async function openPage() {
  const page = await blobJson("page");
  page.table = new Table(page.table);
  return page;
}
