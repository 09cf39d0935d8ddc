// SPDX-License-Identifier: Apache-2.0
// Sorting, counting and writing by index.   docs/opcheck/selection.md
#pragma once
#include <span>
#include <vector>

#include "reference/wide.hpp"

namespace assay::reference {

struct TopK {
  Wide values;  // [.., k], descending
  /// [.., k], places in the last dimension of x; of equal values the first comes first.
  Whole indices;
};
/// The k largest values of each row (last dimension). NaN counts as larger than everything.
/// errors  Invalid (x without dimensions, k outside [0, columns]) | of widen()
[[nodiscard]] Result<TopK> top_k(const TensorView& x, int64_t k);

/// Coordinates of the values that are not 0, in C order: [count, rank].
/// errors  of widen() | TooLarge
[[nodiscard]] Result<Whole> coordinates(const TensorView& x);

struct Nonzero {
  Whole indices;  // [rank, elements of x]: coordinates in row-major order, then columns of zeros
  int64_t count = 0;  // columns that are coordinates
};
/// errors  of widen()
[[nodiscard]] Result<Nonzero> nonzero(const TensorView& x);

/// `one` where x equals the place along the new axis, otherwise `zero`.
///
/// x         integers
/// axis      place of the new dimension in the result; -1: the last
/// returns   x.shape with `depth` inserted
/// errors    Invalid (negative depth, no such axis) | of whole()
[[nodiscard]] Result<Whole> one_hot(const TensorView& x, int64_t depth, int64_t one = 1,
                                    int64_t zero = 0, int64_t axis = -1);

/// var[.., indices[j], ..] += alpha updates[.., j, ..] along an axis, for j in [0, count), in
/// order.
///
/// indices   [n], in [0, var.shape[axis])
/// updates   var's shape with n at the axis
/// count     entries that count; -1: all
/// errors    Invalid (shapes, an index out of range, count outside [0, n]) | of widen(), whole()
[[nodiscard]] Result<Wide> index_add(const TensorView& var, int64_t axis, const TensorView& indices,
                                     const TensorView& updates, double alpha = 1.0,
                                     int64_t count = -1);

struct GatingParameters {
  int64_t topk_expert_num = 1;               // experts a token
  int64_t expert_count = 0;                  // cumSumNum; 0: nothing is counted
  std::vector<int64_t> device_experts = {};  // those of this device; empty: all
};
struct Gating {
  Whole token_index;     // [n]
  Whole cumulative;      // [expert_count], or [device_experts]; [1] of 0 without experts
  Whole original_index;  // [n]
  int64_t valid = 0;     // entries of this device's experts
};
/// Entries sorted by expert: where each came from, and how many there are up to each expert.
///
/// experts   [n], expert of each entry
/// indices   [n], number of each entry
/// errors    Invalid (lengths, an expert out of range, topk_expert_num 0) | of whole()
[[nodiscard]] Result<Gating> gating(const TensorView& experts, const TensorView& indices,
                                    const GatingParameters& parameters);

}  // namespace assay::reference
