// SPDX-License-Identifier: Apache-2.0
#include "weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <utility>

#include "json.h"

namespace atb_host {
namespace {

using Indices = std::vector<size_t>;

constexpr float kEmbeddingLimit = 0.1F;
constexpr float kBiasLimit = 0.1F;
constexpr float kLargestInt8 = 127.0F;

uint64_t splitmix(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

size_t row_count(const Tensor& matrix) { return static_cast<size_t>(matrix.desc.dims[0]); }

size_t row_bytes(const Tensor& tensor) { return tensor.memory->size() / row_count(tensor); }

// Rows of a matrix, or elements of a vector.
Tensor take_rows(const Tensor& from, const Indices& rows) {
  TensorDesc desc = from.desc;
  desc.dims[0] = static_cast<int64_t>(rows.size());
  Tensor result = make_tensor(std::move(desc));
  const size_t bytes = row_bytes(from);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(result.memory->data() + i * bytes, from.memory->data() + rows[i] * bytes, bytes);
  }
  return result;
}

Tensor take_columns(const Tensor& from, const Indices& columns) {
  Tensor result =
      make_tensor({from.desc.dtype, {from.desc.dims[0], static_cast<int64_t>(columns.size())}});
  const auto width = static_cast<size_t>(from.desc.dims[1]);
  const auto* in = from.data<const uint16_t>();
  auto* out = result.data<uint16_t>();
  for (size_t row = 0; row < row_count(from); ++row) {
    for (const size_t column : columns) *out++ = in[row * width + column];
  }
  return result;
}

Tensor below_each_other(const std::vector<Tensor>& parts) {
  TensorDesc desc = parts[0].desc;
  desc.dims[0] = 0;
  for (const Tensor& part : parts) desc.dims[0] += part.desc.dims[0];
  Tensor result = make_tensor(std::move(desc));
  std::byte* out = result.memory->data();
  for (const Tensor& part : parts) {
    out = std::copy(part.memory->begin(), part.memory->end(), out);
  }
  return result;
}

// int8 [N, K] and float [N]: the largest value of a row becomes 127.
std::pair<Tensor, Tensor> quantised(const Tensor& weight) {
  Tensor numbers = make_tensor({DType::kInt8, weight.desc.dims});
  Tensor scales = make_tensor({DType::kFloat, {weight.desc.dims[0]}});
  const std::vector<float> values = load(weight);
  const auto width = static_cast<size_t>(weight.desc.dims[1]);
  for (size_t row = 0; row < row_count(weight); ++row) {
    const float* in = &values[row * width];
    float largest = 0;
    for (size_t i = 0; i < width; ++i) largest = std::max(largest, std::fabs(in[i]));
    const float scale = largest > 0 ? largest / kLargestInt8 : 1.0F;
    scales.data<float>()[row] = scale;
    for (size_t i = 0; i < width; ++i) {
      numbers.data<int8_t>()[row * width + i] = static_cast<int8_t>(std::lround(in[i] / scale));
    }
  }
  return {numbers, scales};
}

// Which rows of q, of k and v, and which units of the MLP this rank has, in its order.
struct Shares {
  Indices query_rows;
  Indices key_rows;
  Indices units;
};

Shares shares_of(const ModelConfig& config) {
  const auto size = static_cast<size_t>(config.head_size());
  const auto groups = static_cast<size_t>(config.kv_heads);
  const auto queries = static_cast<size_t>(config.heads / config.kv_heads);  // of a key/value head
  Indices group_order(groups);
  Indices unit_order(static_cast<size_t>(config.mlp_width()));
  std::iota(group_order.begin(), group_order.end(), 0U);
  std::iota(unit_order.begin(), unit_order.end(), 0U);
  if (config.permuted) {
    std::rotate(group_order.begin(), group_order.begin() + 1, group_order.end());
    uint64_t state = config.seed;
    for (size_t i = unit_order.size(); i-- > 1;) {
      std::swap(unit_order[i], unit_order[splitmix(state) % (i + 1)]);
    }
  }
  const auto ranks = static_cast<size_t>(config.ranks);
  const auto rank = static_cast<size_t>(config.rank);
  const auto mine = [&](const Indices& all) {
    const size_t share = all.size() / ranks;
    const auto first = all.begin() + static_cast<int64_t>(rank * share);
    return Indices(first, first + static_cast<int64_t>(share));
  };
  Shares shares;
  const auto add_head = [&](Indices& rows, size_t head) {
    for (size_t i = 0; i < size; ++i) rows.push_back(head * size + i);
  };
  for (const size_t group : mine(group_order)) {
    add_head(shares.key_rows, group);
    for (size_t i = 0; i < queries; ++i) {
      // The heads of a group may change places too.
      add_head(shares.query_rows, group * queries + (config.permuted ? queries - 1 - i : i));
    }
  }
  shares.units = mine(unit_order);
  return shares;
}

// Appends weight, bias if there is one, and scales, as linear_names() lists them.
void push_linear(const ModelConfig& config, const Tensor& weight, const Tensor& bias,
                 std::vector<Tensor>& to) {
  if (!config.quantised) {
    to.push_back(weight);
    if (bias.memory) to.push_back(bias);
    return;
  }
  auto [numbers, scales] = quantised(weight);
  to.push_back(std::move(numbers));
  if (bias.memory) to.push_back(bias);
  to.push_back(std::move(scales));
}

void push_layer(const ModelConfig& config, const LayerWeights& layer, const Shares& shares,
                std::vector<Tensor>& to) {
  const auto rows = [](const Tensor& tensor, const Indices& indices) {
    return tensor.memory ? take_rows(tensor, indices) : Tensor{};
  };
  const Tensor q = rows(layer.q, shares.query_rows);
  const Tensor q_bias = rows(layer.q_bias, shares.query_rows);
  const Tensor k = rows(layer.k, shares.key_rows);
  const Tensor k_bias = rows(layer.k_bias, shares.key_rows);
  const Tensor v = rows(layer.v, shares.key_rows);
  const Tensor v_bias = rows(layer.v_bias, shares.key_rows);
  const Tensor gate = rows(layer.gate, shares.units);
  const Tensor up = rows(layer.up, shares.units);

  to.push_back(layer.input_norm);
  if (config.packed) {
    const Tensor bias = q_bias.memory ? below_each_other({q_bias, k_bias, v_bias}) : Tensor{};
    push_linear(config, below_each_other({q, k, v}), bias, to);
  } else {
    push_linear(config, q, q_bias, to);
    push_linear(config, k, k_bias, to);
    push_linear(config, v, v_bias, to);
  }
  push_linear(config, take_columns(layer.o, shares.query_rows), {}, to);
  to.push_back(layer.post_norm);
  if (config.packed) {
    push_linear(config, below_each_other({gate, up}), {}, to);
  } else {
    push_linear(config, gate, {}, to);
    push_linear(config, up, {}, to);
  }
  push_linear(config, take_columns(layer.down, shares.units), {}, to);
}

/// The parts of a .safetensors file: 8 bytes length, a JSON header with the place of each tensor, the tensors.
class SafetensorsFile {
 public:
  void add(const std::string& name, const Tensor& tensor) {
    const auto end = static_cast<int64_t>(data_.size() + tensor.memory->size());
    header_[name] =
        Json::Object{{"dtype", tensor.desc.dtype == DType::kBfloat16 ? "BF16" : "F16"},
                     {"shape", json_array(tensor.desc.dims)},
                     {"data_offsets", Json::Array{static_cast<int64_t>(data_.size()), end}}};
    data_.insert(data_.end(), tensor.memory->begin(), tensor.memory->end());
  }

