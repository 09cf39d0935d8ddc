// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace ggml_host {
namespace {

// Numbers of ggml's types that have never changed.
constexpr int kF32 = 0;
constexpr int kI32 = 26;
constexpr int kI64 = 27;
constexpr size_t kGraphNodes = 2048;
constexpr int kBufferUsageWeights = 1;
constexpr size_t kFloat = sizeof(float);

ggml_context* new_context(size_t tensors, bool with_graph) {
  ggml_context* context = ggml_init({
      .mem_size = tensors * ggml_tensor_overhead() +
                  (with_graph ? ggml_graph_overhead_custom(kGraphNodes, false) : 0),
      .mem_buffer = nullptr,
      .no_alloc = true,
  });
  if (context == nullptr) {
    throw std::runtime_error("ggml_init gave no context");
  }
  return context;
}

std::string name_of(const char* stem, int64_t layer) {
  return layer < 0 ? stem : std::string(stem) + "-" + std::to_string(layer);
}

ggml_tensor* named(ggml_tensor* tensor, const char* stem, int64_t layer = -1) {
  return ggml_set_name(tensor, name_of(stem, layer).c_str());
}

uint64_t splitmix64(uint64_t state) {
  state += 0x9E3779B97F4A7C15U;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9U;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBU;
  return state ^ (state >> 31);
}

}  // namespace

uint64_t fnv1a(const void* data, size_t size) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3U;
  }
  return hash;
}

float random_value(uint64_t seed, std::string_view name, int64_t index) {
  const uint64_t bits =
      splitmix64(seed ^ fnv1a(name.data(), name.size()) ^ splitmix64(static_cast<uint64_t>(index)));
  return static_cast<float>(static_cast<int64_t>(bits >> 40) - (1 << 23)) /
         static_cast<float>(1 << 23);
}

Model::Model(const Sizes& model_sizes, ggml_backend* backend) : sizes(model_sizes) {
  weight_context_ = new_context(static_cast<size_t>(9 * sizes.layers + 3), false);
  cache_context_ = new_context(static_cast<size_t>(2 * sizes.layers), false);
  token_embd = new_weight("token_embd", sizes.vocab, sizes.hidden);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    Layer layer{};
    layer.attn_norm = new_weight(prefix + "attn_norm", 0, sizes.hidden);
    layer.attn_q = new_weight(prefix + "attn_q", sizes.hidden, sizes.hidden);
    layer.attn_k = new_weight(prefix + "attn_k", sizes.kv_size(), sizes.hidden);
    layer.attn_v = new_weight(prefix + "attn_v", sizes.kv_size(), sizes.hidden);
    layer.attn_output = new_weight(prefix + "attn_output", sizes.hidden, sizes.hidden);
    layer.ffn_norm = new_weight(prefix + "ffn_norm", 0, sizes.hidden);
    layer.ffn_gate = new_weight(prefix + "ffn_gate", sizes.intermediate, sizes.hidden);
    layer.ffn_up = new_weight(prefix + "ffn_up", sizes.intermediate, sizes.hidden);
    layer.ffn_down = new_weight(prefix + "ffn_down", sizes.hidden, sizes.intermediate);
    const std::string number = std::to_string(i);
    layer.cache_k = ggml_new_tensor_2d(cache_context_, kF32, sizes.kv_size(), sizes.cells);
    layer.cache_v = ggml_new_tensor_2d(cache_context_, kF32, sizes.kv_size(), sizes.cells);
    ggml_set_name(layer.cache_k, ("cache_k_l" + number).c_str());
    ggml_set_name(layer.cache_v, ("cache_v_l" + number).c_str());
    layers.push_back(layer);
  }
  output_norm = new_weight("output_norm", 0, sizes.hidden);
  output = new_weight("output", sizes.vocab, sizes.hidden);

  weight_buffer_ = ggml_backend_alloc_ctx_tensors(weight_context_, backend);
  cache_buffer_ = ggml_backend_alloc_ctx_tensors(cache_context_, backend);
  if (weight_buffer_ == nullptr || cache_buffer_ == nullptr) {
    throw std::runtime_error("no memory for the weights or the caches");
  }
  ggml_backend_buffer_set_usage(weight_buffer_, kBufferUsageWeights);
  ggml_backend_buffer_clear(cache_buffer_, 0);
  for (const Weight& weight : weights_) {
    const int64_t rows = std::max<int64_t>(weight.rows, 1);
    std::vector<float> values(static_cast<size_t>(rows * weight.row_elements));
    // Matrices keep the size of what goes through; norms are between a half and one and a half.
    const float scale =
        weight.rows == 0 ? 0.5F : std::sqrt(3.0F / static_cast<float>(weight.row_elements));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = random_value(sizes.seed, weight.name, static_cast<int64_t>(i)) * scale +
                  (weight.rows == 0 ? 1.0F : 0.0F);
    }
    if (weight.rows == 0 || sizes.weight_type == kF32) {
      ggml_backend_tensor_set(weight.tensor, values.data(), 0, values.size() * kFloat);
      continue;
    }
    std::vector<char> blocks(ggml_nbytes(weight.tensor));
    ggml_quantize_chunk(sizes.weight_type, values.data(), blocks.data(), 0, rows,
                        weight.row_elements, nullptr);
    ggml_backend_tensor_set(weight.tensor, blocks.data(), 0, blocks.size());
  }
}

