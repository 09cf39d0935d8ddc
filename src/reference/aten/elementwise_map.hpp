// SPDX-License-Identifier: Apache-2.0
// Functions of one, two or three operands, value by value, over whole tensors.
#pragma once
#include <algorithm>
#include <array>

#include "reference/aten/values.hpp"
#include "reference/elementwise/map.hpp"
#include "reference/elementwise/zip.hpp"

namespace assay::reference::aten {

template <size_t N>
[[nodiscard]] Views<N> views_of(const std::array<Operand, N>& operands) {
  Views<N> views;
  std::transform(operands.begin(), operands.end(), views.begin(),
                 [](const Operand& one) { return one.tensor.view; });
  return views;
}
/// zip_values() of operands.
template <typename F, size_t N>
[[nodiscard]] Result<Wide> zip_reals(const std::array<Operand, N>& operands, F f) {
  return zip_values(views_of(operands), f);
}

/// Integers as a result of the type that promotion gives: Bool, or Int64 wrapped to the width of
/// `dtype`.
[[nodiscard]] Tensor whole_result(Whole values, DType dtype);
/// Truth values 0 and 1 as a Bool tensor.
[[nodiscard]] Tensor truth_result(const Whole& values);

/// a b in Complex128, where at least one is complex.
/// errors  Invalid (shapes) | TooLarge
[[nodiscard]] Result<Tensor> complex_product(const Tensor& a, const Tensor& b);

/// One result: `real` where an operand is a float, else `integer`, wrapped to the type that
/// promotion gives.
template <typename Real, typename Integer, size_t N>
[[nodiscard]] Result<Values> zip(const std::array<Operand, N>& operands, Real real,
                                 Integer integer) {
  ASSAY_TRY(const DType type, result_type(operands));
  if (is_real(type)) return single(zip_reals(operands, real));
  // Numbers are first put into the type of the result, which may be narrower.
  const bool narrower = type != DType::Bool && info(type).element_bits < 64;
  ASSAY_TRY(Whole values,
            narrower ? zip_integers(views_of(operands),
                                    [&](auto... x) { return integer(wrap_to(x, type)...); })
                     : zip_integers(views_of(operands), integer));
  return single(whole_result(std::move(values), type));
}

}  // namespace assay::reference::aten
