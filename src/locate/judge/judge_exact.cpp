// SPDX-License-Identifier: Apache-2.0
// Any difference is wrong, but for other integers that select the same values, the one rounding of
// a scalar among moved values, and what both sides have below the smallest normal number.
#include "locate/judge/judge_exact.hpp"

#include <algorithm>
#include <cmath>
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

}  // namespace

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
      if (larger < grid->smallest_normal() && !std::isnan(m)) continue;  // max() leaves a NaN out
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
