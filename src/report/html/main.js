// SPDX-License-Identifier: Apache-2.0
// Puts the parts together. Each view is made when it is first looked at.
import { aboutBox } from "./about.js";
import { hasBlob, openPage } from "./data.js";
import { h } from "./dom.js";
import { graphView } from "./graph.js";
import { mapView } from "./map.js";
import { operationsView } from "./operations.js";
import { quantisationView } from "./quantisation.js";
import { sidesView } from "./sides.js";
import { state } from "./state.js";
import { tableView } from "./table.js";
import { tensorPanel } from "./tensor.js";
import { treeView } from "./tree.js";
import { verdictBanner } from "./verdict.js";

/** The views of a page: name, title, a function that makes it (or a promise of it). */
function viewsOf(page) {
  return [
    (page.kind === "comparison" || page.axis) && { name: "map", title: "Map", make: () => mapView(page) },
    page.table.has("module") && !page.axis && { name: "modules", title: "Modules", make: () => treeView(page) },
    page.totals && { name: "operations", title: "Operations", make: () => operationsView(page) },
    page.counts?.weights && { name: "quantisation", title: "Quantisation", make: () => quantisationView(page) },
    hasBlob("graph") && { name: "graph", title: "Neighbourhood", make: graphView },
    { name: "table", title: "Table", make: () => tableView(page) },
    { name: "runs", title: page.sides.length > 1 ? "Runs" : "Run", make: () => sidesView(page) },
  ].filter(Boolean);
}

function tabBar(views, show) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const at = views.findIndex((view) => view.name === shownView(views).name);
    const next = views[(at + step + views.length) % views.length];
    show(next.name);
    document.getElementById(`tab-${next.name}`).focus();
  };
  const tabs = views.map((view) =>
    h("button", { role: "tab", id: `tab-${view.name}`, "aria-controls": `view-${view.name}`, onclick: () => show(view.name) }, view.title));
  return h("div", { role: "tablist", class: "tabs", "aria-label": "views", onkeydown: move }, tabs);
}

function shownView(views) {
  return views.find((view) => view.name === state.get("view")) ?? views[0];
}

/** The banner is small beside any view but the first. */
function viewArea(page, banner) {
  const views = viewsOf(page);
  const panels = views.map((view) => h("section", { role: "tabpanel", id: `view-${view.name}`, "aria-labelledby": `tab-${view.name}`, hidden: true }));
  const bar = tabBar(views, (name) => state.set({ view: name }));
  const update = async () => {
    const shown = shownView(views);
    banner.classList.toggle("small", shown !== views[0]);
    views.forEach((view, i) => {
      panels[i].hidden = view !== shown;
      const tab = bar.children[i];
      tab.setAttribute("aria-selected", String(view === shown));
      tab.tabIndex = view === shown ? 0 : -1;
    });
    const panel = panels[views.indexOf(shown)];
    if (!panel.hasChildNodes()) {
      panel.append(h("p", { class: "note" }, "one moment"));
      panel.replaceChildren(await shown.make());
    }
  };
  state.on(["view"], update);
  return { area: h("div", { class: "views" }, bar, panels), ready: update() };
}

async function start() {
  const page = await openPage();
  const banner = verdictBanner(page);
  const { area, ready } = viewArea(page, banner);
  const tensor = tensorPanel(page);
  document.getElementById("page").replaceChildren(banner, h("div", { class: "desk" }, area, tensor.panel), aboutBox());
  await Promise.all([ready, tensor.ready]);
  performance.mark("assay-interactive");
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  document.documentElement.dataset.ready = "false";
  throw error;
});
