// SPDX-License-Identifier: Apache-2.0
// The tests on pairs, one function each; test_pairs() runs them.
//   docs/localisation.md, "Pair tests"
#pragma once
#include <atomic>

#include "locate/program/pairing.hpp"

namespace assay::locate {

struct PairContext {
  const Program& golden;
  const Program& mine;
  const Pairing& pairing;
  const std::atomic<bool>* interrupted;

  [[nodiscard]] bool stopped() const { return interrupted != nullptr && interrupted->load(); }
};

/// A finding at an operator of mine, which may be kNone for what mine lacks.
[[nodiscard]] Finding finding_at(const PairContext& pair, FindingKind kind, size_t mine_operator,
                                 size_t golden_operator);

void test_weights(const PairContext& pair, PairTests* tests);
void test_attributes(const PairContext& pair, PairTests* tests);
void test_topology(const PairContext& pair, PairTests* tests);
/// Edges, and the anonymous leaves that they end at.
void test_edges(const PairContext& pair, PairTests* tests);

/// Of whole numbers: they follow from how long a prompt is, or where in it a program is. All others
/// are part of what an operator computes: how many of the largest, over which axis.
[[nodiscard]] bool is_place_or_size(std::string_view argument);

/// True when two values of an argument mean the same to programs of different precision.
/// whole_numbers   integers count, which they do only between runs of equal shapes
[[nodiscard]] bool equal_arguments(const reference::aten::Argument& golden,
                                   const reference::aten::Argument& mine, bool whole_numbers);

/// As weight_difference(), with values beyond 1e4 of one sign taken for equal: masks are filled
/// with the lowest value of a type.
[[nodiscard]] Result<WeightDifference> constant_difference(const TensorView& golden,
                                                           const TensorView& mine);
inline constexpr double kMaskValue = 1e4;

/// The factor by which all of mine differs from golden within rounding; nothing when there is none.
[[nodiscard]] std::optional<double> constant_factor(const TensorView& golden,
                                                    const TensorView& mine);

}  // namespace assay::locate
