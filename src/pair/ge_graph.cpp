// SPDX-License-Identifier: Apache-2.0
// An operator's origin is asked of five sources in turn: the metadata of the optimised graph, its
// name, its name as a row of known names, its dump file, its name as far as known names begin it.
#include "pair/ge_graph.hpp"

#include <algorithm>

#include "base/mapped_file.hpp"
#include "base/numbers.hpp"

namespace assay::pair {
namespace {

using formats::GraphAttribute;
using formats::GraphAttributes;
using formats::GraphOp;

const GraphAttribute* attribute(const GraphAttributes& attributes, std::string_view key) {
  const auto found = attributes.find(key);
  return found == attributes.end() ? nullptr : &found->second;
}

Result<std::vector<formats::GraphText>> read_graphs(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  return in_file(path, formats::read_graph_text(as_text(file.bytes())));
}

}  // namespace

std::string file_spelling(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (c == ' ' || c == '.' || c == '/' || c == '\\') c = '_';
  }
  return out;
}

void GeGraph::Index::add(GraphOp op) {
  places.emplace(op.name, ops.size());
  places.emplace(file_spelling(op.name), ops.size());
  ops.push_back(std::move(op));
}

const GraphOp* GeGraph::Index::find(std::string_view name) const {
  const auto found = places.find(name);
  return found == places.end() ? nullptr : &ops[found->second];
}

Result<GeGraph> GeGraph::read(const std::string& path) {
  ASSAY_TRY(std::vector<formats::GraphText> graphs, read_graphs(path));
  GeGraph out;
  for (formats::GraphText& graph : graphs) {
    for (GraphOp& op : graph.ops) out.graph_.add(std::move(op));
  }
  return out;
}

Status GeGraph::add_metadata(const std::string& path) {
  ASSAY_TRY(std::vector<formats::GraphText> graphs, read_graphs(path));
  for (formats::GraphText& graph : graphs) {
    for (GraphOp& op : graph.ops) optimized_.add(std::move(op));
  }
  return {};
}

const GraphOp* GeGraph::find(std::string_view name) const { return graph_.find(name); }

int64_t GeGraph::position(std::string_view name) const {
  const auto found = graph_.places.find(name);
  return found == graph_.places.end() ? -1 : static_cast<int64_t>(found->second);
}

OperatorOrigin GeGraph::origin(std::string_view name, const std::vector<std::string>& origins,
                               const std::set<std::string, std::less<>>& dumped) const {
  const auto known = [this](const std::vector<std::string>& names) {
    std::vector<const GraphOp*> members;
    for (const std::string& member : names) {
      if (const GraphOp* op = find(member)) members.push_back(op);
    }
    return members;
  };
  if (const GraphOp* op = optimized_.find(name)) {
    if (const GraphAttribute* names = attribute(op->attributes, "_datadump_original_op_names")) {
      // An empty list: the compiler made the operator, it stands for nothing.
      const bool made = std::all_of(names->texts.begin(), names->texts.end(),
                                    [](const std::string& text) { return text.empty(); });
      auto members = known(names->texts);
      if (made || !members.empty()) return {std::move(members), Rule::FusionMetadata, ""};
    }
  }
  if (const GraphOp* op = find(name)) return {{op}, Rule::EqualNames, ""};
  if (auto members = whole_decomposition(name))
    return {*std::move(members), Rule::NameDecomposition, ""};
  if (auto members = known(origins); !members.empty())
    return {std::move(members), Rule::DumpMetadata, ""};
  return decompose(name, dumped);
}

std::optional<std::vector<const GraphOp*>> GeGraph::whole_decomposition(
    std::string_view name) const {
  // next[i]: where the name that starts at i ends, the longest that leads to the end; 0: none does.
  std::vector<size_t> next(name.size() + 1, 0);
  next[name.size()] = name.size();
  for (size_t start = name.size(); start-- > 0;) {
    for (size_t end = name.size(); end > start && next[start] == 0; --end) {
      if (next[end] != 0 && find(name.substr(start, end - start)) != nullptr) next[start] = end;
    }
  }
  if (name.empty() || next[0] == 0) return std::nullopt;
  std::vector<const GraphOp*> members;
  for (size_t at = 0; at < name.size(); at = next[at])
    members.push_back(find(name.substr(at, next[at] - at)));
  return members;
}

OperatorOrigin GeGraph::decompose(std::string_view name,
                                  const std::set<std::string, std::less<>>& dumped) const {
  OperatorOrigin out;
  out.rule = Rule::NameDecomposition;
  while (!name.empty()) {
    const GraphOp* op = find(name);
    size_t length = name.size();
    while (op == nullptr && --length > 0) {
      const std::string_view prefix = name.substr(0, length);
      op = find(prefix);
      if (op == nullptr && dumped.contains(prefix)) break;
    }
    if (op == nullptr) break;
    out.members.push_back(op);
    name.remove_prefix(length);
  }
  out.rest = name;
  return out;
}

std::optional<GraphValue> GeGraph::origin_of_output(std::string_view name, size_t output) const {
  const GraphOp* op = optimized_.find(name);
  if (op == nullptr || output >= op->output_desc.size()) return std::nullopt;
  const GraphAttributes& attributes = op->output_desc[output].attributes;
  const GraphAttribute* origin = attribute(attributes, "_datadump_origin_name");
  if (origin == nullptr || !origin->text) return std::nullopt;
  GraphValue value{*origin->text, static_cast<int64_t>(output)};
  if (value.op.empty()) {
    // A renamed operator: it stands for exactly one, and does not repeat that name for its outputs.
    const GraphAttribute* names = attribute(op->attributes, "_datadump_original_op_names");
    if (names == nullptr || names->texts.size() != 1 || names->texts[0].empty())
      return std::nullopt;
    value.op = names->texts[0];
  }
  if (const GraphAttribute* index = attribute(attributes, "_datadump_origin_output_index");
      index != nullptr && index->number)
    value.output = *index->number;
  return value;
}

std::optional<std::vector<GraphValue>> GeGraph::values_of_inputs(std::string_view name) const {
  const GraphOp* op = optimized_.find(name);
  if (op == nullptr) return std::nullopt;
  std::vector<GraphValue> values;
  for (const std::string& edge : op->inputs) {
    const auto [producer, output] = formats::split_graph_edge(edge);
    if (!edge.empty() && output < 0) continue;  // a control edge
    const auto before =
        edge.empty() ? std::nullopt : origin_of_output(producer, static_cast<size_t>(output));
    values.push_back(before ? *before : GraphValue{std::string(producer), output});
  }
  return values;
}

std::optional<FxValue> fx_value_of(const GraphOp& op, size_t output) {
  if (output >= op.output_desc.size()) return std::nullopt;
  const GraphAttribute* name = attribute(op.output_desc[output].attributes, "_fx_tensor_name");
  if (name == nullptr || !name->text || name->text->empty()) return std::nullopt;
  constexpr std::string_view kMark = ".OUTPUT.";
  const size_t mark = name->text->rfind(kMark);
  if (mark == std::string::npos) return FxValue{*name->text, static_cast<int64_t>(output)};
  const auto index =
      parse_number<int64_t>(std::string_view(*name->text).substr(mark + kMark.size()));
  return FxValue{name->text->substr(0, mark), index.value_or(static_cast<int64_t>(output))};
}

}  // namespace assay::pair
