// SPDX-License-Identifier: Apache-2.0
// Ranks are folded one after the other into the first, reals in double, integers modulo 2^64.
//   docs/opcheck/products.md, "AllReduce"
#include "reference/products/all_reduce.hpp"

#include <algorithm>
#include <vector>

#include "reference/elementwise/broadcast.hpp"

namespace assay::reference {
namespace {

// std::fmax and std::max drop NaN; a reduction that meets one has no value.
double largest(double a, double b) { return std::isnan(a) || a > b ? a : b; }
double smallest(double a, double b) { return std::isnan(a) || a < b ? a : b; }

double combined(RankReduction reduction, double a, double b) {
  switch (reduction) {
    case RankReduction::Sum:
      return a + b;
    case RankReduction::Max:
      return largest(a, b);
    case RankReduction::Min:
      return smallest(a, b);
    case RankReduction::Product:
      break;
  }
  return a * b;
}

/// Sums and products modulo 2^64; the low bits are those of any narrower type.
int64_t combined(RankReduction reduction, int64_t a, int64_t b) {
  switch (reduction) {
    case RankReduction::Sum:
      return wrapping_add(a, b);
    case RankReduction::Max:
      return std::max(a, b);
    case RankReduction::Min:
      return std::min(a, b);
    case RankReduction::Product:
      break;
  }
  return wrapping_multiply(a, b);
}

template <typename T, typename Read>
Result<Array<T>> reduced(std::span<const TensorView> ranks, RankReduction reduction, Read read) {
  ASSAY_TRY(Array<T> result, read(ranks[0]));
  for (const TensorView& rank : ranks.subspan(1)) {
    ASSAY_TRY(const Array<T> values, read(rank));
    std::transform(result.values.begin(), result.values.end(), values.values.begin(),
                   result.values.begin(),
                   [reduction](T a, T b) { return combined(reduction, a, b); });
  }
  return result;
}

}  // namespace

Result<Tensor> all_reduce(std::span<const TensorView> ranks, RankReduction reduction) {
  ASSAY_TRY_STATUS(check_ranks(ranks));
  if (is_integer(ranks[0].dtype) || ranks[0].dtype == DType::Bool) {
    ASSAY_TRY(Whole result, reduced<int64_t>(ranks, reduction, whole));
    for (int64_t& value : result.values) value = wrap_to(value, ranks[0].dtype);
    return to_tensor(std::move(result));
  }
  ASSAY_TRY(Wide result, reduced<double>(ranks, reduction, widen));
  return to_tensor(std::move(result));
}

Result<Wide> reduce_part(std::span<const Tensor> ranks, RankReduction reduction, int64_t first,
                         int64_t count) {
  ASSAY_TRY_STATUS(check_ranks(views_of(ranks)));
  std::vector<Tensor> parts(ranks.begin(), ranks.end());
  for (Tensor& part : parts) {
    ASSAY_TRY(part, flat_part(part, first, count));
  }
  return reduced<double>(views_of(parts), reduction, widen);
}

Result<Wide> quantised_all_reduce(std::span<const TensorView> ranks, const TensorView& scale,
                                  const TensorView& offset) {
  ASSAY_TRY_STATUS(check_ranks(ranks));
  ASSAY_TRY(Wide sum, reduced<double>(ranks, RankReduction::Sum, widen));
  ASSAY_TRY(const BroadcastValues scales, BroadcastValues::make(scale, sum.shape));
  ASSAY_TRY(const BroadcastValues offsets, BroadcastValues::make(offset, sum.shape));
  const auto rank_count = static_cast<double>(ranks.size());
  double scale_block[kBlock];
  double offset_block[kBlock];
  for (int64_t first = 0; first < sum.size(); first += kBlock) {
    const int64_t count = std::min(kBlock, sum.size() - first);
    scales.read(first, count, scale_block);
    offsets.read(first, count, offset_block);
    double* out = sum.data() + first;
    for (int64_t i = 0; i < count; ++i)
      out[i] = (out[i] + offset_block[i] * rank_count) * scale_block[i];
  }
  return sum;
}

}  // namespace assay::reference