Model::~Model() {
  ggml_backend_buffer_free(cache_buffer_);
  ggml_backend_buffer_free(weight_buffer_);
  ggml_free(cache_context_);
  ggml_free(weight_context_);
}

ggml_tensor* Model::new_weight(const std::string& name, int64_t rows, int64_t row_elements) {
  const std::string full_name = name + ".weight";
  ggml_tensor* tensor =
      rows == 0 ? ggml_new_tensor_1d(weight_context_, kF32, row_elements)
                : ggml_new_tensor_2d(weight_context_, sizes.weight_type, row_elements, rows);
  ggml_set_name(tensor, full_name.c_str());
  weights_.push_back(
      {.tensor = tensor, .name = full_name, .rows = rows, .row_elements = row_elements});
  return tensor;
}

Graph::Graph(const Model& model, int64_t tokens) : sizes_(model.sizes), tokens_(tokens) {
  context_ = new_context(kGraphNodes, true);
  graph = ggml_new_graph_custom(context_, kGraphNodes, false);
  inp_tokens_ = new_input("inp_tokens", kI32, tokens, 1);
  inp_pos_ = new_input("inp_pos", kI32, tokens, 1);
  inp_rows_ = new_input("attn_inp_k_idxs", kI64, tokens, 1);
  inp_mask_ = new_input("attn_inp_kq_mask", kF32, sizes_.cells, tokens);
  inp_out_ids_ = new_input("out_ids", kI32, 1, 1);

  ggml_tensor* x = named(ggml_get_rows(context_, model.token_embd, inp_tokens_), "embd");
  for (int64_t i = 0; i < sizes_.layers; ++i) {
    const Model::Layer& layer = model.layers[static_cast<size_t>(i)];
    if (i == 1) {
      ggml_build_forward_expand(graph, x);
      first_node_of_layer_1 = ggml_graph_n_nodes(graph);
    }
    ggml_tensor* attended = attention(layer, i, norm(x, layer.attn_norm, "norm", "attn_norm", i));
    if (i + 1 == sizes_.layers) {  // only the last token's logits are asked for
      attended = ggml_get_rows(context_, attended, inp_out_ids_);
      x = ggml_get_rows(context_, x, inp_out_ids_);
    }
    ggml_tensor* middle = named(ggml_add(context_, attended, x), "ffn_inp", i);
    ggml_tensor* normed = norm(middle, layer.ffn_norm, "norm", "ffn_norm", i);
    ggml_tensor* gate = named(ggml_mul_mat(context_, layer.ffn_gate, normed), "ffn_gate", i);
    ggml_tensor* up = named(ggml_mul_mat(context_, layer.ffn_up, normed), "ffn_up", i);
    ggml_tensor* inner = named(ggml_swiglu_split(context_, gate, up), "ffn_swiglu", i);
    ggml_tensor* down = named(ggml_mul_mat(context_, layer.ffn_down, inner), "ffn_out", i);
    x = named(ggml_add(context_, down, middle), "l_out", i);
  }
  x = norm(x, model.output_norm, "norm", "result_norm", -1);
  result_ = named(ggml_mul_mat(context_, model.output, x), "result_output");
  ggml_set_output(result_);
  ggml_build_forward_expand(graph, result_);
}

Graph::~Graph() { ggml_free(context_); }

ggml_tensor* Graph::new_input(const char* name, int type, int64_t ne0, int64_t ne1) {
  ggml_tensor* tensor = ne1 == 1 ? ggml_new_tensor_1d(context_, type, ne0)
                                 : ggml_new_tensor_2d(context_, type, ne0, ne1);
  ggml_set_input(tensor);
  return ggml_set_name(tensor, name);
}

ggml_tensor* Graph::norm(ggml_tensor* x, ggml_tensor* weight, const char* between, const char* name,
                         int64_t layer) {
  x = named(ggml_rms_norm(context_, x, kEpsilon), between, layer);
  return named(ggml_mul(context_, x, weight), name, layer);
}

