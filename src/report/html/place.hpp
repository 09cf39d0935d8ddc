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
  return pair::shared_node_name(run, module_of_node(record.node));
}

/// "aten.mul.Tensor.1" of "model.norm::aten.mul.Tensor.1"; empty where no operator is named.
[[nodiscard]] inline std::string_view operator_in(std::string_view node) {
  const size_t mark = node.find(kOperatorMark);
  return mark == std::string_view::npos ? std::string_view()
                                        : node.substr(mark + kOperatorMark.size());
}

/// The same of a record; empty for one of a module.
[[nodiscard]] inline std::string_view operator_of(const run::TensorRecord& record) {
  return operator_in(record.node);
}

}  // namespace assay::report::html
