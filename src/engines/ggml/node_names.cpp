// SPDX-License-Identifier: Apache-2.0
// One table of modules and nodes, searched from both sides; a module may have several nodes, and a
// node several modules.
//   docs/design/ggml-pairs.md, "Which node is which module"
#include "engines/ggml/node_names.hpp"

#include <array>
#include <utility>

#include "base/numbers.hpp"

namespace assay::engines::ggml {
namespace {

using pair::fill_number;
using pair::match_numbered;

// `#` is the number of a layer in all names.
struct NodeRow {
  std::string_view module;
  ModulePlace place;
  std::string_view name;
  std::string_view op;
  Heads heads = Heads::None;
};

using enum ModulePlace;

// Llama 0.5 and 0.6 (ggml 0.25 and 0.26); names of older engines stand below the newer ones. In
// parentheses: a node without a name, called by its nearest source that has one (Qwen2 leaves this
// product unnamed). A gate stands before its activation function, and a norm behind its
// multiplication with the weight.
constexpr auto kNodes = std::to_array<NodeRow>({
    {"model.embed_tokens", Output, "embd", "get_rows"},
    {"model.layers.#.input_layernorm", Output, "attn_norm-#", "mul"},
    {"model.layers.#.self_attn.q_proj", Output, "Qcur-#", "add", Heads::Queries},
    {"model.layers.#.self_attn.q_proj", Output, "Qcur-#", "mul_mat", Heads::Queries},
    {"model.layers.#.self_attn.k_proj", Output, "Kcur-#", "add", Heads::Keys},
    {"model.layers.#.self_attn.k_proj", Output, "Kcur-#", "mul_mat", Heads::Keys},
    {"model.layers.#.self_attn.q_norm", Output, "Qcur_normed-#", "mul", Heads::Queries},
    {"model.layers.#.self_attn.k_norm", Output, "Kcur_normed-#", "mul", Heads::Keys},
    {"model.layers.#.self_attn.v_proj", Output, "Vcur-#", "add"},
    {"model.layers.#.self_attn.v_proj", Output, "Vcur-#", "mul_mat"},
    {"model.layers.#.self_attn", RotatedQuery, "Qcur-#", "rope", Heads::Queries},
    {"model.layers.#.self_attn", RotatedKey, "Kcur-#", "rope", Heads::Keys},
    {"model.layers.#.self_attn.qkv_proj", Output, "wqkv-#", "add"},
    {"model.layers.#.self_attn.qkv_proj", Output, "wqkv-#", "mul_mat"},
    {"model.layers.#.self_attn.o_proj", Input, "kqv_out-#", "cont"},
    {"model.layers.#.self_attn.o_proj", Input, "kqv_out-#", "reshape"},  // flash attention
    {"model.layers.#.self_attn.o_proj", Output, "attn_out-#", "mul_mat"},
    {"model.layers.#.self_attn.o_proj", Output, "(blk.#.attn_output.weight)", "mul_mat"},
    {"model.layers.#.self_attn", Output, "attn_out-#", "mul_mat"},
    {"model.layers.#.self_attn", Output, "(blk.#.attn_output.weight)", "mul_mat"},
    {"model.layers.#.post_attention_layernorm", Input, "ffn_inp-#", "add"},
    {"model.layers.#.post_attention_layernorm", Output, "ffn_norm-#", "mul"},
    {"model.layers.#.mlp.gate_proj", Output, "ffn_gate-#", "mul_mat"},
    {"model.layers.#.mlp.up_proj", Output, "ffn_up-#", "mul_mat"},
    {"model.layers.#.mlp.down_proj", Input, "ffn_swiglu-#", "glu"},
    {"model.layers.#.mlp.down_proj", Input, "ffn_gate_par-#", "mul"},
    {"model.layers.#.mlp.down_proj", Output, "ffn_out-#", "mul_mat"},
    {"model.layers.#.mlp", Output, "ffn_out-#", "mul_mat"},
    {"model.layers.#.mlp.gate", Output, "ffn_moe_logits-#", "mul_mat"},
    {"model.layers.#.mlp.gate", RouterWeights, "ffn_moe_weights_scaled-#", "scale"},
    {"model.layers.#.mlp.gate", RouterWeights, "ffn_moe_weights_norm-#", "div"},
    {"model.layers.#.mlp.gate", RouterWeights, "ffn_moe_weights-#", "get_rows"},
    {"model.layers.#.mlp.gate", RouterChoices, "ffn_moe_topk-#", "top_k"},
    {"model.layers.#.mlp.gate", RouterChoices, "ffn_moe_argsort-#", "argsort"},  // the first of all
    {"model.layers.#.mlp.experts", ExpertGate, "ffn_moe_gate-#", "mul_mat_id"},
    {"model.layers.#.mlp.experts", ExpertUp, "ffn_moe_up-#", "mul_mat_id"},
    {"model.layers.#.mlp.experts", ExpertProduct, "ffn_moe_swiglu-#", "glu"},
    {"model.layers.#.mlp.experts", ExpertProduct, "ffn_moe_gate_par-#", "mul"},
    {"model.layers.#.mlp.experts", ExpertDown, "ffn_moe_down-#", "mul_mat_id"},
    {"model.layers.#.mlp.experts", Output, "ffn_moe_out-#", "add"},
    {"model.layers.#.mlp.experts", Output, "ffn_moe_out-#", "cont"},  // of one expert
    // Experts that all tokens share: Qwen2's, then DeepSeek's.
    {"model.layers.#.mlp.shared_expert.gate_proj", Output, "ffn_gate-#", "mul_mat"},
    {"model.layers.#.mlp.shared_expert.up_proj", Output, "ffn_up-#", "mul_mat"},
    {"model.layers.#.mlp.shared_expert.down_proj", Input, "ffn_swiglu-#", "glu"},
    {"model.layers.#.mlp.shared_expert.down_proj", Output, "ffn_shexp-#", "mul_mat"},
    {"model.layers.#.mlp.shared_expert", Output, "ffn_shexp-#", "mul_mat"},
    {"model.layers.#.mlp.shared_expert_gate", Output, "ffn_shexp_gate_inp-#", "mul_mat"},
    {"model.layers.#.mlp.shared_experts.gate_proj", Output, "ffn_gate-#", "mul_mat"},
    {"model.layers.#.mlp.shared_experts.up_proj", Output, "ffn_up-#", "mul_mat"},
    {"model.layers.#.mlp.shared_experts.down_proj", Input, "ffn_swiglu-#", "glu"},
    {"model.layers.#.mlp.shared_experts.down_proj", Output, "ffn_shexp-#", "mul_mat"},
    {"model.layers.#.mlp.shared_experts", Output, "ffn_shexp-#", "mul_mat"},
    {"model.layers.#.mlp", Output, "ffn_out-#", "add"},  // of both
    {"model.layers.#.mlp", Output, "ffn_moe_out-#", "add"},
    {"model.layers.#.mlp", Output, "ffn_moe_out-#", "cont"},
    {"model.layers.#.block_sparse_moe.gate", Output, "ffn_moe_logits-#", "mul_mat"},
    {"model.layers.#.block_sparse_moe", Output, "ffn_moe_out-#", "add"},
    {"model.layers.#", Output, "l_out-#", "add"},
    {"model.norm", Output, "result_norm", "mul"},
    {"lm_head", Output, "result_output", "mul_mat"},
});

// What comes behind the choice of rows in the last layer.
constexpr auto kBehindChoice = std::to_array<std::string_view>({"ffn_inp-#",
                                                                "ffn_norm-#",
                                                                "ffn_gate-#",
                                                                "ffn_up-#",
                                                                "ffn_swiglu-#",
                                                                "ffn_gate_par-#",
                                                                "ffn_out-#",
                                                                "ffn_moe_logits-#",
                                                                "ffn_moe_weights_scaled-#",
                                                                "ffn_moe_weights_norm-#",
                                                                "ffn_moe_weights-#",
                                                                "ffn_moe_topk-#",
                                                                "ffn_moe_argsort-#",
                                                                "ffn_moe_gate-#",
                                                                "ffn_moe_up-#",
                                                                "ffn_moe_swiglu-#",
                                                                "ffn_moe_gate_par-#",
                                                                "ffn_moe_down-#",
                                                                "ffn_moe_out-#",
                                                                "ffn_shexp-#",
                                                                "ffn_shexp_gate_inp-#",
                                                                "l_out-#"});

bool is_behind_choice(std::string_view pattern) {
  for (const std::string_view behind : kBehindChoice) {
    if (behind == pattern) return true;
  }
  return false;
}

}  // namespace

std::optional<CapturedNode> parse_node(std::string_view node) {
  constexpr std::string_view kMark = "::ggml.";
  const size_t mark = node.rfind(kMark);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::string_view rest = node.substr(mark + kMark.size());
  const size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::optional<std::int64_t> number = parse_number<std::int64_t>(rest.substr(dot + 1));
  if (!number) return std::nullopt;
  return CapturedNode{node.substr(0, mark), rest.substr(0, dot), *number};
}

std::vector<GraphNode> nodes_of(const ModuleTensor& tensor, std::int64_t layer_count) {
  std::vector<GraphNode> nodes;
  for (const NodeRow& row : kNodes) {
    if (row.place != tensor.place) continue;
    const auto layer = match_numbered(row.module, tensor.module, true);
    if (!layer) continue;
    const bool outside = *layer < 0 && row.name != "embd";
    const bool last = *layer >= 0 && *layer + 1 == layer_count;
    nodes.push_back({.name = fill_number(row.name, *layer),
                     .op = row.op,
                     .heads = row.heads,
                     .requested_rows = outside || (last && is_behind_choice(row.name))});
  }
  return nodes;
}

std::vector<ModuleTensor> module_tensors_of(std::string_view name, std::string_view op) {
  std::vector<ModuleTensor> tensors;
  for (const NodeRow& row : kNodes) {
    if (row.op != op) continue;
    const auto layer = match_numbered(row.name, name, false);
    if (layer) tensors.push_back({.module = fill_number(row.module, *layer), .place = row.place});
  }
  return tensors;
}

}  // namespace assay::engines::ggml
