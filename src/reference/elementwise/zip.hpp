// SPDX-License-Identifier: Apache-2.0
// Functions of one or more operands that broadcast, value by value, over whole tensors.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "reference/elementwise/broadcast.hpp"
#include "reference/movement/views.hpp"

namespace assay::reference {

template <size_t N>
using Views = std::array<TensorView, N>;

/// The shape that all operands broadcast to.
/// errors  Invalid | TooLarge
template <size_t N>
[[nodiscard]] Result<Dims> common_shape(const Views<N>& operands) {
  Dims shape;
  for (const TensorView& operand : operands) {
    ASSAY_TRY(shape, broadcast_shape(shape, operand.shape));
  }
  ASSAY_TRY_STATUS(checked_count(shape));
  return shape;
}

/// `f` of the values of operands. F: Out(double, ...), one argument an operand.
/// errors  of common_shape() | Unsupported (types without real values)
template <typename Out = double, typename F, size_t N>
[[nodiscard]] Result<Array<Out>> zip_values(const Views<N>& operands, F f) {
  ASSAY_TRY(const Dims shape, common_shape(operands));
  std::array<BroadcastValues, N> sources;
  for (size_t i = 0; i < N; ++i) {
    ASSAY_TRY(sources[i], BroadcastValues::make(operands[i], shape));
  }
  Array<Out> result(shape);
  std::array<std::array<double, kBlock>, N> blocks;
  for (int64_t first = 0; first < result.size(); first += kBlock) {
    const int64_t count = std::min(kBlock, result.size() - first);
    for (size_t i = 0; i < N; ++i) sources[i].read(first, count, blocks[i].data());
    Out* out = result.data() + first;
    const auto apply = [&]<size_t... I>(std::index_sequence<I...>) {
      for (int64_t k = 0; k < count; ++k)
        out[k] = static_cast<Out>(f(blocks[I][static_cast<size_t>(k)]...));
    };
    apply(std::make_index_sequence<N>());
  }
  return result;
}

/// The same of integers and truth values, exact. F: int64_t(int64_t, ...).
template <typename F, size_t N>
[[nodiscard]] Result<Whole> zip_integers(const Views<N>& operands, F f) {
  ASSAY_TRY(const Dims shape, common_shape(operands));
  std::array<Whole, N> sources;
  for (size_t i = 0; i < N; ++i) {
    ASSAY_TRY(const Tensor spread, broadcast_to(Tensor{operands[i], nullptr}, shape));
    ASSAY_TRY(sources[i], whole(spread.view));
  }
  Whole result(shape);
  const auto apply = [&]<size_t... I>(std::index_sequence<I...>) {
    for (size_t k = 0; k < result.values.size(); ++k)
      result.values[k] = static_cast<int64_t>(f(sources[I].values[k]...));
  };
  apply(std::make_index_sequence<N>());
  return result;
}

}  // namespace assay::reference
