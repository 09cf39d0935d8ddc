// SPDX-License-Identifier: Apache-2.0
// Only the names of the operator classes: all else that call.hpp declares is in registry.cpp.
#include "reference/aten/call.hpp"

namespace assay::reference::aten {

std::string_view class_name(OperatorClass kind) {
  // In the order of the enumeration.
  static constexpr std::string_view kNames[] = {
      "unknown",   "move",     "integer",       "cast",      "arithmetic", "product",
      "reduction", "function", "trigonometric", "softmax",   "activation", "norm",
      "attention", "fused",    "random",        "allocation"};
  static_assert(std::size(kNames) == static_cast<size_t>(OperatorClass::Allocation) + 1);
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace assay::reference::aten
