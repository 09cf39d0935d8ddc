// SPDX-License-Identifier: Apache-2.0
// What ggml programs of the Llama family call the tensors of a Hugging Face model, as data: activations by module, and
// weights by parameter.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay::pair {

/// Whether channels come in heads of queries or of keys. Where rope turns neighbours (mode 0 of ggml), the converter has
/// put these in another order: `ggml_channel`. In mode 2 they stand as in Hugging Face.
enum class Heads : std::uint8_t { None, Queries, Keys };

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
struct GgmlNode {
  std::string name;     // "Qcur-3"
  std::string_view op;  // in lower case: "mul_mat"
  Heads heads =
      Heads::None;  // channels: the last dimension of `mul_mat`, each row of the last after `rope`
  bool requested_rows =
      false;  // one row for each token whose logits are asked for, not for each token

  bool operator==(const GgmlNode&) const = default;
};

/// A node of a captured graph, "Qcur-3::ggml.rope.1".   docs/formats/native.md
struct CapturedNode {
  std::string_view name;    // "Qcur-3"
  std::string_view op;      // "rope"
  std::int64_t number = 0;  // among the operators of this kind and name
};
/// Nothing for what is no node of a ggml graph. The result looks into `node`.
[[nodiscard]] std::optional<CapturedNode> parse_ggml_node(std::string_view node);

/// Nodes with the module's tensor, the likeliest first: with a bias the projection's result is an `add`, without one the
/// `mul_mat`, and engines differ in names.
/// layer_count   layers of the model, for `requested_rows`; 0 when not known
[[nodiscard]] std::vector<GgmlNode> ggml_nodes_of(const ModuleTensor& tensor,
                                                  std::int64_t layer_count = 0);

/// The modules whose tensor the node is; a sum may be two modules' output. Names begin at `model.` or `lm_head`.
/// name   as the graph has it, without ` (view)` and the like
[[nodiscard]] std::vector<ModuleTensor> module_tensors_of(std::string_view name,
                                                          std::string_view op);

struct GgmlWeight {
  std::string name;           // "blk.3.attn_q.weight"
  Heads heads = Heads::None;  // order of the rows

  bool operator==(const GgmlWeight&) const = default;
};

/// GGUF's name of a parameter ("model.layers.3.self_attn.q_proj.weight", with any prefix before `model.`); nothing when the
/// table does not know it.
[[nodiscard]] std::optional<GgmlWeight> ggml_weight_of(std::string_view parameter);

/// The parameters that a tensor of a GGUF file may be, the usual name first; empty when the table does not know it. One
/// expert's matrix is `blk.3.ffn_gate.7.weight`, as files had it before the experts were stacked.
[[nodiscard]] std::vector<std::string> parameters_of(std::string_view ggml_weight);

/// GGUF's names of the tensors that hold the experts of a parameter with all of a layer's ("model.layers.3.mlp.experts.
/// gate_up_proj", [experts, rows, columns]), in order of its rows: one list for each way files have it, empty for other
/// parameters.
[[nodiscard]] std::vector<std::vector<std::string>> ggml_experts_of(std::string_view parameter);

/// Where channel (or row) i of Hugging Face stands when rope turns neighbours: within each head i goes to 2i, and
/// i + d/2 to 2i + 1.
/// head_size   d, even and positive
[[nodiscard]] std::int64_t ggml_channel(std::int64_t channel, std::int64_t head_size);

}  // namespace assay::pair
