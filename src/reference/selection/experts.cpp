// SPDX-License-Identifier: Apache-2.0
// Groups are ordered by the sum of their largest values and the losers set to zero; of what stays
// the largest are taken, and their gates are the weights.
//   docs/opcheck/selection.md, "Experts"
#include "reference/selection/experts.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "reference/elementwise/activation.hpp"
#include "reference/elementwise/broadcast.hpp"
#include "reference/selection/indexing.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

struct Groups {
  int64_t tokens = 0, experts = 0;
  int64_t count = 0, size = 0;
};
Result<Groups> groups_of(const Dims& shape, int64_t groups, int64_t keep, int64_t largest) {
  if (shape.size() != 2)
    return fail(Errc::Invalid, "scores have shape ", shape, ", [tokens, experts] expected");
  if (groups < 1 || shape[1] % groups != 0)
    return fail(Errc::Invalid, groups, " groups of ", shape[1], " experts");
  const Groups result{shape[0], shape[1], groups, shape[1] / groups};
  if (keep < 0 || keep > groups) return fail(Errc::Invalid, keep, " best of ", groups, " groups");
  if (largest < 1 || largest > result.size)
    return fail(Errc::Invalid, "the ", largest, " largest of groups of ", result.size);
  return result;
}

/// Calls lose(group) for each group of one token that is not among the best.
template <typename Lose>
void for_losers(const double* scores, const Groups& groups, int64_t keep, int64_t largest,
                Lose lose) {
  std::vector<double> sums;
  std::vector<double> group;
  for (int64_t g = 0; g < groups.count; ++g) {
    group.assign(scores + g * groups.size, scores + (g + 1) * groups.size);
    std::partial_sort(group.begin(), group.begin() + largest, group.end(), std::greater<>());
    sums.push_back(std::accumulate(group.begin(), group.begin() + largest, 0.0));
  }
  std::vector<int64_t> order(sums.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return sums[static_cast<size_t>(a)] > sums[static_cast<size_t>(b)];
  });
  for (auto at = static_cast<size_t>(keep); at < order.size(); ++at) lose(order[at]);
}

/// Comparisons of sorting need an order, which NaN does not have.
Status refuse_nan(const Wide& values) {
  for (const double value : values.values) {
    if (value != value) return fail(Errc::Invalid, "scores hold NaN");
  }
  return {};
}

}  // namespace

Result<Tensor> group_top_k(const Tensor& x, int64_t groups, int64_t keep, int64_t largest) {
  ASSAY_TRY(const Groups cut, groups_of(x.view.shape, groups, keep, largest));
  ASSAY_TRY(const Wide scores, widen(x.view));
  ASSAY_TRY_STATUS(refuse_nan(scores));
  ASSAY_TRY(const Tensor source, contiguous(x));
  const ByteSpan from = source.view.contiguous_bytes();
  auto bytes = std::make_shared<std::vector<std::byte>>(from.begin(), from.end());
  const auto group_bytes = static_cast<size_t>(cut.size) * info(source.view.dtype).element_bits / 8;
  for (int64_t token = 0; token < cut.tokens; ++token) {
    for_losers(scores.data() + token * cut.experts, cut, keep, largest, [&](int64_t group) {
      const auto first = static_cast<size_t>(token * cut.count + group) * group_bytes;
      std::memset(bytes->data() + first, 0, group_bytes);
    });
  }
  ASSAY_TRY(const TensorView view, make_view(source.view.dtype, source.view.shape,
                                             ByteSpan(bytes->data(), bytes->size())));
  return Tensor{view, std::move(bytes)};
}

Wide routing_weights(const Wide& gates, const Whole& experts, const RoutingParameters& parameters) {
  const int64_t tokens = gates.shape[0];
  const int64_t all = gates.shape[1];
  const int64_t k = experts.shape[1];
  Wide weights(experts.shape);
  for (int64_t token = 0; token < tokens; ++token) {
    double* row = weights.data() + token * k;
    double sum = 0;
    for (int64_t i = 0; i < k; ++i)
      sum += row[i] = gates.data()[token * all + experts.data()[token * k + i]];
    if (!parameters.normalise) continue;
    for (int64_t i = 0; i < k; ++i) row[i] = row[i] / sum * parameters.scale;
  }
  return weights;
}

Result<Routing> route_to_experts(const TensorView& x, const TensorView& bias,
                                 const RoutingParameters& parameters) {
  ASSAY_TRY(const Groups cut,
            groups_of(x.shape, parameters.groups, parameters.group_top_k, parameters.largest));
  Routing result;
  ASSAY_TRY(result.gates, sigmoid(x));
  ASSAY_TRY(const BroadcastValues added, BroadcastValues::make(bias, x.shape));
  result.scores = Wide(x.shape);
  added.read(0, result.scores.size(), result.scores.data());
  for (size_t i = 0; i < result.scores.values.size(); ++i)
    result.scores.values[i] += result.gates.values[i];
  ASSAY_TRY_STATUS(refuse_nan(result.scores));
  for (int64_t token = 0; token < cut.tokens; ++token) {
    double* row = result.scores.data() + token * cut.experts;
    for_losers(row, cut, parameters.group_top_k, parameters.largest,
               [&](int64_t group) { std::fill_n(row + group * cut.size, cut.size, 0.0); });
  }
  Wide copy = result.scores;
  ASSAY_TRY(TopK best, top_k(to_tensor(std::move(copy)).view, parameters.top_k));
  result.experts = std::move(best.indices);
  result.weights = routing_weights(result.gates, result.experts, parameters);
  return result;
}

}  // namespace assay::reference
