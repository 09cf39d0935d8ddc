// SPDX-License-Identifier: Apache-2.0
// Where a record stands in the model, as columns that the tree and the map of a page read.
#pragma once
#include <string>
#include <string_view>

#include "pair/tree.hpp"
#include "run/run.hpp"

namespace assay::report::html {

/// "model.layers.0.mlp" of a module's record and of those of operators in it.
[[nodiscard]] inline std::string module_of(const run::Run& run, const run::TensorRecord& record) {
  return pair::shared_node_name(run, run::module_of_node(record.node));
}

/// "aten.mul.Tensor.1"; empty for a record of a module.
[[nodiscard]] inline std::string_view operator_of(const run::TensorRecord& record) {
  const size_t mark = record.node.find(run::kOperatorMark);
  if (mark == std::string::npos) return {};
  return std::string_view(record.node).substr(mark + run::kOperatorMark.size());
}

}  // namespace assay::report::html
