// SPDX-License-Identifier: Apache-2.0
// The box that says more about what is pointed at.
import { h } from "./dom.js";
import { counted, shortened } from "./format.js";

/** What the tooltip says of a row. */
function rowFacts(judgements, row, count) {
  const said = [
    ...judgements.measured(row),
    judgements.verdict(row) !== "" && ["verdict", judgements.verdict(row).replaceAll("_", " ")],
    count > 1 && ["worst of", counted(count, judgements.hasScale ? "tensor" : "operator")],
  ];
  return said.filter(Boolean).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
}

/** The map that an element is in, with what is written beside its cells; null: it is in none. */
function mapAround(target) {
  const grid = target.closest(".map-grid")?.getBoundingClientRect();
  return grid ? { top: grid.top, bottom: grid.bottom, right: target.closest(".map-part").getBoundingClientRect().right } : null;
}

const LEAST_TIP = 220; // pixels of width

/** Left and top of the box for what is at `at`: where it covers nothing of `area`, beside it if there is room. */
function placeOfTip(box, at, area) {
  const beside = innerWidth - area.right - 16;
  box.style.maxWidth = area !== at && beside >= LEAST_TIP ? `${Math.min(beside, 416)}px` : "";
  if (box.style.maxWidth !== "") return [area.right + 8, at.top];
  if (area.bottom + 6 + box.offsetHeight < innerHeight) return [at.left, area.bottom + 6];
  if (area.top - box.offsetHeight - 6 > 0) return [at.left, area.top - box.offsetHeight - 6];
  return [at.left, at.top > innerHeight / 2 ? 4 : innerHeight]; // the far end of the window
}

/** A box that says more about what is pointed at. The same words are in the labels of the cells. */
export function tipBox() {
  const box = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  return {
    box,
    hide: () => (box.hidden = true),
    show(target, ...children) {
      box.replaceChildren(...children.flat());
      box.hidden = false;
      const at = target.getBoundingClientRect();
      const [left, top] = placeOfTip(box, at, mapAround(target) ?? at);
      box.style.left = `${Math.max(4, Math.min(left, innerWidth - box.offsetWidth - 8))}px`;
      box.style.top = `${Math.max(4, Math.min(top, innerHeight - box.offsetHeight - 4))}px`;
    },
  };
}

/** Content for the tip of a row, the worst of `count`. */
export function rowTip(judgements, row, count, title) {
  const meaning = judgements.meaning(row);
  return [
    h("p", { class: "tip-title" }, shortened(title, 90)),
    h("p", { class: "note" }, shortened(judgements.name(row), 90)),
    h("dl", {}, rowFacts(judgements, row, count)),
    meaning ? h("p", { class: "note" }, meaning) : "",
  ];
}
