// SPDX-License-Identifier: Apache-2.0
// The runs side by side, what differs between their environments first.
import { fold, h, smallTable } from "./dom.js";
import { counted } from "./format.js";

function missed(side) {
  const texts = [
    ...side.damage.map((text) => `damaged: ${text}`),
    ...side.findings,
    ...side.warnings,
    ...side.missed.map((one) => `${one.node}: ${one.reason}`),
  ];
  if (texts.length === 0) return null;
  return fold(`${side.name}: what its capture says (${texts.length})`, false, h("ul", {}, texts.map((text) => h("li", {}, text))));
}

function captured(side) {
  const planned = side.planned > 0 ? `${side.captured} of ${side.planned} planned` : counted(side.records, "record");
  return side.complete ? planned : `${planned}, not complete`;
}

// Two captures never have these in common: they come last.
const OF_ONE_CAPTURE = ["started", "finished", "host.pid"];

function byInterest(a, b) {
  const last = (name) => Number(OF_ONE_CAPTURE.includes(name));
  return last(a) - last(b) || (a < b ? -1 : 1);
}

/** A command line is kept as a JSON list of words. */
function propertyText(value) {
  if (!value.startsWith('["')) return value;
  try {
    return JSON.parse(value).map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word))).join(" ");
  } catch {
    return value;
  }
}

function properties(sides) {
  const names = [...new Set(sides.flatMap((side) => Object.keys(side.properties)))].sort(byInterest);
  const rows = names.map((name) => [name, ...sides.map((side) => propertyText(side.properties[name] ?? ""))]);
  const differs = (row) => row.slice(1).some((value) => value !== row[1]);
  return { different: rows.filter(differs), equal: rows.filter((row) => !differs(row)) };
}

function unmatched(page) {
  if (!page.unmatched || page.unmatched.length === 0) return null;
  const heads = ["side", "step", "tensor", "type", "reason"];
  return fold(`Tensors without a partner (${page.unmatched.length}${page.unmatched.length === 1000 ? " or more" : ""})`, false, smallTable("tensors without a partner", heads, page.unmatched));
}

/** Everything about the runs themselves. */
export function sidesView(page) {
  const sides = page.sides;
  const heads = ["", ...sides.map((side) => side.name)];
  const { different, equal } = properties(sides);
  const basics = [
    ["path", ...sides.map((side) => h("code", {}, side.path))],
    ["layout", ...sides.map((side) => side.layout)],
    ["captured", ...sides.map(captured)],
  ];
  const view = [smallTable(sides.length > 1 ? "the runs" : "the run", heads, basics)];
  if (sides.length > 1) {
    view.push(
      different.length > 0
        ? smallTable("what differs between the environments", heads, different)
        : h("p", {}, "The captures tell of no difference between the environments."),
    );
    if (equal.length > 0) view.push(fold(`The same on both sides (${equal.length})`, false, smallTable("the same on both sides", heads, equal)));
  } else if (different.length + equal.length > 0) {
    view.push(smallTable("environment", heads, [...different, ...equal]));
  }
  return h("div", {}, view, sides.map(missed), unmatched(page));
}