  bool write(const std::string& path) const {
    std::string header = Json(header_).dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    file.write(reinterpret_cast<const char*>(data_.data()),
               static_cast<std::streamsize>(data_.size()));
    file.close();
    return file.good();
  }

 private:
  Json::Object header_{{"__metadata__", Json::Object{{"format", "pt"}}}};
  std::vector<std::byte> data_;
};

Json huggingface_config(const ModelConfig& config) {
  return Json::Object{
      {"architectures", Json::Array{"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"hidden_size", config.hidden},
      {"intermediate_size", config.mlp_width()},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_size()},
      {"vocab_size", config.vocabulary},
      {"max_position_embeddings", config.positions},
      {"rms_norm_eps", kEpsilon},
      {"rope_theta", kRotaryBase},
      {"rope_parameters", Json::Object{{"rope_type", "default"}, {"rope_theta", kRotaryBase}}},
      {"attention_bias", config.qkv_bias},
      {"mlp_bias", false},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", false},
      {"bos_token_id", Json()},
      {"eos_token_id", Json()},
      {"torch_dtype", config.dtype == DType::kBfloat16 ? "bfloat16" : "float16"}};
}

bool write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << '\n';
  file.close();
  return file.good();
}

}  // namespace

Tensor random_tensor(TensorDesc desc, float limit, uint64_t seed) {
  const DType dtype = desc.dtype;
  Tensor tensor = make_tensor(std::move(desc));
  auto* values = tensor.data<uint16_t>();
  uint64_t state = seed;
  for (int64_t i = 0; i < element_count(tensor.desc.dims); ++i) {
    const float unit = static_cast<float>(splitmix(state) >> 40) * 0x1p-23F - 1.0F;  // [-1, 1)
    values[i] = narrow(dtype, unit * limit);
  }
  return tensor;
}

Checkpoint make_checkpoint(const ModelConfig& config) {
  uint64_t made = 0;
  const auto vector_or_matrix = [&](Dims dims, float limit) {
    const uint64_t seed = config.seed * 1000003 + made++;
    return random_tensor({config.dtype, std::move(dims)}, limit, seed);
  };
  // A sum of K products keeps its size when the weights have variance 1/K.
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return vector_or_matrix({rows, columns}, std::sqrt(3.0F / static_cast<float>(columns)));
  };
  const auto gamma = [&] {
    Tensor result = vector_or_matrix({config.hidden}, 0.25F);
    std::vector<float> values = load(result);
    for (float& value : values) value += 1.0F;
    store(result, values);
    return result;
  };
  const auto bias = [&](int64_t width) {
    return config.qkv_bias ? vector_or_matrix({width}, kBiasLimit) : Tensor{};
  };
  const int64_t kv_width = config.kv_heads * config.head_size();
  Checkpoint checkpoint;
  checkpoint.embedding = vector_or_matrix({config.vocabulary, config.hidden}, kEmbeddingLimit);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    LayerWeights& weights = checkpoint.layers.emplace_back();
    weights.input_norm = gamma();
    weights.q = matrix(config.hidden, config.hidden);
    weights.q_bias = bias(config.hidden);
    weights.k = matrix(kv_width, config.hidden);
    weights.k_bias = bias(kv_width);
    weights.v = matrix(kv_width, config.hidden);
    weights.v_bias = bias(kv_width);
    weights.o = matrix(config.hidden, config.hidden);
    weights.post_norm = gamma();
    weights.gate = matrix(config.mlp_width(), config.hidden);
    weights.up = matrix(config.mlp_width(), config.hidden);
    weights.down = matrix(config.hidden, config.mlp_width());
  }
  checkpoint.final_norm = gamma();
  checkpoint.head = matrix(config.vocabulary, config.hidden);
  return checkpoint;
}

