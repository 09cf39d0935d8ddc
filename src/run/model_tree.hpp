// SPDX-License-Identifier: Apache-2.0
// Module trees as JSON: model_tree.json of the torch hook dump and topology.json of the native
// layout.
#pragma once
#include <string_view>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

inline constexpr size_t kMaxTreeDepth = 256;  // nesting of modules; torch models stay below 20
inline constexpr size_t kMaxTreeNodes = size_t{1} << 22;

/// Reads {"name": str, "type": str, "children": [...]} recursively; "exec_order" is taken where it
/// stands, other keys are skipped. Only the first JSON value counts: the oldest writer did not
/// truncate the file, so that the tail of a longer earlier tree can follow. errors    Invalid with
/// the byte offset: no JSON, cut off, or the value is no object | TooLarge: a limit above
[[nodiscard]] Result<TopologyNode> read_model_tree(std::string_view text);

}  // namespace assay::run
