// SPDX-License-Identifier: Apache-2.0
// Elements. Text is always text: nothing of a run is ever parsed as markup.

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** h("button", { class: "x", onclick: f }, "text", other elements, [lists] ...) */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** Two columns: what, how much. Rows whose value is null are left out. */
export function facts(rows) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A part of the page that opens and closes. */
export function fold(title, open, ...children) {
  return h("details", { open }, h("summary", {}, title), ...children);
}

/** A table of few rows: heads are texts, cells texts, numbers or elements. */
export function smallTable(caption, heads, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell ?? ""))))),
    ),
  );
}

/** Copies text; without a clipboard (a page from a file in some browsers) it is selected in a prompt. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { readonly: true }, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
