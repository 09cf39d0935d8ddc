// SPDX-License-Identifier: Apache-2.0
// Whose work the page holds.
import { blobText } from "./data.js";
import { fold, h } from "./dom.js";

export function aboutBox() {
  const text = h("pre", { tabindex: 0 });
  const box = fold("About this page", false, h("p", {}, "Made by Assay. It holds everything that it shows, and loads nothing."), text);
  box.addEventListener("toggle", async () => {
    if (box.open && text.textContent === "") text.textContent = await blobText("licences");
  });
  return h("footer", {}, box);
}