bool save_checkpoint(const ModelConfig& config, const Checkpoint& checkpoint,
                     const std::vector<std::vector<int64_t>>& prompts, const std::string& folder) {
  SafetensorsFile file;
  file.add("model.embed_tokens.weight", checkpoint.embedding);
  for (size_t i = 0; i < checkpoint.layers.size(); ++i) {
    const LayerWeights& layer = checkpoint.layers[i];
    const std::string stem = "model.layers." + std::to_string(i) + ".";
    file.add(stem + "input_layernorm.weight", layer.input_norm);
    file.add(stem + "self_attn.q_proj.weight", layer.q);
    file.add(stem + "self_attn.k_proj.weight", layer.k);
    file.add(stem + "self_attn.v_proj.weight", layer.v);
    file.add(stem + "self_attn.o_proj.weight", layer.o);
    if (config.qkv_bias) {
      file.add(stem + "self_attn.q_proj.bias", layer.q_bias);
      file.add(stem + "self_attn.k_proj.bias", layer.k_bias);
      file.add(stem + "self_attn.v_proj.bias", layer.v_bias);
      file.add(stem + "self_attn.o_proj.bias", make_tensor({config.dtype, {config.hidden}}));
    }
    file.add(stem + "post_attention_layernorm.weight", layer.post_norm);
    file.add(stem + "mlp.gate_proj.weight", layer.gate);
    file.add(stem + "mlp.up_proj.weight", layer.up);
    file.add(stem + "mlp.down_proj.weight", layer.down);
  }
  file.add("model.norm.weight", checkpoint.final_norm);
  file.add("lm_head.weight", checkpoint.head);
  Json::Array lists;
  for (const std::vector<int64_t>& prompt : prompts) lists.push_back(json_array(prompt));
  return file.write(folder + "/model.safetensors") &&
         write_text(folder + "/config.json", huggingface_config(config).dump()) &&
         write_text(folder + "/prompts.json", Json(lists).dump());
}

std::vector<Tensor> model_weights(const ModelConfig& config, const Checkpoint& checkpoint) {
  const Shares shares = shares_of(config);
  std::vector<Tensor> weights{checkpoint.embedding};
  for (const LayerWeights& layer : checkpoint.layers) push_layer(config, layer, shares, weights);
  weights.push_back(checkpoint.final_norm);
  weights.push_back(checkpoint.head);
  return weights;
}

}  // namespace atb_host
