// SPDX-License-Identifier: Apache-2.0
// What ggml programs of the Llama family call the activations of a Hugging Face model, as data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pair/gguf_names.hpp"

namespace assay::engines::ggml {

using pair::Heads;

/// A tensor of a Hugging Face model, by the module it belongs to.
enum class ModulePlace : std::uint8_t {
  Output,
  Input,          // the first argument
  RouterWeights,  // second output of a router: of the chosen experts, [tokens, chosen]
  RouterChoices,  // its third: their numbers
  // Inside a module of experts, a row for each token and expert that it chose:
  ExpertGate,
  ExpertUp,
  ExpertProduct,  // of the activated gate and up
  ExpertDown,     // before the router's weight
  RotatedQuery,   // inside the module (self_attn): after the rotary embedding
  RotatedKey,
  CachedKeys,  // inside the module: of all tokens so far, as attention reads them
  CachedValues,
};

struct ModuleTensor {
  std::string module;  // "model.layers.3.self_attn.q_proj"
  ModulePlace place = ModulePlace::Output;

  bool operator==(const ModuleTensor&) const = default;
};

/// A node of a ggml graph: nodes share names, so the operator belongs to it.
struct GraphNode {
  std::string name;     // "Qcur-3"
  std::string_view op;  // in lower case: "mul_mat"
  /// Channels: the last dimension of `mul_mat`, each row of the last after `rope`.
  Heads heads = Heads::None;
  /// One row for each token whose logits are asked for, not for each token.
  bool requested_rows = false;

  bool operator==(const GraphNode&) const = default;
};

/// A node of a captured graph, "Qcur-3::ggml.rope.1".   docs/formats/native.md
struct CapturedNode {
  std::string_view name;    // "Qcur-3"
  std::string_view op;      // "rope"
  std::int64_t number = 0;  // among the operators of this kind and name
};
/// Nothing for what is no node of a ggml graph. The result looks into `node`.
[[nodiscard]] std::optional<CapturedNode> parse_node(std::string_view node);

/// Nodes with the module's tensor, the likeliest first: with a bias the projection's result is an
/// `add`, without one the `mul_mat`, and engines differ in names.
/// layer_count   layers of the model, for `requested_rows`; 0 when not known
[[nodiscard]] std::vector<GraphNode> nodes_of(const ModuleTensor& tensor,
                                              std::int64_t layer_count = 0);

/// The modules whose tensor the node is; a sum may be two modules' output. Names begin at `model.`
/// or `lm_head`.
/// name   as the graph has it, without ` (view)` and the like
[[nodiscard]] std::vector<ModuleTensor> module_tensors_of(std::string_view name,
                                                          std::string_view op);

}  // namespace assay::engines::ggml
