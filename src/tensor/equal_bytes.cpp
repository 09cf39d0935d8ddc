// SPDX-License-Identifier: Apache-2.0
// Contiguous views are compared as memory. Strided ones are compared in place in small tiles, as
// integers of the element's size, or block by block as copies where that cannot be.
#include "tensor/equal_bytes.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "tensor/convert.hpp"

namespace assay {
namespace {

/// One axis of two views of the same shape.
struct Axis {
  int64_t size = 1;
  int64_t stride_a = 0;
  int64_t stride_b = 0;
};

/// Rows and columns in tiles: of a transposed view the lines of the cache are used whole. Tiles are
/// so small because lines of a matrix whose rows are a multiple of a page long share a few places
/// of the cache.
template <typename Bits>
bool has_equal_matrices(const Bits* a, const Bits* b, const Axis& rows, const Axis& columns) {
  constexpr int64_t kRows = 8;
  constexpr int64_t kColumns = 64 / static_cast<int64_t>(sizeof(Bits));
  for (int64_t j0 = 0; j0 < columns.size; j0 += kColumns) {
    const int64_t j1 = std::min(j0 + kColumns, columns.size);
    for (int64_t i0 = 0; i0 < rows.size; i0 += kRows) {
      const int64_t i1 = std::min(i0 + kRows, rows.size);
      Bits difference = 0;
      for (int64_t j = j0; j < j1; ++j) {
        const Bits* of_a = a + j * columns.stride_a;
        const Bits* of_b = b + j * columns.stride_b;
        for (int64_t i = i0; i < i1; ++i)
          difference =
              static_cast<Bits>(difference | (of_a[i * rows.stride_a] ^ of_b[i * rows.stride_b]));
      }
      if (difference != 0) return false;
    }
  }
  return true;
}

template <typename Bits>
bool has_equal_axes(const Bits* a, const Bits* b, std::span<const Axis> axes) {
  if (axes.size() == 2) return has_equal_matrices(a, b, axes[0], axes[1]);
  for (int64_t i = 0; i < axes[0].size; ++i) {
    if (!has_equal_axes(a + i * axes[0].stride_a, b + i * axes[0].stride_b, axes.subspan(1)))
      return false;
  }
  return true;
}

/// Compares copies, 4096 elements at a time.
bool has_equal_blocks(const TensorView& a, const TensorView& b) {
  constexpr int64_t kElements = 4096;
  const int64_t count = a.element_count();
  const size_t element_bytes = info(a.dtype).element_bits / 8;
  std::vector<std::byte> left(static_cast<size_t>(std::min(count, kElements)) * element_bytes);
  std::vector<std::byte> right(left.size());
  for (int64_t first = 0; first < count; first += kElements) {
    const int64_t length = std::min(kElements, count - first);
    const size_t bytes = static_cast<size_t>(length) * element_bytes;
    gather_bytes(a, first, length, std::span(left).first(bytes));
    gather_bytes(b, first, length, std::span(right).first(bytes));
    if (std::memcmp(left.data(), right.data(), bytes) != 0) return false;
  }
  return true;
}

/// Compares elements of any strides as unsigned integers.
template <typename T>
bool has_equal_elements(const TensorView& a, const TensorView& b) {
  const auto is_aligned = [](const TensorView& view) {
    return reinterpret_cast<uintptr_t>(view.storage.data()) % alignof(T) == 0;
  };
  if (a.element_count() == 0) return true;
  if (!is_aligned(a) || !is_aligned(b)) return has_equal_blocks(a, b);
  std::vector<Axis> axes(a.shape.size() < 2 ? 2 - a.shape.size() : 0);
  for (size_t i = 0; i < a.shape.size(); ++i)
    axes.push_back({a.shape[i], a.strides[i], b.strides[i]});
  // Bits of floats read as integers.
  using Bits [[gnu::may_alias]] = T;
  return has_equal_axes(reinterpret_cast<const Bits*>(a.storage.data()) + a.offset_elements,
                        reinterpret_cast<const Bits*>(b.storage.data()) + b.offset_elements,
                        std::span<const Axis>(axes));
}

}  // namespace

bool has_equal_bytes(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || info(a.dtype).element_bits < 8 || a.negative != b.negative ||
      a.conjugate != b.conjugate)
    return false;
  const size_t element_bytes = info(a.dtype).element_bits / 8;
  if (a.is_contiguous() && b.is_contiguous() && !a.negative && !a.conjugate) {
    const ByteSpan left = a.contiguous_bytes();
    const ByteSpan right = b.contiguous_bytes();
    return left.size() == right.size() &&
           (left.data() == right.data() || left.empty() ||
            std::memcmp(left.data(), right.data(), left.size()) == 0);
  }
  if (!(a.shape == b.shape)) return false;
  switch (element_bytes) {
    case 1:
      return has_equal_elements<uint8_t>(a, b);
    case 2:
      return has_equal_elements<uint16_t>(a, b);
    case 4:
      return has_equal_elements<uint32_t>(a, b);
    case 8:
      return has_equal_elements<uint64_t>(a, b);
    default:
      return has_equal_blocks(a, b);
  }
}

}  // namespace assay
