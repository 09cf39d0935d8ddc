// SPDX-License-Identifier: Apache-2.0
// Functions of one, two or three operands, value by value, over whole tensors.
#pragma once
#include <algorithm>
#include <array>
#include <span>

#include "reference/aten/values.hpp"
#include "reference/elementwise/map.hpp"
#include "reference/movement/views.hpp"

namespace assay::reference::aten {

/// `f` of the values of operands that broadcast. F: double(double, ...), one argument an operand.
/// errors  Invalid (shapes) | Unsupported (types without real values) | TooLarge
template <typename F, size_t N>
[[nodiscard]] Result<Wide> zip_reals(const std::array<Operand, N>& operands, F f) {
  ASSAY_TRY(const Dims shape, broadcast_shape(operands));
  ASSAY_TRY_STATUS(checked_count(shape));
  std::array<BroadcastValues, N> sources;
  for (size_t i = 0; i < N; ++i) {
    ASSAY_TRY(sources[i], BroadcastValues::make(operands[i].tensor.view, shape));
  }
  Wide result(shape);
  std::array<std::array<double, kBlock>, N> blocks;
  for (int64_t first = 0; first < result.size(); first += kBlock) {
    const int64_t count = std::min(kBlock, result.size() - first);
    for (size_t i = 0; i < N; ++i) sources[i].read(first, count, blocks[i].data());
    double* out = result.data() + first;
    const auto apply = [&]<size_t... I>(std::index_sequence<I...>) {
      for (int64_t k = 0; k < count; ++k) out[k] = f(blocks[I][static_cast<size_t>(k)]...);
    };
    apply(std::make_index_sequence<N>());
  }
  return result;
}

/// The same of integers and truth values, exact. F: int64_t(int64_t, ...).
template <typename F, size_t N>
[[nodiscard]] Result<Whole> zip_integers(const std::array<Operand, N>& operands, F f) {
  ASSAY_TRY(const Dims shape, broadcast_shape(operands));
  ASSAY_TRY_STATUS(checked_count(shape));
  std::array<Whole, N> sources;
  for (size_t i = 0; i < N; ++i) {
    ASSAY_TRY(const Tensor spread, broadcast_to(operands[i].tensor, shape));
    ASSAY_TRY(sources[i], whole(spread.view));
  }
  Whole result(shape);
  const auto apply = [&]<size_t... I>(std::index_sequence<I...>) {
    for (size_t k = 0; k < result.values.size(); ++k) result.values[k] = f(sources[I].values[k]...);
  };
  apply(std::make_index_sequence<N>());
  return result;
}

/// Integers as a result of the type that promotion gives: Bool, or Int64 wrapped to the width of `dtype`.
[[nodiscard]] Tensor whole_result(Whole values, DType dtype);
/// Truth values 0 and 1 as a Bool tensor.
[[nodiscard]] Tensor truth_result(const Whole& values);

/// a b in Complex128, where at least one is complex.
/// errors  Invalid (shapes) | TooLarge
[[nodiscard]] Result<Tensor> complex_product(const Tensor& a, const Tensor& b);

/// Sums and products of 64-bit integers wrap as the machine's do.
[[nodiscard]] inline int64_t wrapping_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
[[nodiscard]] inline int64_t wrapping_multiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

/// One result: `real` where an operand is a float, else `integer`, wrapped to the type that promotion gives.
template <typename Real, typename Integer, size_t N>
[[nodiscard]] Result<Values> zip(const Arguments& arguments, const std::array<Operand, N>& operands,
                                 Real real, Integer integer) {
  const Result<DType> type = result_type(operands);
  if (!type) return fail(named(arguments, type.error()));
  if (is_real(*type)) return single(arguments, zip_reals(operands, real));
  // Numbers are first put into the type of the result, which may be narrower.
  const bool narrower = *type != DType::Bool && info(*type).element_bits < 64;
  Result<Whole> values =
      narrower ? zip_integers(operands, [&](auto... x) { return integer(wrap_to(x, *type)...); })
               : zip_integers(operands, integer);
  if (!values) return fail(named(arguments, std::move(values).error()));
  return single(whole_result(*std::move(values), *type));
}

}  // namespace assay::reference::aten
