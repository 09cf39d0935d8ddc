// SPDX-License-Identifier: Apache-2.0
// Shapes may come from files, so products of sizes are checked for overflow.
#include "tensor/dims.hpp"

#include "base/bytes.hpp"

namespace assay {

std::optional<int64_t> element_count(std::span<const int64_t> shape) {
  // A zero anywhere makes the product zero even when the other sizes would overflow.
  bool has_zero = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    has_zero = has_zero || size == 0;
  }
  if (has_zero) return 0;
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (mul_overflows(count, size, &count)) return std::nullopt;
  }
  return count;
}

Dims contiguous_strides(const Dims& shape) {
  Dims strides;
  strides.resize(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // Saturates instead of overflowing; element_count() has rejected such a shape wherever bytes
    // are read.
    if (mul_overflows(stride, std::max<int64_t>(shape[i], 1), &stride)) stride = INT64_MAX;
  }
  return strides;
}

namespace {
std::string join(std::span<const int64_t> dims) {
  std::string text;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text;
}
}  // namespace

std::string list_text(std::span<const int64_t> dims) { return "[" + join(dims) + "]"; }
std::string tuple_text(std::span<const int64_t> dims) {
  return "(" + join(dims) + (dims.size() == 1 ? ",)" : ")");
}

ShapeRelation shape_relation(const Dims& golden, const Dims& mine) {
  if (golden == mine) return ShapeRelation::Same;
  const auto golden_count = element_count(golden);
  if (!golden_count || golden_count != element_count(mine)) return ShapeRelation::Different;
  const auto squeezed = [](const Dims& shape) {
    Dims out;
    for (const int64_t size : shape) {
      if (size != 1) out.push_back(size);
    }
    return out;
  };
  const Dims left = squeezed(golden);
  const Dims right = squeezed(mine);
  if (left == right) return ShapeRelation::Squeezed;
  // The shorter shape keeps its trailing axes; its first one is the product of what the longer has
  // in front.
  const Dims& shorter = left.size() < right.size() ? left : right;
  const Dims& longer = left.size() < right.size() ? right : left;
  if (shorter.empty() || shorter.size() == longer.size()) return ShapeRelation::Reshaped;
  const size_t extra = longer.size() - shorter.size();
  for (size_t i = 1; i < shorter.size(); ++i) {
    if (shorter[i] != longer[i + extra]) return ShapeRelation::Reshaped;
  }
  return ShapeRelation::Merged;
}

}  // namespace assay
