// SPDX-License-Identifier: Apache-2.0
// A decoder of the Llama shape with random weights, built as MindIE builds its models: a list of top-level operations,
// one list for the prompt and one for decoding, over shared weights and a paged key/value cache.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels.h"
#include "library.h"
#include "peers.h"

namespace atb_host {

constexpr float kEpsilon = 1e-5F;
constexpr double kRotaryBase = 10000.0;

struct ModelConfig {
  int64_t layers = 2;
  int64_t hidden = 64;
  int64_t intermediate = 0;  // width of the MLP; 0: twice the hidden size
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t vocabulary = 256;
  int64_t positions = 16;  // rows of the rotary tables
  bool qkv_bias = true;    // as Qwen2 has; it gives these operations a second kernel
  DType dtype = DType::kFloat16;
  uint64_t seed = 1;
  Fault fault = Fault::kNone;
  int64_t fault_layer = 0;
  bool asynchronous =
      false;  // operations are executed on a second thread while the next ones are set up

  // Other ways to compute the same; how each changes the weights: weights.h.
  bool packed = false;     // the graphs of MindIE's packed layers, see make_packed_layer()
  bool quantised = false;  // LinearQuantOperation in the layers
  bool permuted = false;   // heads and units of the MLP in another order
  int64_t ranks = 1;       // tensor parallel: each has a share of the heads and of the MLP
  int64_t rank = 0;
  Peers* peers = nullptr;  // with several ranks; not owned

  int64_t head_size() const { return hidden / heads; }
  int64_t heads_here() const { return heads / ranks; }
  int64_t kv_heads_here() const { return kv_heads / ranks; }
  int64_t mlp_width() const { return intermediate > 0 ? intermediate : 2 * hidden; }
};

/// What a layer takes after its hidden states, in this order; of a linear operation weight, bias, scales.
std::vector<std::string> layer_weight_names(const ModelConfig& config);

/// cos (or sin) of position * 10000^(-2i / head size), both halves of a row alike: [positions, head size].
Tensor rotary_table(const ModelConfig& config, bool sine);

/// Zero where a token may look, elsewhere -10000 (float16) or 1 (bf16): [tokens, tokens].
Tensor causal_mask(DType dtype, int64_t tokens);

struct KvCache {
  std::vector<Tensor> keys;  // one a layer: [blocks, block size, kv heads, head size]
  std::vector<Tensor> values;
};
KvCache make_cache(const ModelConfig& config, int64_t blocks, int64_t block_size);

enum class Phase { kPrefill, kDecode };

/// One list of operations. The weights, of model_weights(), are shared and must outlive the model.
class Model {
 public:
  Model(const ModelConfig& config, Phase phase, const std::vector<Tensor>& weights);

  /// Runs all operations.
  ///
  /// inputs   token ids int64 [T], positions int64 [T], cos table, sin table, slots int32 [T], seqLen int32 [1], then
  ///          for the prompt: mask [T, T]; for decoding: block tables int32 [1, n], context lengths int32 [1]
  /// outputs  logits [1, V], next token int64 [1]
  Status forward(const std::vector<Tensor>& inputs, const KvCache& cache, Context& context,
                 std::vector<Tensor>& outputs);

 private:
  enum class Kind { kInput, kWeight, kKeyCache, kValueCache, kInternal, kOutput };
  struct Place {
    Kind kind;
    size_t index;
  };
  struct Node {
    std::unique_ptr<Operation> operation;
    std::vector<Place> in;
    std::vector<Place> out;
  };

  std::string name_of(Place place) const;
  std::string topology(size_t input_count) const;
  Place new_internal() { return {Kind::kInternal, internal_count_++}; }

  std::string name_;
  size_t layer_count_;
  bool asynchronous_;
  const std::vector<Tensor>& weights_;
  std::vector<Node> nodes_;
  size_t internal_count_ = 0;
  size_t output_count_ = 0;
};

}  // namespace atb_host
