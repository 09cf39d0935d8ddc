// SPDX-License-Identifier: Apache-2.0
// Columns of a tensor in another order: attention heads or MLP units that one side has permuted.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tensor/tensor_view.hpp"

namespace assay::pair {

/// Finds the order of the run under test's positions along an axis that makes it golden: golden[..,
/// i, ..] is mine[.., order[i], ..] up to rounding. As RecipeStep{Kind::Permute, axis, order} it
/// puts mine into golden's order. Positions that hold the same values may be exchanged.
///
/// golden, mine   of one shape, real values; reads both once, and a second time when an order was
///                found
/// axis           negative: from the last one backwards
/// returns        nothing when the tensors agree as they are, when no order brings the difference
///                down to rounding, when chance could explain the order (few rows, crowded values),
///                and for axes longer than 65536
[[nodiscard]] std::optional<std::vector<int64_t>> find_permutation(const TensorView& golden,
                                                                   const TensorView& mine,
                                                                   int axis = -1);

}  // namespace assay::pair
