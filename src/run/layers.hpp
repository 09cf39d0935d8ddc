// SPDX-License-Identifier: Apache-2.0
// Which modules of a tree are the repeated layers of the model, and which layer a name is of.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

/// A layer among its like. The three in a row are its name: "model.layers." 5 "",
/// "" 3 "_Prefill_layer", "layer " 5 "".
struct NumberedLayer {
  std::string before;
  int64_t number = 0;
  std::string after;

  [[nodiscard]] std::string name() const { return named(std::to_string(number)); }
  /// Of several of the stack: "model.layers.0-11".
  [[nodiscard]] std::string named(std::string_view numbers) const {
    return before + std::string(numbers) + after;
  }
  /// Layers of one stack differ in their numbers only.
  [[nodiscard]] bool same_stack(const NumberedLayer& other) const {
    return before == other.before && after == other.after;
  }
};

/// The outermost layer that a node, or a tensor of a file, belongs to by its name:
/// "model.layers.5" of "model.layers.5.mlp", "blk.5" of "blk.5.attn_q.weight", "3_Prefill_layer" of
/// "3_Prefill_layer/1_Attention", "layer 5" of the operators of a program without modules:
/// "Qcur-5::engine.mul_mat.0", "cache_k_l5 (view)::engine.set_rows.0".
[[nodiscard]] std::optional<NumberedLayer> layer_of_node(std::string_view node);

/// The routed expert that a name begins with: "model.layers.3.mlp.experts.5" of
/// "model.layers.3.mlp.experts.5.up_proj.weight". Shared experts have a list of their own.
[[nodiscard]] std::optional<NumberedLayer> expert_of_node(std::string_view name);

/// One part of a dotted path, or the first of ATB's, as a layer; `before` and `after` are those of
/// the part: "5", "3_Prefill_layer", and "layer 5" as layer_of_node() calls it.
[[nodiscard]] std::optional<NumberedLayer> layer_of_part(std::string_view part);

}  // namespace assay::run
