// SPDX-License-Identifier: Apache-2.0
// Values of a row in torch's order, for what chooses among them: extremes, sorts.
#pragma once
#include "reference/aten/values.hpp"
#include "reference/selection/row_order.hpp"

namespace assay::reference::aten {

inline constexpr int64_t kMaxMade = int64_t{1} << 30;  // of results whose size an argument says

/// Calls f with a T that holds the values of the type exactly.
template <typename F>
auto with_values(DType dtype, F f) {
  return is_whole(dtype) ? f(int64_t{}) : f(double{});
}

/// A result in the kind of the operand: truth values stay that.
[[nodiscard]] inline Result<Tensor> like(Tensor values, DType dtype) {
  if (dtype != DType::Bool) return values;
  return cast_to(values, DType::Bool);
}

}  // namespace assay::reference::aten
