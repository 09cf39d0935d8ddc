// SPDX-License-Identifier: Apache-2.0
// How the elements of a tensor lie in memory: without gaps, in order, within their storage.
#include "capture/intake/look.hpp"

#include <algorithm>

namespace assay::capture {
namespace {

// The dimensions that have more than one element, the one of the smallest stride first.
class SortedDims {
 public:
  struct Dim {
    int64_t stride;
    int64_t size;
  };
  explicit SortedDims(const TensorLook& look) {
    for (int i = 0; i < look.ndim && count_ < kMaxTensorDims; ++i) {
      if (look.shape[i] != 1) dims_[count_++] = {look.strides[i], look.shape[i]};
    }
    std::sort(dims_, dims_ + count_,
              [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  }
  [[nodiscard]] std::span<const Dim> span() const { return {dims_, static_cast<size_t>(count_)}; }

 private:
  Dim dims_[kMaxTensorDims];
  int count_ = 0;
};

}  // namespace

uint64_t payload_bytes(const TensorLook& look) {
  return storage_bytes(look.dtype, static_cast<uint64_t>(look.element_count)).value_or(0);
}

bool fits_storage(const TensorLook& look, int64_t storage_offset, int64_t size_bytes) {
  int64_t last = storage_offset;
  if (last < 0 || size_bytes < 0) return false;
  for (int i = 0; i < look.ndim; ++i) {
    int64_t reach = 0;
    if (mul_overflows(look.shape[i] - 1, look.strides[i], &reach) ||
        add_overflows(last, reach, &last))
      return false;
  }
  const auto needed = storage_bytes(look.dtype, static_cast<uint64_t>(last) + 1);
  return needed && *needed <= static_cast<uint64_t>(size_bytes);
}

TensorView view_of(const TensorLook& look) {
  TensorView view;
  view.dtype = look.dtype;
  view.shape = Dims(look.sizes());
  view.strides = look.strides != nullptr ? Dims(look.steps()) : contiguous_strides(view.shape);
  view.conjugate = look.conjugate;
  view.negative = look.negative;
  if (look.element_count > 0) {
    int64_t last = 0;
    for (size_t i = 0; i < view.shape.size(); ++i) last += (view.shape[i] - 1) * view.strides[i];
    view.storage = ByteSpan(static_cast<const std::byte*>(look.data),
                            storage_bytes(look.dtype, static_cast<uint64_t>(last) + 1).value_or(0));
  }
  return view;
}

bool is_contiguous(const TensorLook& look) {
  if (look.strides == nullptr || look.element_count == 0) return true;
  int64_t expected = 1;
  for (int i = look.ndim - 1; i >= 0; --i) {
    if (look.shape[i] == 1) continue;
    if (look.strides[i] != expected) return false;
    expected *= look.shape[i];
  }
  return true;
}

bool is_dense(const TensorLook& look) {
  if (is_contiguous(look)) return true;
  // Each dimension must begin where the one below ends.
  const SortedDims dims(look);
  int64_t expected = 1;
  for (const SortedDims::Dim& dim : dims.span()) {
    if (dim.stride != expected) return false;
    expected *= dim.size;
  }
  return true;
}

ByteSpan memory_of(const TensorLook& look) {
  if (look.element_count <= 0) return {};
  uint64_t last = 0;
  for (int i = 0; i < look.ndim; ++i)
    last += static_cast<uint64_t>(look.strides[i]) * static_cast<uint64_t>(look.shape[i] - 1);
  const uint64_t size = storage_bytes(look.dtype, last + 1).value_or(0);
  return {static_cast<const std::byte*>(look.data), static_cast<size_t>(size)};
}

std::optional<uint64_t> spanned_bytes(const TensorLook& look) {
  const uint64_t element_bits = info(look.dtype).element_bits;
  if (look.element_count <= 0 || element_bits % 8 != 0) return std::nullopt;
  if (is_contiguous(look)) return payload_bytes(look);
  // Each dimension must step over all of the ones below.
  const SortedDims dims(look);
  int64_t last = 0;
  for (const SortedDims::Dim& dim : dims.span()) {
    int64_t reach = 0;
    if (dim.stride <= last || mul_overflows(dim.size - 1, dim.stride, &reach) ||
        add_overflows(last, reach, &last))
      return std::nullopt;
  }
  return storage_bytes(look.dtype, static_cast<uint64_t>(last) + 1);
}

}  // namespace assay::capture
