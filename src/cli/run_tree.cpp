// SPDX-License-Identifier: Apache-2.0
// Records get paths, equal layers of paths fold (run/fold_layers), paths become a tree, the tree
// becomes lines.
#include "cli/run_tree.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "base/display.hpp"
#include "base/text.hpp"
#include "cli/record_text.hpp"
#include "report/terminal_text.hpp"
#include "run/fold_layers.hpp"
#include "run/layers.hpp"

namespace assay::cli {
namespace {

using Path = std::vector<std::string>;
using run::TensorRecord;
using Records = std::vector<const TensorRecord*>;

// ---- paths --------------------------------------------------------------------------------------

Path parts_of(std::string_view name, char separator) {
  const std::vector<std::string_view> parts = split(name, separator);
  return {parts.begin(), parts.end()};
}

/// From the outermost node to the record's own.
Path path_of(const run::Run& run, const TensorRecord& record) {
  if (run.has(run::Trait::CompiledGraphs)) return {record.node};
  if (run.has(run::Trait::AtbOperations)) return parts_of(record.node, '/');
  const std::string module(module_of_node(record.node));
  Path path;
  if (run.has_own_engine()) {
    // A program without modules: names are no paths, but tell the layer.
    if (const auto layer = run::layer_of_node(record.node)) path.push_back(layer->name());
    path.push_back(module);
  } else if (!module.empty() || !record.is_of_operator()) {
    path = parts_of(module, '.');
  }
  if (record.is_of_operator())
    path.push_back(record.node.substr(module.size() + kOperatorMark.size()));
  return path;
}

Path path_in_files(const TensorRecord& record) {
  if (record.slot.empty()) return parts_of(record.node, '.');
  Path path = parts_of(record.slot, '.');
  path.insert(path.begin(), record.node);
  return path;
}

/// "Qcur-*" of "Qcur-5" in "layer 5": what it is called in every layer.
std::string in_every_layer(const std::string& name, const std::string& number) {
  constexpr std::string_view kDigits = "0123456789";
  std::string out;
  for (size_t i = 0; i < name.size();) {
    const size_t digits = std::min(name.find_first_not_of(kDigits, i), name.size()) - i;
    const size_t length = std::max<size_t>(digits, 1);
    const std::string part = name.substr(i, length);
    out += part == number ? "*" : part;
    i += length;
  }
  return out;
}

/// All of a record, besides its name, that must be equal where layers are.
std::string kind_of(const TensorRecord& record) {
  std::string text =
      record.op_type + '\0' + std::string(role_name(record.role)) + '\0' + record.step_name;
  for (const int64_t number : {int64_t{record.rank}, int64_t{record.call}, int64_t{record.graph}})
    text += ' ' + std::to_string(number);
  text += record.problem.empty() ? "" : " problem";
  return text + (record.value.empty() ? ' ' + type_and_shape(record) : " value");
}

std::vector<run::ListedPart> listed(const run::Run& run, const Records& records) {
  std::vector<run::ListedPart> parts;
  for (const TensorRecord* record : records) {
    Path path = path_of(run, *record);
    if (const auto layer = run::layer_of_part(path[0]); layer && run.has_own_engine())
      path[1] = in_every_layer(path[1], std::to_string(layer->number));
    parts.push_back({std::move(path), kind_of(*record) + '\0' + record->slot});
  }
  return parts;
}

/// Every record by itself.
std::vector<run::FoldedPart> unfolded(const run::Run& run, const Records& records) {
  std::vector<run::FoldedPart> parts;
  for (size_t i = 0; i < records.size(); ++i)
    parts.push_back({.index = i, .path = path_of(run, *records[i])});
  return parts;
}

// ---- the tree -----------------------------------------------------------------------------------

/// What a node's own records are, taken together.
struct Summary {
  std::string type;
  std::set<int64_t> steps;
  std::set<std::string> dtypes;
  size_t tensors = 0;
  size_t values = 0;
  size_t problems = 0;
  uint64_t size_bytes = 0;

  void add(const TensorRecord& record) {
    if (!record.op_type.empty() && record.value.empty()) type = record.op_type;
    if (record.step >= 0) steps.insert(record.step);
    if (!record.problem.empty()) {
      ++problems;
    } else if (!record.value.empty()) {
      ++values;
    } else {
      ++tensors;
      if (record.dtype) dtypes.insert(dtype_text(record));
      if (record.bytes) size_bytes += tensor_bytes(record);
    }
  }

