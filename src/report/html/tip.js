// SPDX-License-Identifier: Apache-2.0
// The box that says more about what is pointed at.
import { h } from "./dom.js";
import { counted, number, shortened } from "./format.js";
import { JUDGEMENT_MEANING } from "./judgement.js";
import { timesText } from "./places.js";

/** What the tooltip says of a row. */
function rowFacts(judgements, row, count) {
  const said = [
    ["error", `${number(judgements.error(row))} relative L2`, judgements.error(row) !== null],
    ["one rounding explains", number(judgements.rounding(row)), judgements.rounding(row) !== null],
    ["that is", timesText(judgements.times.all[row]), !Number.isNaN(judgements.times.all[row])],
    ["own error", number(judgements.own(row)), judgements.own(row) !== null],
    ["rounding explains of it", number(judgements.ownFloor(row)), judgements.ownFloor(row) !== null],
    ["verdict", judgements.verdict(row).replaceAll("_", " "), judgements.verdict(row) !== ""],
    ["worst of", counted(count, "tensor"), count > 1],
  ];
  return said.filter(([, , known]) => known).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
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
  const meaning = JUDGEMENT_MEANING[judgements.verdict(row)];
  return [
    h("p", { class: "tip-title" }, shortened(title, 90)),
    h("p", { class: "note" }, shortened(judgements.name(row), 90)),
    h("dl", {}, rowFacts(judgements, row, count)),
    meaning ? h("p", { class: "note" }, meaning) : "",
  ];
}
