// SPDX-License-Identifier: Apache-2.0
// Graphs of the graph engine: texts of a GraphDef, of a ModelDef with graphs inside, and the forms
// for viewers (NodeDef, ONNX), all in protobuf's text format. What becomes what:
// docs/formats/graph-text.md
#pragma once
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "topology/graph.hpp"

namespace assay::topology {

/// Whether a file's beginning is that of such a text: a field's name and a colon or bracket.
[[nodiscard]] bool is_graph_text(std::string_view text);

/// The operators of a text, wired by their edges, as a Graph of kind Engine. onnx_model(),
/// model_explorer_json() and pair::graph_diff() take it as any other.
///
/// A text with one graph is that graph; one with several is a root with a graph for each, whose
/// tensors have its name and a slash in front. Data and NetOutput are operators as they are in the
/// text; tensors are called as edges are, "Add_1:0", and an operator that others wait for also
/// writes "Add_1:-1". Parameters are the operator's attributes, and those of its operands as
/// "output.y._fx_tensor_name". Of tensors and graphs inside attributes only a description is kept:
/// ge_graph_json() has all of them.
///
/// errors  Invalid (with the offset) | TooLarge: nesting deeper than 64, more than 1048576
///         operators
[[nodiscard]] Result<Graph> read_ge_graph(std::string_view text);

/// The whole text as JSON: field names as they are, every repeated field an array even with one
/// element, attributes an object by their keys. Bytes that are no UTF-8, and the data of tensors,
/// are {"base64": "..."}; numbers that JSON has not are "inf", "-inf" and "nan".
///
/// errors  as read_ge_graph()
[[nodiscard]] Result<std::string> ge_graph_json(std::string_view text);

/// The graph before fusion with a graph around the members of each fused operator, as `fused` names
/// them in _datadump_original_op_names. Operators with one member or with members that are not
/// there stay as they are; the notes of the result say which.
[[nodiscard]] Graph group_by_fusion(const Graph& original, const Graph& fused);

}  // namespace assay::topology