  /// Lines break between its parts only: the blanks in them are kNoBreak.
  [[nodiscard]] std::string text(bool with_steps) const {
    std::string out;
    const auto add = [&](std::string part) {
      std::replace(part.begin(), part.end(), ' ', report::kNoBreak);
      const bool behind_type = out.ends_with(':');
      out += (out.empty() ? "" : behind_type ? " " : ", ") + part;
    };
    if (!type.empty()) add(printable(type) + ":");
    if (tensors > 0) add(counted(tensors, "tensor"));
    if (values > 0) add(counted(values, "value"));
    if (size_bytes > 0) add(human_bytes(size_bytes));
    for (const std::string& dtype : dtypes) add(dtype);
    if (with_steps && !steps.empty())
      add("steps " + number_ranges(std::vector<int64_t>(steps.begin(), steps.end()), ", "));
    if (problems > 0) add(counted(problems, "problem"));
    return out;
  }
};

struct Node {
  std::string name;  // the last part of its path
  size_t times = 1;  // layers that it stands for
  bool has_records = false;
  Summary summary;
  std::vector<size_t> children;  // places in the tree, in the order of their first records
  std::map<std::string, size_t, std::less<>> by_name;
};
using Tree = std::vector<Node>;  // [0] is above all

Node& node_at(const run::FoldedPart& part, Tree* tree) {
  size_t at = 0;
  for (size_t depth = 0; depth < part.path.size(); ++depth) {
    const std::string& name = part.path[depth];
    const auto [found, is_new] = (*tree)[at].by_name.try_emplace(name, tree->size());
    const size_t child = found->second;
    if (is_new) {
      (*tree)[at].children.push_back(child);
      tree->emplace_back().name = name;
      for (const auto& fold : part.folds) {
        if (fold.depth == depth) tree->back().times = fold.times;
      }
    }
    at = child;
  }
  return (*tree)[at];
}

struct Line {
  std::string name;  // with its indentation
  std::string text;
};

class Lines {
 public:
  Lines(const Tree& tree, std::string separator, bool with_steps)
      : tree_(tree), separator_(std::move(separator)), with_steps_(with_steps) {}

  std::vector<Line> all() {
    for (const size_t child : tree_[0].children) add(child, 0, "");
    return std::move(lines_);
  }

 private:
  /// Nothing is in it, at any depth, but a group of equal layers.
  [[nodiscard]] bool only_leads_to_group(const Node& node) const {
    if (node.has_records || node.children.size() != 1) return false;
    const Node& child = tree_[node.children[0]];
    return child.times > 1 || only_leads_to_group(child);
  }

  /// What only leads to a group shares its line: "model.layers.0-11 (12 times)".
  void add(size_t at, size_t depth, const std::string& before) {
    const Node& node = tree_[at];
    if (only_leads_to_group(node)) {
      add(node.children[0], depth, before + node.name + separator_);
      return;
    }
    std::string name = before + node.name;
    name = name.empty() ? "(model)" : printable(name);
    if (node.times > 1) name += " (" + std::to_string(node.times) + " times)";
    lines_.push_back({std::string(2 * depth, ' ') + name,
                      node.has_records ? node.summary.text(with_steps_) : ""});
    for (const size_t child : node.children) add(child, depth + 1, "");
  }

