// SPDX-License-Identifier: Apache-2.0
// The weights of the model: made at random, kept for other programs under Hugging Face's names, and rearranged into what
// the operations of one rank want.
#pragma once
#include <string>
#include <vector>

#include "model.h"

namespace atb_host {

/// As the model is defined, before anything is rearranged. Dims of matrices are [rows out, columns in].
struct LayerWeights {
  Tensor input_norm;
  Tensor q, q_bias, k, k_bias, v, v_bias;  // biases have no memory when the model has none
  Tensor o;
  Tensor post_norm;
  Tensor gate, up, down;
};
struct Checkpoint {
  Tensor embedding;  // [V, hidden]
  std::vector<LayerWeights> layers;
  Tensor final_norm;
  Tensor head;  // [V, hidden]
};

/// The same numbers for the same seed on every machine: uniform in [-limit, limit), rounded to the type.
Tensor random_tensor(TensorDesc desc, float limit, uint64_t seed);

Checkpoint make_checkpoint(const ModelConfig& config);

/// Writes config.json and model.safetensors, which LlamaForCausalLM.from_pretrained(folder) reads (the bias that its
/// o_proj has beside the others is zero), and prompts.json, a list of token ids a prompt. The folder must exist.
/// Returns false when a file cannot be written.
bool save_checkpoint(const ModelConfig& config, const Checkpoint& checkpoint,
                     const std::vector<std::vector<int64_t>>& prompts, const std::string& folder);

/// What Model takes, in its order: embedding; per layer the names of layer_weight_names(); final norm; LM head.
/// Of several ranks each has its share of the heads and of the MLP's units; embedding and head are whole.
///
///   config.permuted    heads and units stand in another order: rows of q, k, v, gate and up, columns of o and down.
///                      What a layer computes is the same, up to the order of its sums.
///   config.packed      q, k and v are one matrix, and so are gate and up
///   config.quantised   the matrices of the layers are int8, each row with a float scale: weight = int8 * scale
std::vector<Tensor> model_weights(const ModelConfig& config, const Checkpoint& checkpoint);

}  // namespace atb_host
