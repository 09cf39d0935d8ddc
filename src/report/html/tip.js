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
      const below = at.bottom + 6 + box.offsetHeight < innerHeight;
      box.style.left = `${Math.max(4, Math.min(at.left, innerWidth - box.offsetWidth - 8))}px`;
      box.style.top = `${below ? at.bottom + 6 : Math.max(4, at.top - box.offsetHeight - 6)}px`;
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
