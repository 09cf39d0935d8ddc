// SPDX-License-Identifier: Apache-2.0
// The modules as a tree: folded, equal neighbours together, each with the worst of what is below.
import { h } from "./dom.js";
import { counted, searchWords } from "./format.js";
import { LEVEL, MARK, readPlaces, timesText } from "./places.js";
import { state } from "./state.js";

const MOST_MODULES_FOUND = 300;

// ---- the modules ----

function moduleParts(module) {
  if (module === "") return [];
  return module.includes("/") || /^\d+_/.test(module) ? module.split("/") : module.split(".");
}

function newModule(name, label, parent) {
  return { name, label, parent, children: new Map(), rows: [], types: new Set(), operators: 0 };
}

function moduleOf(root, module) {
  const separator = module.includes("/") ? "/" : ".";
  return moduleParts(module).reduce((parent, part) => {
    if (!parent.children.has(part))
      parent.children.set(part, newModule(parent.parent === null ? part : `${parent.name}${separator}${part}`, part, parent));
    return parent.children.get(part);
  }, root);
}

function addPlace(root, place, judgements) {
  let node = moduleOf(root, place.module);
  if (place.operator !== "") {
    if (!node.children.has(place.operator)) node.children.set(place.operator, newModule(place.name, place.operator, node));
    node = node.children.get(place.operator);
    node.isOperator = true;
  }
  for (const row of place.rows) node.rows.push(row);
  const { my_op_type, golden_op_type } = judgements.columns;
  for (const type of [my_op_type.get(place.rows[0]), golden_op_type.get(place.rows[0])]) if (type) node.types.add(type);
}

/** Sums up what is below each module, and what its structure is. */
function sumUp(node, judgements) {
  const children = [...node.children.values()];
  children.forEach((child) => sumUp(child, judgements));
  const worst = children.map((child) => child.worst).filter((row) => row !== null);
  node.ownWorst = judgements.worst(node.rows);
  node.worst = judgements.worst(node.ownWorst === null ? worst : [node.ownWorst, ...worst]);
  node.wrong = d3.sum(node.rows, (row) => judgements.mark[row] === MARK.wrong) + d3.sum(children, (child) => child.wrong);
  node.below = node.rows.length + d3.sum(children, (child) => child.below);
  node.shape = `${[...node.types].join("|")}(${children.map((child) => `${child.label}:${child.shape}`).join(",")})`;
}

/** "0" and "12" are neighbours, and "0_Decoder_layer" and "1_Decoder_layer". */
function familyOf(label) {
  const found = /^(\d+)(?:_(.*))?$/.exec(label);
  return found ? (found[2] ?? "") : null;
}

function areAlike(a, b) {
  return a.wrong === 0 && b.wrong === 0 && familyOf(a.label) !== null && familyOf(a.label) === familyOf(b.label) && a.shape === b.shape;
}

function alikeNode(list, parent, judgements) {
  const label = `${list[0].label}-${list.at(-1).label} (${list.length} alike)`;
  return {
    name: `${list[0].name} … ${list.at(-1).name}`, label, parent, list, rows: [], types: list[0].types, wrong: 0,
    worst: judgements.worst(list.map((one) => one.worst)), below: d3.sum(list, (one) => one.below),
  };
}

/** What stands below a module: of equal neighbours one line. */
function shownChildren(node, judgements) {
  if (node.list) return node.list;
  const runs = [];
  for (const child of node.children.values()) {
    if (runs.length > 0 && areAlike(runs.at(-1)[0], child)) runs.at(-1).push(child);
    else runs.push([child]);
  }
  return runs.flatMap((run) => (run.length > 2 ? [alikeNode(run, node, judgements)] : run));
}

function allModules(node) {
  return [...node.children.values()].flatMap((child) => [child, ...allModules(child)]);
}

async function readModules(page) {
  const places = await readPlaces(page);
  const root = newModule("", "(model)", null);
  for (const place of places.places) addPlace(root, place, places.judgements);
  sumUp(root, places.judgements);
  return { judgements: places.judgements, root };
}

// ---- badges ----

