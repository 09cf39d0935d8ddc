// SPDX-License-Identifier: Apache-2.0
// Who made what the suspect read, and who read what it made: a small graph in layers.
//   docs/formats/page.md, "graph"
import { blobJson } from "./data.js";
import { h, s } from "./dom.js";
import { shortened, toneOf } from "./format.js";
import { state } from "./state.js";

const GRAPH_NODE = { line: 16, padding: 8, letters: 34, letterWidth: 6.9 };
const GRAPH_SIGNS = { bad: "✗", open: "~", good: "✓", "": "·" };
const GRAPH_WORDS = { bad: "wrong", open: "differs, not the first", good: "within rounding or equal", "": "not judged" };
const GRAPH_BASIS = {
  operators: "from the captured operators",
  topology: "from the topology of the dump",
  graph_text: "from the text of the graph",
  equal_values: "from values that are equal: what left one module and came into another",
};

/** The operator of "model.norm::aten.mul.Tensor"; of a parameter its own name and the module that has it. */
function graphLabel(node) {
  const parts = node.name.split("::");
  if (parts.length > 1) return parts.slice(1).join("::");
  return node.leaf ? node.name.split(".").slice(-2).join(".") : node.name;
}

/** The lines of text in a node: name, what it is, what is said of it. */
function nodeLines(node) {
  const label = graphLabel(node) || node.type || node.id;
  const said = node.verdict ? node.verdict.replaceAll("_", " ") : "not judged";
  const mark = `${GRAPH_SIGNS[toneOf(node.verdict)]} ${said}`;
  if (node.leaf) return [shortened(label, GRAPH_NODE.letters), `${node.type || "from outside"}${node.verdict ? `  ${mark}` : ""}`];
  const second = label === node.name ? node.type : node.module;
  return [shortened(label, GRAPH_NODE.letters), ...(second && second !== label ? [shortened(second, GRAPH_NODE.letters + 4)] : []), mark];
}

function nodeWidth(node) {
  const longest = d3.max(nodeLines(node), (line) => line.length);
  return Math.max(80, longest * GRAPH_NODE.letterWidth + (node.leaf ? 36 : 22));
}

/** Everything about a node, for a tooltip and a screen reader. */
function nodeWords(node, isCentre) {
  const cut = [node.more_producers > 0 ? `${node.more_producers} more producers` : null, node.more_consumers > 0 ? `${node.more_consumers} more consumers` : null];
  return [isCentre ? "the centre" : null, node.name || node.id, node.type, node.module, node.verdict ? node.verdict.replaceAll("_", " ") : null, ...cut].filter(Boolean).join(", ");
}

/** Places of nodes and edges. The layout gets copies, and names of ours: those of a run may be anything. */
function graphLayout(graph) {
  const places = new Map(graph.nodes.map((node, i) => [node.id, String(i)]));
  const nodes = graph.nodes.map((node, i) => ({ v: String(i), width: nodeWidth(node), height: nodeLines(node).length * GRAPH_NODE.line + 2 * GRAPH_NODE.padding }));
  const edges = joinedEdges(graph).map((edge) => ({
    v: places.get(edge.from), w: places.get(edge.to), minlen: 1, weight: 1, edge,
    width: Math.min(170, 7 * d3.max(edge.lines, (line) => line.length)), height: 14 * edge.lines.length, labeloffset: 4, labelpos: "r",
  })).filter((edge) => edge.v !== undefined && edge.w !== undefined && edge.v !== edge.w);
  const measured = {};
  dagre.layout(nodes, edges, { nodesep: 24, ranksep: 34, edgesep: 12 }, measured);
  const right = Math.max(d3.max(nodes, (node) => node.x + node.width / 2), d3.max(edges, (edge) => edge.x + edge.width) ?? 0);
  return { nodes, edges, width: right, height: d3.max(nodes, (node) => node.y + node.height / 2) };
}

/** Several tensors between the same two nodes are one arrow with several lines. */
function joinedEdges(graph) {
  const groups = d3.group(graph.edges, (edge) => edge.from, (edge) => edge.to);
  return [...groups.values()].flatMap((byTarget) => [...byTarget.values()]).map((same) => {
    const lines = same.map((edge) => shortened(edge.label || edge.slot || "", 26));
    const full = same.map((edge) => [edge.slot, edge.label].filter(Boolean).join(": "));
    return { from: same[0].from, to: same[0].to, lines: lines.length > 3 ? [...lines.slice(0, 2), `and ${lines.length - 2} more`] : lines, full: full.join("; ") };
  });
}

function edgeLine(edge) {
  const line = d3.line().x((point) => point.x).y((point) => point.y).curve(d3.curveBasis);
  return s("path", { d: line(edge.points), class: "edge", "marker-end": "url(#graph-arrow)" }, s("title", {}, edge.edge.full));
}

