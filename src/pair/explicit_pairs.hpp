// SPDX-License-Identifier: Apache-2.0
// What the user says corresponds: `--ranks`, `--parallel`, `--token-map` and the entries of
// `--map`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "pair/operand.hpp"
#include "run/parallel_groups.hpp"
#include "run/run.hpp"

namespace assay::pair {

/// One line of --map: `golden` and `mine` are a file (a path or its last components), a node name,
/// or "node:slot".
struct ExplicitPair {
  std::string golden;
  std::string mine;
  std::vector<RecipeStep> golden_steps = {};  // "slice": what of golden corresponds to mine
  std::vector<RecipeStep> mine_steps = {};    // "my_slice"
  /// How the ranks of the side that has more of them become one; nothing: found out.
  std::optional<Merge> merge = {};
  int axis = 0;
};

/// Reads the JSON list of {"golden": ..., "my": ..., "slice": "[:, -1]", "my_slice": ..., "reduce":
/// "none" | "cat:1" | "sum" | "pick"} of --map.
/// errors  Invalid (with the entry)
[[nodiscard]] Result<std::vector<ExplicitPair>> parse_explicit_pairs(std::string_view text);

/// What the user says corresponds; it wins over every rule.
struct UserRules {
  std::vector<std::pair<int64_t, int64_t>> token_map = {};  // (golden, mine); empty: equal ids
  std::vector<int> ranks = {};                              // empty: all that both sides have
  std::vector<ExplicitPair> explicit_pairs = {};
  run::ParallelSizes parallel = {};  // of mine's job; empty: what its manifests say
};

/// "[:, -1, 2:8]" or without brackets: an index or a range for each leading axis, as in NumPy.
/// Negative numbers count from the end; resolve_steps() makes them positive.
/// errors  Invalid
[[nodiscard]] Result<std::vector<RecipeStep>> parse_slice(std::string_view text);

/// The same steps for a tensor of that shape: without negative numbers and open ends.
/// errors  Invalid: an axis or index that the shape does not have
[[nodiscard]] Result<std::vector<RecipeStep>> resolve_steps(const std::vector<RecipeStep>& steps,
                                                            const Dims& shape);

/// Indices of the records that a selector of --map names: a file (its last components are enough),
/// a node, or "node:slot".
[[nodiscard]] std::vector<size_t> named_records(const run::Run& run, std::string_view selector);

/// The module path that all records of a selector have; empty: there is none, or there are several.
[[nodiscard]] std::string named_module(const run::Run& run, std::string_view selector);

/// Entries of the map that speak of whole modules, for those that pair programs and not tensors:
/// without slice and merge, and with selectors that name records of one module each.
///
/// modules     gets (golden, mine) of each
/// of_tensors  gets the number of the others
void name_modules(const run::Run& golden, const run::Run& mine,
                  const std::vector<ExplicitPair>& entries,
                  std::vector<std::pair<std::string, std::string>>* modules, size_t* of_tensors);

}  // namespace assay::pair
