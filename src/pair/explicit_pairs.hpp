// SPDX-License-Identifier: Apache-2.0
// The parts of `--map`: texts of slices and merges, and what the entries say of whole modules.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "pair/match.hpp"
#include "pair/operand.hpp"
#include "pair/user_pairs.hpp"

namespace assay::pair {

/// "[:, -1, 2:8]" or without brackets: an index or a range for each leading axis, as in NumPy.
/// Negative numbers count from the end; resolve_steps() makes them positive.
/// errors  Invalid
[[nodiscard]] Result<std::vector<Step>> parse_slice(std::string_view text);

/// The same steps for a tensor of that shape: without negative numbers and open ends.
/// errors  Invalid: an axis or index that the shape does not have
[[nodiscard]] Result<std::vector<Step>> resolve_steps(const std::vector<Step>& steps,
                                                      const Dims& shape);

/// What the user says of ranks, steps and modules, for those that pair programs and not tensors. An entry of the map counts
/// when it has no slice and no merge, and its selectors name records of one module each.
[[nodiscard]] UserPairs user_pairs(const run::Run& golden, const run::Run& mine,
                                   const UserRules& rules);

}  // namespace assay::pair
