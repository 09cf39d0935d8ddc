// SPDX-License-Identifier: Apache-2.0
// The parts of `--map`: texts of slices and merges, and what the entries say of whole modules.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "compare/compare.hpp"
#include "compare/operand.hpp"
#include "pair/user_pairs.hpp"

namespace assay::compare {

/// "[:, -1, 2:8]" or without brackets: an index or a range for each leading axis, as in NumPy.
/// Negative numbers count from the end; resolve_steps() makes them positive.
/// errors  Invalid
[[nodiscard]] Result<std::vector<Step>> parse_slice(std::string_view text);

/// The same steps for a tensor of that shape: without negative numbers and open ends.
/// errors  Invalid: an axis or index that the shape does not have
[[nodiscard]] Result<std::vector<Step>> resolve_steps(const std::vector<Step>& steps,
                                                      const Dims& shape);

/// What the options say of ranks, steps and modules, for those that pair programs and not tensors. An entry of the map counts
/// when it has no slice and no merge, and its selectors name records of one module each.
[[nodiscard]] pair::UserPairs user_pairs(const run::Run& golden, const run::Run& mine,
                                         const CompareOptions& options);

}  // namespace assay::compare