  const Tree& tree_;
  std::string separator_;
  bool with_steps_;
  std::vector<Line> lines_;
};

/// Lines that a tree takes when texts begin at `column`; about, since texts break between words.
size_t lines_needed(const std::vector<Line>& lines, size_t column, size_t columns) {
  size_t needed = 0;
  for (const Line& line : lines) {
    if (line.text.empty()) continue;
    const size_t room = columns - column;
    needed += (line.text.size() + room - 1) / room + (display_columns(line.name) + 2 > column);
  }
  return needed;
}

/// Where texts begin: behind the longest name, or further left where names that are then on a line
/// of their own cost fewer lines than texts that go on below themselves.
size_t text_column_of(const std::vector<Line>& lines, size_t columns) {
  std::set<size_t> candidates;
  for (const Line& line : lines) {
    const size_t column = display_columns(line.name) + 2;
    if (!line.text.empty() && column <= columns * 2 / 3) candidates.insert(column);
  }
  size_t best = candidates.empty() ? columns / 3 : *candidates.begin();
  size_t fewest = SIZE_MAX;
  for (const size_t column : candidates) {
    const size_t needed = lines_needed(lines, column, columns);
    if (needed > fewest) continue;
    fewest = needed;
    best = column;
  }
  return best;
}

/// A name and its text in a line of a terminal; a long name has the line for itself.
std::string in_width(const Line& line, size_t text_column, size_t columns) {
  const size_t indent = line.name.find_first_not_of(' ');
  const std::string name =
      line.name.substr(0, indent) + report::shorten(line.name.substr(indent), columns - indent);
  if (line.text.empty()) return name + "\n";
  const bool beside = display_columns(name) + 2 <= text_column;
  const std::string before =
      beside ? report::pad_right(name, text_column) : std::string(text_column, ' ');
  const std::string type = line.text.substr(0, line.text.find(' '));
  const std::string text =
      report::shorten(type, columns - text_column) + line.text.substr(type.size());
  return (beside ? "" : name + "\n") + report::hanging(before + text, text_column, columns) + "\n";
}

/// In a pipe each node is one line.
std::string in_pipe(const std::vector<Line>& lines) {
  constexpr size_t kFarthest = 36;
  size_t text_column = 0;
  for (const Line& line : lines) {
    if (!line.text.empty()) text_column = std::max(text_column, display_columns(line.name) + 2);
  }
  text_column = std::min(text_column, kFarthest);
  std::string out;
  for (const Line& line : lines) {
    out += line.text.empty() ? line.name : report::pad_right(line.name + "  ", text_column);
    out += line.text + "\n";
  }
  std::replace(out.begin(), out.end(), report::kNoBreak, ' ');
  return out;
}

/// Names in one column, what they are in the next.
std::string in_columns(const std::vector<Line>& lines, const std::optional<int>& width) {
  if (!width) return in_pipe(lines);
  const auto columns = static_cast<size_t>(*width);
  const size_t text_column = text_column_of(lines, columns);
  std::string out;
  for (const Line& line : lines) out += in_width(line, text_column, columns);
  return out;
}

size_t hidden_layers(const std::vector<run::FoldedPart>& parts) {
  std::set<Path> groups;
  size_t hidden = 0;
  for (const run::FoldedPart& part : parts) {
    for (const auto& fold : part.folds) {
      Path group(part.path.begin(), part.path.begin() + static_cast<ptrdiff_t>(fold.depth) + 1);
      if (groups.insert(std::move(group)).second) hidden += fold.times - 1;
    }
  }
  return hidden;
}

TreeText tree_of_graph(const run::Run& run, const Records& records, const TreeOptions& options) {
  const std::vector<run::FoldedPart> parts =
      options.fold ? run::fold_layers(listed(run, records)) : unfolded(run, records);
  Tree tree(1);
  std::set<int64_t> steps;
  for (const TensorRecord* record : records) {
    if (record->step >= 0) steps.insert(record->step);
  }
  for (run::FoldedPart part : parts) {
    const TensorRecord& record = *records[part.index];
    if (part.folds.empty()) part.path = path_of(run, record);
    Node& node = node_at(part, &tree);
    node.has_records = true;
    node.summary.add(record);
  }
  const char* separator = run.has(run::Trait::AtbOperations) ? "/" : ".";
  return {in_columns(Lines(tree, separator, steps.size() > 1).all(), options.width),
          hidden_layers(parts)};
}

}  // namespace

TreeText tree_text(const run::Run& run, const Records& records, const TreeOptions& options) {
  std::map<uint32_t, Records> graphs;
  for (const TensorRecord* record : records)
    graphs[run.has(run::Trait::CompiledGraphs) ? record->graph : 0].push_back(record);
  TreeText all;
  for (const auto& [graph, members] : graphs) {
    if (graphs.size() > 1) all.lines += "graph_" + std::to_string(graph + 1) + "\n";
    const TreeText one = tree_of_graph(run, members, options);
    all.lines += one.lines;
    all.folded += one.folded;
  }
  return all;
}

std::vector<FileLine> folded_files(const Records& records) {
  std::vector<run::ListedPart> parts;
  for (const TensorRecord* record : records)
    parts.push_back({path_in_files(*record), kind_of(*record) + '\0' + record->value});
  std::vector<FileLine> lines;
  for (const run::FoldedPart& part : run::fold_layers(parts)) {
    std::string label;
    for (size_t i = 0; i < part.path.size(); ++i) {
      const bool behind_file = i == 1 && !records[part.index]->slot.empty();
      label += (i == 0 ? "" : behind_file ? " " : ".") + part.path[i];
    }
    lines.push_back({part.index, label, part.times()});
  }
  return lines;
}

}  // namespace assay::cli
