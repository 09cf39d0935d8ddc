// SPDX-License-Identifier: Apache-2.0
// Rows are sorted so that equal values keep their order. What writes by index checks all indices
// first; one_hot() leaves zeros where there is no place for a value.
//   docs/opcheck/selection.md
#include "reference/selection/indexing.hpp"
#include "tensor/sentence.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "reference/selection/row_order.hpp"

namespace assay::reference {
namespace {

constexpr int64_t kMostExperts = int64_t{1} << 24;

std::string out_of(const char* what, int64_t value, int64_t size) {
  return std::string(what) + " " + std::to_string(value) + " of " + std::to_string(size);
}

/// Integers of one dimension.
Result<Whole> integer_list(const TensorView& view, const char* what) {
  if (view.shape.size() != 1)
    return fail(Errc::Invalid, what, " have shape ", view.shape, ", one dimension expected");
  return whole(view);
}

}  // namespace

Result<TopK> top_k(const TensorView& x, int64_t k) {
  if (x.shape.empty())
    return fail(Errc::Invalid, "a tensor without dimensions has no rows to sort");
  const int64_t columns = x.shape[x.shape.size() - 1];
  if (k < 0 || k > columns)
    return fail(Errc::Invalid, "the ", k, " largest of ", columns, " values");
  ASSAY_TRY(const Wide values, widen(x));
  Dims shape = x.shape;
  shape[shape.size() - 1] = k;
  TopK result{Wide(shape), Whole(shape)};
  if (result.values.size() == 0) return result;
  std::vector<Placed<double>> room;
  const int64_t rows = result.values.size() / k;
  for (int64_t row = 0; row < rows; ++row) {
    const std::span<const double> from(values.data() + row * columns, static_cast<size_t>(columns));
    int64_t at = row * k;
    for (const auto& [value, place] : first_in_order(from, static_cast<size_t>(k), true, &room)) {
      result.values.data()[at] = value;
      result.indices.data()[at++] = place;
    }
  }
  return result;
}

Result<Whole> coordinates(const TensorView& x) {
  ASSAY_TRY(const Wide values, widen(x));
  const size_t rank = x.shape.size();
  const int64_t count = std::ranges::count_if(values.values, [](double v) { return v != 0; });
  const Dims shape{count, static_cast<int64_t>(rank)};
  ASSAY_TRY_STATUS(checked_count(shape));
  Whole result(shape);
  int64_t* out = result.data();
  for (int64_t flat = 0; flat < values.size(); ++flat) {
    if (values.data()[flat] == 0) continue;
    int64_t rest = flat;
    for (size_t i = rank; i-- > 0;) {
      out[i] = rest % x.shape[i];
      rest /= x.shape[i];
    }
    out += rank;
  }
  return result;
}

Result<Nonzero> nonzero(const TensorView& x) {
  ASSAY_TRY(const Whole places, coordinates(x));
  const int64_t count = places.shape[0];
  const int64_t rank = places.shape[1];
  const int64_t size = x.element_count();
  ASSAY_TRY_STATUS(checked_count(Dims{rank, size}));
  Nonzero result{Whole(Dims{rank, size}, 0), count};
  for (int64_t i = 0; i < count * rank; ++i)
    result.indices.data()[i % rank * size + i / rank] = places.data()[i];
  return result;
}

Result<Whole> one_hot(const TensorView& x, int64_t depth, int64_t one, int64_t zero, int64_t axis) {
  if (depth < 0) return fail(Errc::Invalid, "depth ", depth, " is negative");
  ASSAY_TRY(const size_t at, axis_of(axis, x.shape.size() + 1));
  ASSAY_TRY(const Whole values, whole(x));
  Dims shape;
  for (size_t i = 0; i <= x.shape.size(); ++i)
    shape.push_back(i == at ? depth : x.shape[i < at ? i : i - 1]);
  ASSAY_TRY(const int64_t count, checked_count(shape));
  Whole result(shape, zero);
  if (count == 0) return result;
  int64_t inner = 1;
  for (size_t i = at + 1; i < shape.size(); ++i) inner *= shape[i];
  for (int64_t flat = 0; flat < values.size(); ++flat) {
    const int64_t value = values.values[static_cast<size_t>(flat)];
    if (value < 0 || value >= depth) continue;
    result.data()[(flat / inner * depth + value) * inner + flat % inner] = one;
  }
  return result;
}

Result<Wide> index_add(const TensorView& var, int64_t axis, const TensorView& indices,
                       const TensorView& updates, double alpha, int64_t count) {
  ASSAY_TRY(const size_t at, axis_of(axis, var.shape.size()));
  ASSAY_TRY(const Whole places, integer_list(indices, "indices"));
  Dims expected = var.shape;
  expected[at] = places.size();
  if (updates.shape != expected)
    return fail(Errc::Invalid, "updates have shape ", updates.shape, ", ", expected, " expected");
  if (count < -1 || count > places.size())
    return fail(Errc::Invalid, out_of("the first", count, places.size()), " entries");
  const int64_t used = count == -1 ? places.size() : count;
  const int64_t size = var.shape[at];
  for (int64_t j = 0; j < used; ++j) {
    const int64_t place = places.data()[j];
    if (place < 0 || place >= size) return fail(Errc::Invalid, out_of("index", place, size));
  }
  ASSAY_TRY(Wide result, widen(var));
  ASSAY_TRY(const Wide values, widen(updates));
  if (result.size() == 0 || values.size() == 0) return result;
  int64_t outer = 1;
  int64_t inner = 1;
  for (size_t i = 0; i < var.shape.size(); ++i) {
    if (i < at) outer *= var.shape[i];
    if (i > at) inner *= var.shape[i];
  }
  for (int64_t row = 0; row < outer; ++row) {
    for (int64_t j = 0; j < used; ++j) {
      double* to = result.data() + (row * size + places.data()[j]) * inner;
      const double* from = values.data() + (row * places.size() + j) * inner;
      for (int64_t i = 0; i < inner; ++i) to[i] += alpha * from[i];
    }
  }
  return result;
}

Result<Gating> gating(const TensorView& experts, const TensorView& indices,
                      const GatingParameters& parameters) {
  ASSAY_TRY(const Whole expert, integer_list(experts, "experts"));
  ASSAY_TRY(const Whole number, integer_list(indices, "indices"));
  const int64_t count = expert.size();
  if (number.size() != count)
    return fail(Errc::Invalid, count, " experts and ", number.size(), " indices");
  const bool counted = parameters.expert_count > 0;
  if (parameters.expert_count < 0 || parameters.expert_count > kMostExperts)
    return fail(Errc::Invalid, parameters.expert_count, " experts");
  if (counted && parameters.topk_expert_num <= 0)
    return fail(Errc::Invalid, "topkExpertNum ", parameters.topk_expert_num, " is not positive");
  std::vector<int64_t> mine = parameters.device_experts;
  std::sort(mine.begin(), mine.end());
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] < 0 || mine[i] >= parameters.expert_count || (i > 0 && mine[i] == mine[i - 1]))
      return fail(Errc::Invalid, out_of("deviceExpert", mine[i], parameters.expert_count),
                  " is no expert, or listed twice");
  }
  for (const int64_t one : expert.values) {
    if (counted && (one < 0 || one >= parameters.expert_count))
      return fail(Errc::Invalid, out_of("expert", one, parameters.expert_count));
  }

  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return expert.values[static_cast<size_t>(a)] < expert.values[static_cast<size_t>(b)];
  });
  // With experts of this device only: their entries, in the same order, and zeros after them.
  const auto is_mine = [&](int64_t entry) {
    return mine.empty() ||
           std::binary_search(mine.begin(), mine.end(), expert.values[static_cast<size_t>(entry)]);
  };
  Gating result{Whole(Dims{count}, 0), Whole(), Whole(Dims{count}, 0), 0};
  for (const int64_t entry : order) {
    if (!is_mine(entry)) continue;
    const auto at = static_cast<size_t>(result.valid++);
    const int64_t original = number.values[static_cast<size_t>(entry)];
    result.original_index.values[at] = original;
    if (!counted) continue;
    // Division that rounds down, also below zero.
    const int64_t divisor = parameters.topk_expert_num;
    result.token_index.values[at] = original / divisor - (original % divisor < 0 ? 1 : 0);
  }
  if (!counted) {
    result.cumulative = Whole(Dims{1}, 0);
    return result;
  }
  std::vector<int64_t> counts(static_cast<size_t>(parameters.expert_count), 0);
  for (const int64_t one : expert.values) ++counts[static_cast<size_t>(one)];
  if (!mine.empty()) {
    std::vector<int64_t> picked;
    for (const int64_t one : mine) picked.push_back(counts[static_cast<size_t>(one)]);
    counts = std::move(picked);
  }
  result.cumulative = Whole(Dims{static_cast<int64_t>(counts.size())});
  std::partial_sum(counts.begin(), counts.end(), result.cumulative.values.begin());
  return result;
}

}  // namespace assay::reference
