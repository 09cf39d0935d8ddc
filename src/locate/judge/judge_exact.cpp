// SPDX-License-Identifier: Apache-2.0
#include "locate/judge/judge_exact.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/numbers.hpp"
#include "locate/noise/error_classes.hpp"
#include "reference/aten/selection.hpp"
#include "reference/elementwise/broadcast.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using reference::kBlock;
using reference::Wide;
using reference::aten::Call;

/// One axis of two views of the same shape.
struct Axis {
  int64_t size = 1;
  int64_t stride_a = 0;
  int64_t stride_b = 0;
};

/// Rows and columns in tiles: of a transposed view the lines of the cache are used whole. Tiles are so small because lines of a
/// matrix whose rows are a multiple of a page long share a few places of the cache.
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

/// Copies of 4096 elements.
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

/// Values of any strides as unsigned integers.
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
    return left.data() == right.data() || left.empty() ||
           std::memcmp(left.data(), right.data(), left.size()) == 0;
  }
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

void set_wrong(int64_t worst, std::string reason, OwnError* result) {
  result->state = OwnError::State::Judged;
  result->z = result->e = result->e2 = kInfinity;
  result->worst = worst;
  result->reason = std::move(reason);
}

Status judge_integers(const Call& call, const std::vector<Tensor>& outputs, size_t output,
                      const TensorView& mine, OwnError* result) {
  const TensorView& reference = outputs[output].view;
  const int64_t count = mine.element_count();
  int64_t first_wrong = -1;
  int64_t wrong = 0;
  const auto compare = [&](const auto& right, const auto& found) {
    for (int64_t i = 0; i < count; ++i) {
      if (right.values[static_cast<size_t>(i)] == found.values[static_cast<size_t>(i)]) continue;
      if (wrong++ == 0) first_wrong = i;
    }
  };
  if (is_float(reference.dtype)) {
    ASSAY_TRY(const Wide right, reference::widen(reference));
    ASSAY_TRY(const Wide found, reference::widen(mine));
    compare(right, found);
  } else {
    ASSAY_TRY(const reference::Whole right, reference::whole(reference));
    ASSAY_TRY(const reference::Whole found, reference::whole(mine));
    compare(right, found);
  }
  result->state = OwnError::State::Exact;
  if (wrong == 0) return {};
  if (reference::aten::has_open_order(call.name)) {
    ASSAY_TRY(const bool right,
              reference::aten::indices_select_same_values(call, outputs, output, mine));
    if (right) return {};
  }
  set_wrong(first_wrong,
            std::to_string(wrong) + (wrong == 1 ? " integer differs" : " integers differ"), result);
  return {};
}

Status judge_exact(const TensorView& reference, const TensorView& mine, OwnError* result) {
  const std::optional<FloatGrid> grid = float_grid(mine.dtype);
  if (!grid || values_per_element(reference.dtype) != 1)
    return fail(Errc::Unsupported, std::string(name(mine.dtype)) + " values differ");
  const bool rounds = !holds_all_values(mine.dtype, reference.dtype);
  const int64_t count = mine.element_count();
  std::vector<double> right(static_cast<size_t>(std::min(count, kBlock)));
  std::vector<double> found(right.size());
  int64_t wrong = 0;
  bool pattern_differs = false;
  double error2 = 0;
  double reference2 = 0;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t length = std::min(kBlock, count - first);
    const auto size = static_cast<size_t>(length);
    read_values(reference, first, length, std::span(right).first(size));
    read_values(mine, first, length, std::span(found).first(size));
    for (size_t i = 0; i < size; ++i) {
      if (std::isnan(right[i]) && std::isnan(found[i])) continue;
      const double y = std::clamp(right[i], -grid->largest, grid->largest);
      const double m = std::clamp(found[i], -grid->largest, grid->largest);
      if (!std::isnan(y)) reference2 += y * y;
      if (m == y || (rounds && m == reference::round_to(y, mine.dtype))) continue;
      const double larger = std::max(std::fabs(y), std::fabs(m));
      if (larger < grid->smallest_normal()) continue;
      const double ulp = grid->ulp(larger);
      const double error = std::fabs(m - y);
      // A scalar may be rounded twice on its way, by way of float: a tie to the other side.
      const bool representable = reference::round_to(y, mine.dtype) == y;
      if (rounds && !representable && error <= ulp / 2 * (1 + 0x1p-12)) continue;
      if (std::isnan(error)) {
        pattern_differs = true;
      } else {
        error2 += error * error;
      }
      if (wrong++ == 0 || error / ulp > result->worst_ulp) {
        result->worst = first + static_cast<int64_t>(i);
        result->worst_ulp = std::isnan(error) ? 0 : error / ulp;
      }
    }
  }
  result->state = OwnError::State::Exact;
  if (reference2 > 0) result->relative_l2 = std::sqrt(error2 / reference2);
  if (wrong == 0) return {};
  set_wrong(result->worst,
            pattern_differs ? "NaN in other places than the reference has it"
                            : "values are moved, and " + std::to_string(wrong) +
                                  (wrong == 1 ? " differs" : " differ"),
            result);
  return {};
}

}  // namespace assay::locate
