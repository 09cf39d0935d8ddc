// SPDX-License-Identifier: Apache-2.0
#include "pair/ggml_names.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "base/numbers.hpp"

namespace assay::pair {
namespace {

// `#` is the number of a layer in all names.
struct NodeRow {
  std::string_view module;
  ModulePlace place;
  std::string_view name;
  std::string_view op;
  Heads heads = Heads::None;
};

using enum ModulePlace;

// Llama 0.5 and 0.6 (ggml 0.25 and 0.26); names of older engines stand below the newer ones. In parentheses: a node without
// a name, called by its nearest source that has one (Qwen2 leaves this product unnamed). A gate stands before its
// activation function, and a norm behind its multiplication with the weight.
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

/// Several rows may name one tensor of a file: the usual first, then those of single families.
struct WeightRow {
  std::string_view module;
  std::string_view name;
  Heads heads = Heads::None;
};

constexpr auto kWeights = std::to_array<WeightRow>({
    {"model.embed_tokens", "token_embd"},
    {"model.layers.#.input_layernorm", "blk.#.attn_norm"},
    {"model.layers.#.self_attn.q_proj", "blk.#.attn_q", Heads::Queries},
    {"model.layers.#.self_attn.k_proj", "blk.#.attn_k", Heads::Keys},
    {"model.layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"model.layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"model.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"model.layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"model.layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"model.layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"model.layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    // Experts that all tokens share: Qwen's, then DeepSeek's.
    {"model.layers.#.mlp.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"},
    {"model.layers.#.mlp.shared_expert.up_proj", "blk.#.ffn_up_shexp"},
    {"model.layers.#.mlp.shared_expert.down_proj", "blk.#.ffn_down_shexp"},
    {"model.layers.#.mlp.shared_expert_gate", "blk.#.ffn_gate_inp_shexp"},
    {"model.layers.#.mlp.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"},
    {"model.layers.#.mlp.shared_experts.up_proj", "blk.#.ffn_up_shexp"},
    {"model.layers.#.mlp.shared_experts.down_proj", "blk.#.ffn_down_shexp"},
    {"model.layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"},  // Mixtral
    {"model.layers.#.mlp.router", "blk.#.ffn_gate_inp"},             // gpt-oss
    // Gemma 2 and 3 have norms behind attention and MLP, so the one before the MLP has another name.
    {"model.layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"},
    {"model.layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"model.layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
    // Phi-3
    {"model.layers.#.self_attn.qkv_proj", "blk.#.attn_qkv"},
    {"model.layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
    // Phi-2, StarCoder2
    {"model.layers.#.self_attn.dense", "blk.#.attn_output"},
    {"model.layers.#.mlp.fc1", "blk.#.ffn_up"},
    {"model.layers.#.mlp.fc2", "blk.#.ffn_down"},
    {"model.layers.#.mlp.c_fc", "blk.#.ffn_up"},
    {"model.layers.#.mlp.c_proj", "blk.#.ffn_down"},
    {"model.final_layernorm", "output_norm"},
    // GPT-NeoX
    {"gpt_neox.embed_in", "token_embd"},
    {"gpt_neox.layers.#.input_layernorm", "blk.#.attn_norm"},
    {"gpt_neox.layers.#.attention.query_key_value", "blk.#.attn_qkv"},
    {"gpt_neox.layers.#.attention.dense", "blk.#.attn_output"},
    {"gpt_neox.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"gpt_neox.layers.#.mlp.dense_h_to_4h", "blk.#.ffn_up"},
    {"gpt_neox.layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down"},
    {"gpt_neox.final_layer_norm", "output_norm"},
    {"embed_out", "output"},
});

/// Matrices of one expert, by what the file calls them.
struct ExpertRow {
  std::string_view name;
  std::string_view module;   // behind "model.layers.N.mlp.experts.J."
  std::string_view mixtral;  // behind "model.layers.N.block_sparse_moe.experts.J."
};
constexpr auto kExperts = std::to_array<ExpertRow>({{"ffn_gate", "gate_proj", "w1"},
                                                    {"ffn_up", "up_proj", "w3"},
                                                    {"ffn_down", "down_proj", "w2"}});

/// The layer's number where the text is the pattern; -1 for a pattern without one. With `prefixed` the text may have more
/// in front, up to a dot or slash.
std::optional<std::int64_t> match(std::string_view pattern, std::string_view text, bool prefixed) {
  const std::size_t mark = pattern.find('#');
  if (mark == std::string_view::npos) {
    if (!text.ends_with(pattern)) return std::nullopt;
    const std::string_view before = text.substr(0, text.size() - pattern.size());
    const bool whole =
        before.empty() || (prefixed && (before.back() == '.' || before.back() == '/'));
    return whole ? std::optional<std::int64_t>(-1) : std::nullopt;
  }
  const std::string_view head = pattern.substr(0, mark);
  const std::string_view tail = pattern.substr(mark + 1);
  if (text.size() <= tail.size() || !text.ends_with(tail)) return std::nullopt;
  text.remove_suffix(tail.size());
  const std::size_t digits = text.find_last_not_of("0123456789") + 1;
  std::int64_t layer = 0;
  const auto [end, error] = std::from_chars(text.data() + digits, text.data() + text.size(), layer);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return match(head, text.substr(0, digits), prefixed) ? std::optional(layer) : std::nullopt;
}

std::string fill(std::string_view pattern, std::int64_t layer) {
  const std::size_t mark = pattern.find('#');
  if (mark == std::string_view::npos) return std::string(pattern);
  return std::string(pattern.substr(0, mark)) + std::to_string(layer) +
         std::string(pattern.substr(mark + 1));
}

bool is_behind_choice(std::string_view pattern) {
  for (const std::string_view behind : kBehindChoice) {
    if (behind == pattern) return true;
  }
  return false;
}

/// "a.b.weight" is {"a.b", ".weight"}; nothing for other parameters.
std::optional<std::pair<std::string_view, std::string_view>> split_parameter(
    std::string_view name) {
  for (const std::string_view kind : {".weight", ".bias"}) {
    if (name.ends_with(kind)) return std::pair(name.substr(0, name.size() - kind.size()), kind);
  }
  return std::nullopt;
}

}  // namespace

std::optional<CapturedNode> parse_ggml_node(std::string_view node) {
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

std::vector<GgmlNode> ggml_nodes_of(const ModuleTensor& tensor, std::int64_t layer_count) {
  std::vector<GgmlNode> nodes;
  for (const NodeRow& row : kNodes) {
    if (row.place != tensor.place) continue;
    const auto layer = match(row.module, tensor.module, true);
    if (!layer) continue;
    const bool outside = *layer < 0 && row.name != "embd";
    const bool last = *layer >= 0 && *layer + 1 == layer_count;
    nodes.push_back({.name = fill(row.name, *layer),
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
    const auto layer = match(row.name, name, false);
    if (layer) tensors.push_back({.module = fill(row.module, *layer), .place = row.place});
  }
  return tensors;
}

std::optional<GgmlWeight> ggml_weight_of(std::string_view parameter) {
  const auto parts = split_parameter(parameter);
  if (!parts) return std::nullopt;
  for (const WeightRow& row : kWeights) {
    if (const auto layer = match(row.module, parts->first, true)) {
      return GgmlWeight{.name = fill(row.name, *layer) + std::string(parts->second),
                        .heads = row.heads};
    }
  }
  return std::nullopt;
}

std::vector<std::string> parameters_of(std::string_view ggml_weight) {
  std::vector<std::string> parameters;
  const auto parts = split_parameter(ggml_weight);
  if (!parts) return parameters;
  const std::string kind(parts->second);
  for (const WeightRow& row : kWeights) {
    if (const auto layer = match(row.name, parts->first, false))
      parameters.push_back(fill(row.module, *layer) + kind);
  }
  for (const ExpertRow& row : kExperts) {
    const std::size_t dot = parts->first.rfind('.');
    if (dot == std::string_view::npos) break;
    const auto layer = match("blk.#." + std::string(row.name), parts->first.substr(0, dot), false);
    const std::string_view expert = parts->first.substr(dot + 1);
    if (!layer || expert.empty() ||
        expert.find_first_not_of("0123456789") != std::string_view::npos)
      continue;
    const auto in_layer = [&](std::string_view experts, std::string_view matrix) {
      return fill("model.layers.#.", *layer) + std::string(experts) + "." + std::string(expert) +
             "." + std::string(matrix) + kind;
    };
    parameters.push_back(in_layer("mlp.experts", row.module));
    parameters.push_back(in_layer("block_sparse_moe.experts", row.mixtral));
  }
  return parameters;
}

std::vector<std::vector<std::string>> ggml_experts_of(std::string_view parameter) {
  if (const auto layer = match("model.layers.#.mlp.experts.gate_up_proj", parameter, true)) {
    return {{fill("blk.#.ffn_gate_exps.weight", *layer), fill("blk.#.ffn_up_exps.weight", *layer)},
            {fill("blk.#.ffn_gate_up_exps.weight", *layer)}};
  }
  if (const auto layer = match("model.layers.#.mlp.experts.down_proj", parameter, true))
    return {{fill("blk.#.ffn_down_exps.weight", *layer)}};
  return {};
}

std::int64_t ggml_channel(std::int64_t channel, std::int64_t head_size) {
  const std::int64_t within = channel % head_size;
  const std::int64_t half = head_size / 2;
  return channel - within + (within < half ? 2 * within : 2 * (within - half) + 1);
}

}  // namespace assay::pair
