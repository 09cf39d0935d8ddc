// SPDX-License-Identifier: Apache-2.0
// Which operator of mine is which of golden's, and the tests on pairs.
//   docs/localisation.md, "Pair tests"
#pragma once
#include "locate/program/finding.hpp"
#include "pair/program_weights.hpp"
#include "pair/programs.hpp"

namespace assay::locate {

struct Pairing : pair::OperatorPairs {
  std::vector<size_t> golden_call_of;  // by module call of mine; kNone: golden has no such call
  std::vector<size_t> mine_call_of;    // by module call of golden
  pair::LeafPairs leaves;              // of parameters and buffers
  // every paired module call has inputs and outputs of equal shapes: replay is possible
  bool same_shapes = true;
};

/// By (rank, step, module, call number); sequences of names that differ are aligned by longest
/// matching blocks.
[[nodiscard]] Pairing pair_programs(const Program& golden, const Program& mine);

struct WeightDifference {
  double half_ulp = 0;  // largest |m - g| in half ULP of the run under test's type
  int64_t worst = -1;
  double golden_value = 0, mine_value = 0;
  double relative_l2 = NAN;  // of all values; NaN: of integers, or where values are not finite
  bool shape_differs = false;
  bool identical = false;
};
/// Element by element against one rounding; at most 1 after rounding to nearest, 2 after
/// truncation. Limit 2.1. Values are compared in the run under test's type: U is one ULP of the run
/// under test's element.
[[nodiscard]] Result<WeightDifference> weight_difference(const TensorView& golden,
                                                         const TensorView& mine);
inline constexpr double kWeightLimit = 2.1;
/// Buffers that are made from a configuration, such as frequencies: both may be what their way of
/// computing makes in their own types, of at least float32. Each element may be (1 + |ln g|) times
/// as far off as the limit: exp(t) is off by |t| times the relative error of t. Sines and cosines of
/// positions, [..., positions, columns], may be as far off as their angles are.
[[nodiscard]] bool is_same_table(const TensorView& golden, const TensorView& mine);
/// "[3, 5]": where the element with a flat index in C order is in a tensor of this shape.
[[nodiscard]] std::string place_text(int64_t flat, const Dims& shape);

struct PairTests {
  // hard ones and suspicions, in the run under test's execution order
  std::vector<Finding> findings;
  size_t weights_compared = 0;
  size_t weights = 0;         // of mine
  size_t weights_lonely = 0;  // of them, those that golden has nothing for under any name
  // parameters that golden's operators read and mine has nothing for
  std::vector<std::string> weights_missing;
  /// Of them, by the type that their file rounds to, those that golden's are within its rounding.
  std::map<std::string, size_t> rounded;
  double cost = 0;  // of those: root of the sum of their squared errors over that of golden's
  /// Of them, those that are golden's but for more than one rounding, and are what mine computes
  /// with: on the grid of codes, quantised and put back in place; tables computed in another way.
  std::set<std::string> own;
  /// Of them, those with more rows behind golden's: padded vocabularies.
  std::vector<std::string> padded;
  std::vector<std::string> notes;
};

/// Weight, attribute, constant, topology and edge tests. Levels below O run the weight test only.
/// errors  Interrupted
[[nodiscard]] Result<PairTests> test_pairs(const Program& golden, const Program& mine,
                                           const Pairing& pairing,
                                           const std::atomic<bool>* interrupted);

}  // namespace assay::locate
