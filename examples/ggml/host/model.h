// SPDX-License-Identifier: Apache-2.0
// A small Llama built from ggml's operators, as llama.cpp builds it and with its names: weights `blk.0.attn_q.weight`,
// caches `cache_k_l0`, inputs `inp_tokens`, nodes `Qcur-0` ... `l_out-0`, `result_output`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ggml_abi.h"

namespace ggml_host {

struct Sizes {
  int64_t layers = 2;
  int64_t hidden = 64;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t intermediate = 128;
  int64_t vocab = 96;
  int64_t cells = 32;   // of the cache: the longest text
  int rope_mode = 0;    // 0: neighbours are pairs, 2: halves of a head are
  int weight_type = 0;  // of the matrices; ggml's number
  uint64_t seed = 1;

  int64_t head_size() const { return hidden / heads; }
  int64_t kv_size() const { return head_size() * kv_heads; }
};

inline constexpr float kEpsilon = 1e-5F;
inline constexpr float kRopeBase = 10000.0F;

// Element i of the tensor of that name, in [-1, 1): 24 random bits of splitmix64 over (seed, FNV-1a of the name, i), so
// that a test can make the same weights without reading any file.
float random_value(uint64_t seed, std::string_view name, int64_t index);

uint64_t fnv1a(const void* data, size_t size);

// Weights and caches, in buffers of the first back end. Throws std::runtime_error when the engine has no memory.
class Model {
 public:
  Model(const Sizes& sizes, ggml_backend* backend);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  struct Layer {
    ggml_tensor *attn_norm, *attn_q, *attn_k, *attn_v, *attn_output, *ffn_norm, *ffn_gate, *ffn_up,
        *ffn_down;
    ggml_tensor *cache_k, *cache_v;
  };

  const Sizes sizes;
  std::vector<Layer> layers;
  ggml_tensor *token_embd = nullptr, *output_norm = nullptr, *output = nullptr;

 private:
  ggml_tensor* new_weight(const std::string& name, int64_t rows, int64_t row_elements);

  struct Weight {
    ggml_tensor* tensor;
    std::string name;
    int64_t rows, row_elements;  // rows 0: a norm's vector, always float32
  };
  std::vector<Weight> weights_;
  ggml_context *weight_context_ = nullptr, *cache_context_ = nullptr;
  ggml_backend_buffer *weight_buffer_ = nullptr, *cache_buffer_ = nullptr;
};

// One graph for `tokens` tokens at once; computed as often as wanted, with other inputs each time.
class Graph {
 public:
  Graph(const Model& model, int64_t tokens);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // After the scheduler has given the tensors memory. Tokens stand at positions first, first + 1 ...
  void set_inputs(const std::vector<int32_t>& tokens, int64_t first) const;
  // Logits of the last token.
  std::vector<float> logits() const;

  ggml_cgraph* graph = nullptr;
  int first_node_of_layer_1 = 0;

 private:
  ggml_tensor* attention(const Model::Layer& layer, int64_t index, ggml_tensor* x);
  ggml_tensor* norm(ggml_tensor* x, ggml_tensor* weight, const char* between, const char* name,
                    int64_t layer);
  ggml_tensor* new_input(const char* name, int type, int64_t ne0, int64_t ne1);

  const Sizes sizes_;
  const int64_t tokens_;
  ggml_context* context_ = nullptr;
  ggml_tensor *inp_tokens_, *inp_pos_, *inp_rows_, *inp_mask_, *inp_out_ids_, *result_ = nullptr;
};

}  // namespace ggml_host
