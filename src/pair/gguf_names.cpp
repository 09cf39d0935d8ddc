// SPDX-License-Identifier: Apache-2.0
// Tables of names on both sides, with # for the number of the layer, that are read either way.
#include "pair/gguf_names.hpp"

#include <array>
#include <charconv>
#include <utility>

namespace assay::pair {
namespace {

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
    // Gemma 2 and 3 have norms behind attention and MLP, so the one before the MLP has another
    // name.
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

/// "a.b.weight" is {"a.b", ".weight"}; nothing for other parameters.
std::optional<std::pair<std::string_view, std::string_view>> split_parameter(
    std::string_view name) {
  for (const std::string_view kind : {".weight", ".bias"}) {
    if (name.ends_with(kind)) return std::pair(name.substr(0, name.size() - kind.size()), kind);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> match_numbered(std::string_view pattern, std::string_view text,
                                           bool prefixed) {
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
  return match_numbered(head, text.substr(0, digits), prefixed) ? std::optional(layer)
                                                                : std::nullopt;
}

std::string fill_number(std::string_view pattern, std::int64_t layer) {
  const std::size_t mark = pattern.find('#');
  if (mark == std::string_view::npos) return std::string(pattern);
  return std::string(pattern.substr(0, mark)) + std::to_string(layer) +
         std::string(pattern.substr(mark + 1));
}

std::optional<GgufName> gguf_name_of(std::string_view parameter) {
  const auto parts = split_parameter(parameter);
  if (!parts) return std::nullopt;
  for (const WeightRow& row : kWeights) {
    if (const auto layer = match_numbered(row.module, parts->first, true)) {
      return GgufName{.name = fill_number(row.name, *layer) + std::string(parts->second),
                      .heads = row.heads};
    }
  }
  return std::nullopt;
}

std::vector<std::string> parameters_of(std::string_view gguf_name) {
  std::vector<std::string> parameters;
  const auto parts = split_parameter(gguf_name);
  if (!parts) return parameters;
  const std::string kind(parts->second);
  for (const WeightRow& row : kWeights) {
    if (const auto layer = match_numbered(row.name, parts->first, false))
      parameters.push_back(fill_number(row.module, *layer) + kind);
  }
  for (const ExpertRow& row : kExperts) {
    const std::size_t dot = parts->first.rfind('.');
    if (dot == std::string_view::npos) break;
    const auto layer =
        match_numbered("blk.#." + std::string(row.name), parts->first.substr(0, dot), false);
    const std::string_view expert = parts->first.substr(dot + 1);
    if (!layer || expert.empty() ||
        expert.find_first_not_of("0123456789") != std::string_view::npos)
      continue;
    const auto in_layer = [&](std::string_view experts, std::string_view matrix) {
      return fill_number("model.layers.#.", *layer) + std::string(experts) + "." +
             std::string(expert) + "." + std::string(matrix) + kind;
    };
    parameters.push_back(in_layer("mlp.experts", row.module));
    parameters.push_back(in_layer("block_sparse_moe.experts", row.mixtral));
  }
  return parameters;
}

std::vector<std::vector<std::string>> gguf_experts_of(std::string_view parameter) {
  if (const auto layer =
          match_numbered("model.layers.#.mlp.experts.gate_up_proj", parameter, true)) {
    return {{fill_number("blk.#.ffn_gate_exps.weight", *layer),
             fill_number("blk.#.ffn_up_exps.weight", *layer)},
            {fill_number("blk.#.ffn_gate_up_exps.weight", *layer)}};
  }
  if (const auto layer = match_numbered("model.layers.#.mlp.experts.down_proj", parameter, true))
    return {{fill_number("blk.#.ffn_down_exps.weight", *layer)}};
  return {};
}

std::int64_t gguf_channel(std::int64_t channel, std::int64_t head_size) {
  const std::int64_t within = channel % head_size;
  const std::int64_t half = head_size / 2;
  return channel - within + (within < half ? 2 * within : 2 * (within - half) + 1);
}

}  // namespace assay::pair
