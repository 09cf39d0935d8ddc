// SPDX-License-Identifier: Apache-2.0
// Which modules of a tree are the repeated layers of the model.
#pragma once
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::run {

struct LayerRule {
  /// A node decides when it has more children than this, and its most frequent child type occurs
  /// more often than `min_repeats`. The defaults are the original's; models of up to ten layers
  /// have no layer type then.
  size_t min_children = 10;
  size_t min_repeats = 5;
  /// Counts only children whose last name component is a number, as ModuleList and Sequential give
  /// them, and searches below a node that did not decide. Without it an embedding block with three
  /// embeddings would be taken for three layers.
  bool numbered_only = false;
};

/// For models of any depth: the first list of at least two modules of one type.
inline constexpr LayerRule kAnySizeLayerRule{1, 1, true};

/// The most frequent child type of the first node, in pre-order, that has more than `min_children`
/// children. When that type is too rare the search ends below that node and goes on beside it.
/// Among equally frequent types the first to appear wins. Empty: the tree has no layers.
[[nodiscard]] std::string layer_type(const TopologyNode& root, const LayerRule& rule = {});

/// Every node of `type` in pre-order, not searching inside one. The pointers borrow `root`.
[[nodiscard]] std::vector<const TopologyNode*> layers_of_type(const TopologyNode& root,
                                                              std::string_view type);

}  // namespace assay::run
