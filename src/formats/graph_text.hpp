// SPDX-License-Identifier: Apache-2.0
// Graphs of CANN's graph engine as protobuf text: dynamo_*_graph_*.txt (a GraphDef) and
// ge_proto_*.txt
// (a ModelDef with GraphDefs inside).   Fields and attributes: docs/formats/ge-tree.md
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "tensor/dims.hpp"

namespace assay::formats {

/// The values of an attribute that mapping needs; tensors, functions and nested graphs are left
/// out.
struct GraphAttribute {
  std::optional<std::string> text;  // s, bt, expression
  std::optional<int64_t> number;    // i, dt
  std::optional<double> real;       // f
  std::optional<bool> truth;        // b
  std::vector<std::string> texts;   // list { s: ... }
  std::vector<int64_t> numbers;     // list { i: ... }
};
using GraphAttributes = std::map<std::string, GraphAttribute, std::less<>>;

struct GraphDescriptor {
  std::string name;
  std::string dtype;  // "DT_FLOAT"
  Dims shape;         // -1: dynamic; -2: rank unknown
  std::string layout;
  GraphAttributes attributes;
};

struct GraphOp {
  std::string name;
  std::string type;
  std::vector<std::string> inputs;  // "Add:0"; "Add:-1" is a control edge; "" an absent one
  std::vector<GraphDescriptor> input_desc;
  std::vector<GraphDescriptor> output_desc;
  GraphAttributes attributes;
};

struct GraphText {
  std::string name;
  std::vector<GraphOp> ops;  // in the order of the file: that of execution
};

/// Parses protobuf's text format: nested messages in {} or <>, lists in [], comments, adjacent
/// strings, all escapes. Unknown fields are checked for their form and skipped.
///
/// text      the whole file; never trusted
/// returns   the graphs in file order; a bare GraphDef is one graph without a name
/// errors    Invalid (with the offset) | TooLarge (nested deeper than 64)
/// source    protobuf.dev: "Text Format Language Specification"
[[nodiscard]] Result<std::vector<GraphText>> read_graph_text(std::string_view text);

/// "Add_1:0" -> ("Add_1", 0); a text without an index, or of an absent input, gives index 0.
[[nodiscard]] std::pair<std::string_view, int64_t> split_graph_edge(std::string_view edge);

}  // namespace assay::formats
