// SPDX-License-Identifier: Apache-2.0
// One function of one value over a whole tensor.
#pragma once
#include <algorithm>
#include <string>

#include "reference/elementwise/broadcast.hpp"
#include "tensor/convert.hpp"

namespace assay::reference {

/// `f` of every block of values while it is in the cache. F: void(double* values, int64_t count),
/// count at most kBlock.
/// errors  Unsupported (types without real values) | TooLarge
template <typename F>
[[nodiscard]] Result<Wide> map_blocks(const TensorView& x, F f) {
  ASSAY_TRY_STATUS(check_real(x));
  Wide y(x.shape);
  for (int64_t first = 0; first < y.size(); first += kBlock) {
    const int64_t length = std::min(kBlock, y.size() - first);
    double* block = y.data() + first;
    read_values(x, first, length, std::span(block, static_cast<size_t>(length)));
    f(block, length);
  }
  return y;
}

/// `f` of every value. F: double(double).
/// errors  of map_blocks()
template <typename F>
[[nodiscard]] Result<Wide> map_values(const TensorView& x, F f) {
  return map_blocks(x, [&f](double* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values[i] = f(values[i]);
  });
}

}  // namespace assay::reference