function worstBadge(node, judgements) {
  if (node.worst === null) return null;
  const [level, times] = [judgements.level.all[node.worst], judgements.times.all[node.worst]];
  if (level === LEVEL.unknown) return null;
  if (level === LEVEL.broken) return h("span", { class: "badge level-10" }, "✕ NaN or infinity");
  if (level === LEVEL.equal) return h("span", { class: "badge level-1" }, "equal");
  if (level === LEVEL.within) return h("span", { class: "badge level-2" }, "within rounding");
  return h("span", { class: `badge level-${level}`, title: "error in units of what one rounding explains" }, `${timesText(times)} rounding`);
}

function treeBadges(node, judgements, isComparison) {
  if (!isComparison && node.wrong === 0) return [h("span", { class: "note" }, counted(node.below, "tensor"))];
  const verdict = node.worst === null ? "" : judgements.verdict(node.worst).replaceAll("_", " ");
  const wrong = node.wrong > 0 ? h("span", { class: "badge wrong" }, `◆ ${judgements.mark[node.worst] === MARK.wrong ? verdict : "wrong"}${node.wrong > 1 ? ` (${node.wrong})` : ""}`) : null;
  const word = node.wrong === 0 && !["", "equal", "noise"].includes(verdict) ? h("span", { class: "note" }, verdict) : null;
  return [wrong, worstBadge(node, judgements), word];
}

// ---- items ----

function treeItem(node, depth, tree) {
  const { judgements } = tree.modules;
  const hasChildren = node.list !== undefined || node.children?.size > 0;
  const label = depth > 1 || !tree.isFlat ? node.label : node.name;
  const types = [...node.types].filter((type) => !node.label.startsWith(type)).join(" / ");
  const item = h("li", { role: "treeitem", "aria-level": depth, "aria-expanded": hasChildren ? "false" : null, tabindex: -1, "data-name": node.name },
    h("div", { class: `leaf${node.isOperator ? " operator" : ""}` },
      h("span", { class: "twist", "aria-hidden": "true" }, hasChildren ? "▸" : ""),
      h("span", { class: "name" }, label), types ? h("span", { class: "note" }, types) : null, treeBadges(node, judgements, tree.isComparison)));
  item.node = node;
  return item;
}

function setItemOpen(item, open, tree) {
  if (!item.hasAttribute("aria-expanded")) return;
  item.setAttribute("aria-expanded", String(open));
  item.querySelector(".twist").textContent = open ? "▾" : "▸";
  if (open && item.querySelector("ul") === null) {
    const depth = Number(item.getAttribute("aria-level")) + 1;
    item.append(h("ul", { role: "group" }, shownChildren(item.node, tree.modules.judgements).map((child) => treeItem(child, depth, tree))));
  }
  const list = item.querySelector("ul");
  if (list) list.hidden = !open;
}

function isItemOpen(item) {
  return item.getAttribute("aria-expanded") === "true";
}

/** Opens what leads to what is wrong; where nothing is, the outermost level. */
function openFirst(list, tree) {
  const isHealthy = tree.modules.root.wrong === 0;
  for (const item of list.children) {
    if (item.node.wrong === 0 && !isHealthy) continue;
    setItemOpen(item, true, tree);
    if (isItemOpen(item) && !isHealthy) openFirst(item.querySelector("ul"), tree);
  }
}

// ---- keys ----

function visibleItems(list) {
  return [...list.querySelectorAll("[role=treeitem]")].filter((item) => item.closest("ul[hidden]") === null);
}

function focusItem(tree, item) {
  if (!item) return;
  tree.list.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
  item.setAttribute("tabindex", "0");
  item.focus();
}

function outerItem(item) {
  return item.parentNode.closest("[role=treeitem]");
}

function openWorst(item) {
  if (item.node.worst !== null) state.set({ row: item.node.worst });
}

function useTreeKey(event, tree) {
  const item = event.target.closest("[role=treeitem]");
  const items = visibleItems(tree.list);
  const at = items.indexOf(item);
  const canOpen = item.hasAttribute("aria-expanded");
  const actions = {
    ArrowDown: () => focusItem(tree, items[at + 1]),
    ArrowUp: () => focusItem(tree, items[at - 1]),
    Home: () => focusItem(tree, items[0]),
    End: () => focusItem(tree, items.at(-1)),
    ArrowRight: () => (canOpen && !isItemOpen(item) ? setItemOpen(item, true, tree) : canOpen && focusItem(tree, items[at + 1])),
    ArrowLeft: () => (canOpen && isItemOpen(item) ? setItemOpen(item, false, tree) : focusItem(tree, outerItem(item))),
    Enter: () => openWorst(item),
    " ": () => setItemOpen(item, !isItemOpen(item), tree),
  };
  if (actions[event.key] === undefined) return;
  actions[event.key]();
  event.preventDefault();
}