ggml_tensor* Graph::attention(const Model::Layer& layer, int64_t index, ggml_tensor* x) {
  const int64_t head_size = sizes_.head_size();
  const auto project = [&](ggml_tensor* weight, const char* name, int64_t heads) {
    ggml_tensor* flat = named(ggml_mul_mat(context_, weight, x), name, index);
    return named(ggml_reshape_3d(context_, flat, head_size, heads, tokens_), name, index);
  };
  const auto rotate = [&](ggml_tensor* heads, const char* name) {
    ggml_tensor* rotated = ggml_rope_ext(
        context_, heads, inp_pos_, nullptr, static_cast<int>(head_size), sizes_.rope_mode,
        static_cast<int>(sizes_.cells), kRopeBase, 1.0F, 0.0F, 1.0F, 32.0F, 1.0F);
    return named(rotated, name, index);
  };
  ggml_tensor* query = rotate(project(layer.attn_q, "Qcur", sizes_.heads), "Qcur");
  ggml_tensor* value = project(layer.attn_v, "Vcur", sizes_.kv_heads);
  ggml_tensor* key = rotate(project(layer.attn_k, "Kcur", sizes_.kv_heads), "Kcur");

  // The writes stand in the graph before the reads: no pointer says that these depend on those.
  const auto store = [&](ggml_tensor* cache, ggml_tensor* rows) {
    rows = ggml_reshape_2d(context_, rows, sizes_.kv_size(), tokens_);
    ggml_build_forward_expand(graph, ggml_set_rows(context_, cache, rows, inp_rows_));
  };
  ggml_build_forward_expand(graph, query);
  store(layer.cache_k, key);
  store(layer.cache_v, value);
  const auto cells_of = [&](ggml_tensor* cache) {  // ne: channel, key head, cell
    return ggml_view_3d(context_, cache, head_size, sizes_.kv_heads, sizes_.cells,
                        static_cast<size_t>(head_size) * kFloat,
                        static_cast<size_t>(sizes_.kv_size()) * kFloat, 0);
  };
  ggml_tensor* keys = ggml_permute(context_, cells_of(layer.cache_k), 0, 2, 1, 3);
  ggml_tensor* values =
      ggml_cont(context_, ggml_permute(context_, cells_of(layer.cache_v), 1, 2, 0, 3));
  ggml_tensor* queries = ggml_permute(context_, query, 0, 2, 1, 3);

  ggml_tensor* scores = named(ggml_mul_mat(context_, keys, queries), "kq", index);
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_size));
  ggml_tensor* chances =
      named(ggml_soft_max_ext(context_, scores, inp_mask_, scale, 0.0F), "kq_soft_max", index);
  ggml_tensor* mixed = named(ggml_mul_mat(context_, values, chances), "kqv", index);
  ggml_tensor* joined =
      ggml_cont_2d(context_, ggml_permute(context_, mixed, 0, 2, 1, 3), sizes_.hidden, tokens_);
  return named(ggml_mul_mat(context_, layer.attn_output, named(joined, "kqv_out", index)),
               "attn_out", index);
}

void Graph::set_inputs(const std::vector<int32_t>& tokens, int64_t first) const {
  std::vector<int32_t> positions;
  std::vector<int64_t> rows;
  // A token sees its own cell and those before it.
  std::vector<float> mask(static_cast<size_t>(sizes_.cells * tokens_),
                          -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < tokens_; ++i) {
    positions.push_back(static_cast<int32_t>(first + i));
    rows.push_back(first + i);
    for (int64_t cell = 0; cell <= first + i; ++cell) {
      mask[static_cast<size_t>(i * sizes_.cells + cell)] = 0.0F;
    }
  }
  const auto last = static_cast<int32_t>(tokens_ - 1);
  ggml_backend_tensor_set(inp_tokens_, tokens.data(), 0, tokens.size() * sizeof(int32_t));
  ggml_backend_tensor_set(inp_pos_, positions.data(), 0, positions.size() * sizeof(int32_t));
  ggml_backend_tensor_set(inp_rows_, rows.data(), 0, rows.size() * sizeof(int64_t));
  ggml_backend_tensor_set(inp_mask_, mask.data(), 0, mask.size() * kFloat);
  ggml_backend_tensor_set(inp_out_ids_, &last, 0, sizeof(last));
}

std::vector<float> Graph::logits() const {
  std::vector<float> values(static_cast<size_t>(sizes_.vocab));
  ggml_backend_tensor_get(result_, values.data(), 0, values.size() * kFloat);
  return values;
}

}  // namespace ggml_host