function edgeText(edge) {
  const top = edge.y - edge.height / 2;
  return s("g", { class: "edge" },
    s("title", {}, edge.edge.full),
    edge.edge.lines.map((text, i) => s("text", { x: edge.x, y: top + 11 + 14 * i, "text-anchor": "middle" }, text)));
}

/** "+5 more" above or below a node. */
function cutMark(count, noun, x, y) {
  if (!(count > 0)) return null;
  return s("text", { class: "cut", x, y, "text-anchor": "middle" }, `+${count} more ${noun}${count === 1 ? "" : "s"}`);
}

function nodeDrawing(node, place, isCentre) {
  const [left, top] = [place.x - place.width / 2, place.y - place.height / 2];
  const opens = node.row !== null;
  const open = () => state.set({ row: node.row });
  const keys = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open();
  };
  const words = nodeWords(node, isCentre);
  const given = opens ? { role: "button", tabindex: 0, onclick: open, onkeydown: keys, "aria-label": `${words}; opens its row` } : { role: "img", "aria-label": words };
  return s("g", { ...given, class: `node ${toneOf(node.verdict)}${isCentre ? " centre" : ""}${node.leaf ? " outside" : ""}`, "data-id": node.id },
    s("title", {}, words),
    s("rect", { x: left, y: top, width: place.width, height: place.height, rx: node.leaf ? place.height / 2 : 5 }),
    nodeLines(node).map((text, i, lines) => s("text", { x: place.x, y: top + GRAPH_NODE.padding + 12 + GRAPH_NODE.line * i, "text-anchor": "middle", class: i === 0 ? "name" : i === lines.length - 1 ? "said" : "quiet" }, text)),
    cutMark(node.more_producers, "producer", place.x, top - 5),
    cutMark(node.more_consumers, "consumer", place.x, top + place.height + 13));
}

function arrowHead() {
  return s("defs", {}, s("marker", { id: "graph-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0,0L8,4L0,8z" })));
}

/** Nodes in the order of the layers, so that the keyboard goes from producers to consumers. */
function graphDrawing(graph) {
  const laid = graphLayout(graph);
  const order = d3.sort(d3.range(graph.nodes.length), (i) => laid.nodes[i].y, (i) => laid.nodes[i].x);
  const pad = 18;
  return s("svg", { width: laid.width + 2 * pad, height: laid.height + 2 * pad, viewBox: `${-pad} ${-pad} ${laid.width + 2 * pad} ${laid.height + 2 * pad}`, class: "graph" },
    arrowHead(),
    laid.edges.map(edgeLine),
    laid.edges.map(edgeText),
    order.map((i) => nodeDrawing(graph.nodes[i], laid.nodes[i], graph.nodes[i].id === graph.centre)));
}

function graphLegend(graph) {
  const tones = ["bad", "open", "good", ""].filter((tone) => graph.nodes.some((node) => toneOf(node.verdict) === tone));
  return h("p", { class: "legend" }, h("span", {}, "double frame: the centre"), tones.map((tone) => h("span", {}, h("span", { class: tone }, GRAPH_SIGNS[tone]), GRAPH_WORDS[tone])), graph.nodes.some((node) => node.leaf) ? h("span", {}, "round: a parameter or an input") : null);
}

/** Brings the centre into the middle of the box, once it is shown. */
function centreInView(box) {
  const watcher = new ResizeObserver(() => {
    const centre = box.querySelector(".centre rect");
    if (centre === null || box.clientWidth === 0) return;
    watcher.disconnect();
    const [inner, outer] = [centre.getBoundingClientRect(), box.getBoundingClientRect()];
    box.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
    box.scrollTop += inner.top + inner.height / 2 - outer.top - outer.height / 2;
  });
  watcher.observe(box);
}

/** The neighbourhood, or why there is none. */
export async function graphView() {
  const graph = await blobJson("graph");
  if (graph.nodes.length === 0) return h("p", {}, `There is no graph: ${graph.reason ?? "nothing is known of who reads what"}.`);
  const centre = graph.nodes.find((node) => node.id === graph.centre);
  const box = h("div", { class: "graph-box", tabindex: 0, role: "region", "aria-label": "graph of the neighbourhood" }, graphDrawing(graph));
  centreInView(box);
  const basis = GRAPH_BASIS[graph.basis];
  return h("div", {},
    h("p", {}, "What ", h("code", {}, shortened(centre.name, 80)), " read and who read its result; data flow downwards. Choose a node to open its row."),
    graphLegend(graph),
    box,
    basis ? h("p", { class: "note" }, `Who made and who read what is known ${basis}.`) : null);
}