function useTreeClick(event, tree) {
  const item = event.target.closest("[role=treeitem]");
  if (item === null) return;
  focusItem(tree, item);
  if (event.target.classList.contains("twist") || item.node.list) setItemOpen(item, !isItemOpen(item), tree);
  else openWorst(item);
}

// ---- search ----

function matchesSearch(node, words, type, verdict, judgements) {
  const text = `${node.name} ${[...node.types].join(" ")}`.toLowerCase();
  if (!words.every((word) => text.includes(word))) return false;
  if (type !== "" && !node.types.has(type)) return false;
  return verdict === "" || node.rows.some((row) => judgements.verdict(row) === verdict);
}

function foundModules(tree) {
  const [words, type, verdict] = [searchWords(state.get("q")), state.get("type"), state.get("verdict")];
  if (words.length === 0 && type === "" && verdict === "") return null;
  return allModules(tree.modules.root).filter((node) => matchesSearch(node, words, type, verdict, tree.modules.judgements));
}

function treeChoice(name, words, values) {
  const options = ["", ...values].map((value) => h("option", { value, selected: value === state.get(name) }, value === "" ? "any" : value.replaceAll("_", " ")));
  return h("label", {}, `${words} `, h("select", { name, onchange: (event) => state.set({ [name]: event.target.value }) }, options));
}

function treeSearch(tree) {
  const nodes = allModules(tree.modules.root);
  const types = [...new Set(nodes.flatMap((node) => [...node.types]))].sort();
  const { judgements } = tree.modules;
  const verdicts = new Set();
  for (let row = 0; row < judgements.length; row++) verdicts.add(judgements.verdict(row));
  verdicts.delete("");
  const field = h("input", { name: "q", type: "search", value: state.get("q"), placeholder: "words of the name or type", oninput: (event) => state.set({ q: event.target.value }, true) });
  return h("div", { class: "map-controls", role: "search" }, h("label", {}, "search ", field),
    types.length > 0 ? treeChoice("type", "type", types) : null, verdicts.size > 0 ? treeChoice("verdict", "verdict", [...verdicts].sort()) : null);
}

// ---- the view ----

/** The form shows what is searched for, whoever set it. */
function updateForm(form) {
  for (const field of form.querySelectorAll("[name]")) if (field.value !== state.get(field.name)) field.value = state.get(field.name);
}

function fillTree(tree) {
  const found = foundModules(tree);
  tree.isFlat = found !== null;
  const nodes = found?.slice(0, MOST_MODULES_FOUND) ?? shownChildren(tree.modules.root, tree.modules.judgements);
  const root = tree.modules.root.rows.length > 0 && found === null ? [{ ...tree.modules.root, children: new Map(), worst: tree.modules.root.ownWorst, wrong: 0 }] : [];
  tree.list.replaceChildren(...[...nodes, ...root].map((node) => treeItem(node, 1, tree)));
  if (found === null) openFirst(tree.list, tree);
  tree.list.firstElementChild?.setAttribute("tabindex", "0");
  const more = found !== null && found.length > MOST_MODULES_FOUND ? `, the first ${MOST_MODULES_FOUND} are shown` : "";
  tree.count.textContent = found === null ? "" : `${counted(found.length, "module")} found${more}`;
}

/** The tree, with its search. */
export async function treeView(page) {
  const tree = { modules: await readModules(page), isComparison: page.kind === "comparison", isFlat: false };
  tree.list = h("ul", { role: "tree", class: "tree", "aria-label": "modules", onkeydown: (event) => useTreeKey(event, tree), onclick: (event) => useTreeClick(event, tree) });
  tree.count = h("p", { class: "note", role: "status" });
  const form = treeSearch(tree);
  const update = () => {
    updateForm(form);
    fillTree(tree);
  };
  fillTree(tree);
  state.on(["q", "type", "verdict"], update);
  return h("div", { class: "modules" }, h("h2", {}, "Modules"),
    h("p", { class: "note" }, tree.isComparison ? "Each line has the worst of what is below. A name opens its worst tensor; ▸ opens the line." : "A name opens a tensor of it; ▸ opens the line."), form, tree.count, tree.list);
}
