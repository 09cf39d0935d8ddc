// SPDX-License-Identifier: Apache-2.0
// Choosing experts of a mixture by groups.   docs/opcheck/selection.md
#pragma once
#include "reference/wide.hpp"

namespace assay::reference {

/// The entries of all but the best groups set to zero. A group's score is the sum of its `largest`
/// largest values; of equal scores the first group wins.
///
/// x         [tokens, experts]
/// groups    divides the experts
/// keep      groups that stay, in [0, groups]
/// largest   in [1, experts / groups]
/// returns   x's type and shape
/// errors    Invalid (shapes, numbers out of range) | of widen()
[[nodiscard]] Result<Tensor> group_top_k(const Tensor& x, int64_t groups, int64_t keep,
                                         int64_t largest = 1);

struct RoutingParameters {
  int64_t groups = 1;
  int64_t group_top_k = 1;  // groups that stay
  int64_t largest = 1;      // values of a group that are added up to its score
  int64_t top_k = 1;        // experts a token
  bool normalise = true;
  double scale = 1.0;  // only with normalise
};
struct Routing {
  Wide weights;   // [tokens, top_k]
  Whole experts;  // [tokens, top_k]
  /// [tokens, experts], sigmoid(x) + bias with the groups that lost at 0: what was sorted.
  Wide scores;
  Wide gates;  // [tokens, experts], sigmoid(x)
};
/// Experts of each token: the top_k largest of sigmoid(x) + bias in the best groups; weights are
/// sigmoid(x) of those, over their sum and times scale if normalised.
///
/// x       [tokens, experts]
/// bias    broadcasts to x
/// errors  as group_top_k()
[[nodiscard]] Result<Routing> route_to_experts(const TensorView& x, const TensorView& bias,
                                               const RoutingParameters& parameters);

/// Weights of given experts, as route_to_experts() computes them.
/// gates, experts   [tokens, n], [tokens, k]; indices in range
[[nodiscard]] Wide routing_weights(const Wide& gates, const Whole& experts,
                                   const RoutingParameters& parameters);

}  // namespace assay::reference
