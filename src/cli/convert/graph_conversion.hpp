// SPDX-License-Identifier: Apache-2.0
// Texts of compiled graphs as files of graph viewers. `assay graph` has more ways to draw them.
#pragma once
#include <string>

#include "base/result.hpp"

namespace assay::cli {

/// True when `out` is called as a graph's file (.json, .onnx) and `in` is the text of a graph.
[[nodiscard]] bool is_graph_conversion(const std::string& in, const std::string& out);

/// The content of `out`: .onnx (.hier.onnx: with functions), .me.json for Model Explorer, .json
/// with everything that is in the text.
/// errors    of opening the file | Invalid, TooLarge as topology::read_ge_graph()
[[nodiscard]] Result<std::string> converted_graph(const std::string& in, const std::string& out);

}  // namespace assay::cli
