// SPDX-License-Identifier: Apache-2.0
// What classes of modules compute.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/aten/call.hpp"

namespace assay::locate {

/// Tensors of one call of a leaf module; parameters that it does not have are Tensor{}.
struct LeafTensors {
  Tensor input;
  Tensor weight;
  Tensor bias;
};

/// One way in which a class may compute.
struct LeafFunction {
  std::string setting;  // "eps 1e-06"; empty where there is no choice
  /// errors  Invalid (shapes that no such module has) | of reference::widen()
  std::function<Result<reference::aten::Call>(const LeafTensors&)> call;
  /// Roundings to the storage type inside it: 1, or 2 for norms that scale what they have already
  /// rounded.
  int roundings = 1;
  bool has_weight = true;
};

/// All ways of a class; empty for classes that are not known.
[[nodiscard]] std::vector<LeafFunction> leaf_functions(std::string_view type);

}  // namespace assay::locate
