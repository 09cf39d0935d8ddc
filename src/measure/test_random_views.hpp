// SPDX-License-Identifier: Apache-2.0
// Tensors of random shape, strides and bits, for properties over pairs. Inside a property of
// RapidCheck only.
#pragma once
#include <rapidcheck.h>

#include <random>
#include <span>
#include <vector>

#include "tensor/tensor_view.hpp"

namespace assay::measure {

/// A tensor and its bytes.
struct Side {
  std::vector<std::byte> storage;
  TensorView view;
};

inline Dims random_shape() {
  Dims shape;
  const int rank = *rc::gen::inRange(0, 4);
  for (int i = 0; i < rank; ++i) shape.push_back(*rc::gen::inRange<int64_t>(1, i == 0 ? 300 : 12));
  if (rank == 2 && *rc::gen::inRange(0, 5) == 0) shape[1] = *rc::gen::inRange<int64_t>(2000, 5000);
  if (rank == 2 && shape[1] >= 2000) shape[0] = *rc::gen::inRange<int64_t>(1, 4);
  return shape;
}

/// Strides of `shape` with its axes in reverse memory order, or C order, or with gaps.
inline Dims random_strides(const Dims& shape) {
  Dims strides = contiguous_strides(shape);
  const int kind = *rc::gen::inRange(0, 3);
  if (kind == 1) {
    int64_t step = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      strides[i] = step;
      step *= shape[i];
    }
  }
  if (kind == 2) {
    for (int64_t& stride : std::span(strides.data(), strides.size())) stride *= 2;
  }
  return strides;
}

inline Side random_bytes(DType dtype, const Dims& shape, std::mt19937& random) {
  Side side;
  const Dims strides = random_strides(shape);
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * strides[i];
  side.storage.resize(*storage_bytes(dtype, static_cast<uint64_t>(last + 1)));
  for (std::byte& byte : side.storage) byte = static_cast<std::byte>(random());
  side.view = *make_view(dtype, shape, strides, side.storage, 0);
  return side;
}

}  // namespace assay::measure
