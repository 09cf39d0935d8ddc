// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "atb/probe.h"
#include "operations.h"

namespace atb_host {
namespace {

constexpr float kEpsilon = 1e-5F;
constexpr float kMaskedFloat16 = -10000.0F;  // bf16 masks hold a one, which the kernel multiplies
constexpr double kRotaryBase = 10000.0;
constexpr float kEmbeddingLimit = 0.1F;
constexpr float kBiasLimit = 0.1F;

uint64_t splitmix(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

std::vector<std::string> joined(std::vector<std::string> names,
                                const std::vector<std::vector<std::string>>& more) {
  for (const auto& list : more) names.insert(names.end(), list.begin(), list.end());
  return names;
}

std::vector<std::string> attention_weight_names(bool bias) {
  if (bias) return {"q_weight", "q_bias", "k_weight", "k_bias", "v_weight", "v_bias", "o_weight"};
  return {"q_weight", "k_weight", "v_weight", "o_weight"};
}

std::vector<std::string> layer_weight_names(bool bias) {
  return joined({"input_norm"}, {attention_weight_names(bias),
                                 {"post_norm", "gate_weight", "up_weight", "down_weight"}});
}

// What a layer gets of the model's inputs, beside its weights.
std::vector<std::string> step_names(Phase phase) {
  if (phase == Phase::kPrefill) return {"cos", "sin", "slots", "seq_len", "mask"};
  return {"cos", "sin", "slots", "seq_len", "block_tables", "context_lens"};
}

// [T, heads * size] as [T, heads, size] and back.
GraphOperation::Reshape split_heads(int64_t heads) {
  return [=](const Dims& dims) { return Dims{dims[0], heads, dims[1] / heads}; };
}
Dims join_heads(const Dims& dims) { return {dims[0], dims[1] * dims[2]}; }

Fault only(Fault fault, std::initializer_list<Fault> known) {
  for (const Fault each : known) {
    if (fault == each) return fault;
  }
  return Fault::kNone;
}

std::unique_ptr<Operation> make_attention(const ModelConfig& config, Phase phase, Fault fault) {
  const int64_t heads = config.heads;
  const int64_t kv_heads = config.kv_heads;
  const AttentionShape shape{.heads = heads,
                             .kv_heads = kv_heads,
                             .scale = 1.0F / std::sqrt(static_cast<float>(config.head_size()))};
  const std::vector<std::string> caches{"key_cache", "value_cache"};
  auto graph = std::make_unique<GraphOperation>(
      "Attention",
      joined({"x"}, {attention_weight_names(config.qkv_bias), step_names(phase), caches}),
      std::vector<std::string>{"y"});
  for (const std::string name : {"q", "k", "v"}) {
    std::vector<std::string> in{"x", name + "_weight"};
    if (config.qkv_bias) in.push_back(name + "_bias");
    graph->add(make_linear(config.qkv_bias, Fault::kNone), in, {name});
  }
  graph->add(make_rope(only(fault, {Fault::kRopeOffByOne})), {"q", "k", "cos", "sin", "seq_len"},
             {"q_rotated", "k_rotated"});
  // In place: the outputs are the caches that came in.
  graph->add(make_reshape_and_cache(), {"k_rotated", "v", "key_cache", "value_cache", "slots"},
             {"key_cache", "value_cache"}, {split_heads(kv_heads), split_heads(kv_heads)});
  const Fault attention_fault = only(fault, {Fault::kDroppedScale, Fault::kMissingMaskRow,
                                             Fault::kSwappedHeads, Fault::kStaleCache});
  if (phase == Phase::kPrefill) {
    graph->add(make_self_attention(shape, attention_fault),
               {"q_rotated", "k_rotated", "v", "mask", "seq_len"}, {"attended"});
    graph->add(make_linear(false, Fault::kNone), {"attended", "o_weight"}, {"y"});
  } else {
    graph->add(make_paged_attention(shape, attention_fault),
               {"q_rotated", "key_cache", "value_cache", "block_tables", "context_lens"},
               {"attended"}, {split_heads(heads)});
    graph->add(make_linear(false, Fault::kNone), {"attended", "o_weight"}, {"y"}, {join_heads});
  }
  return graph;
}

std::unique_ptr<Operation> make_mlp(Fault fault) {
  auto graph = std::make_unique<GraphOperation>(
      "Mlp", std::vector<std::string>{"x", "gate_weight", "up_weight", "down_weight"},
      std::vector<std::string>{"y"});
  graph->add(make_linear(false, Fault::kNone), {"x", "gate_weight"}, {"gate"});
  graph->add(make_linear(false, Fault::kNone), {"x", "up_weight"}, {"up"});
  graph->add(make_swish(), {"gate"}, {"activated"});
  graph->add(make_elewise(Elewise::kMul, only(fault, {Fault::kOverflow})), {"activated", "up"},
             {"gated"});
  graph->add(make_linear(false, only(fault, {Fault::kAccumulateBf16, Fault::kTruncateRounding,
                                             Fault::kOneElement})),
             {"gated", "down_weight"}, {"y"});
  return graph;
}

std::unique_ptr<Operation> make_layer(const ModelConfig& config, Phase phase, Fault fault) {
  const std::vector<std::string> caches{"key_cache", "value_cache"};
  auto graph = std::make_unique<GraphOperation>(
      phase == Phase::kPrefill ? "Prefill_layer" : "Decoder_layer",
      joined({"hidden"}, {layer_weight_names(config.qkv_bias), step_names(phase), caches}),
      std::vector<std::string>{"output"});
  graph->add(make_rms_norm(kEpsilon, only(fault, {Fault::kWrongEpsilon})), {"hidden", "input_norm"},
             {"normed"});
  graph->add(
      make_attention(config, phase, fault),
      joined({"normed"}, {attention_weight_names(config.qkv_bias), step_names(phase), caches}),
      {"attention"});
  graph->add(make_elewise(Elewise::kAdd, Fault::kNone), {"hidden", "attention"}, {"residual"});
  graph->add(make_rms_norm(kEpsilon, Fault::kNone), {"residual", "post_norm"}, {"normed_again"});
  graph->add(make_mlp(fault), {"normed_again", "gate_weight", "up_weight", "down_weight"}, {"mlp"});
  graph->add(make_elewise(Elewise::kAdd, Fault::kNone), {"residual", "mlp"}, {"output"});
  return graph;
}

std::unique_ptr<Operation> make_word_embedding() {
  auto graph =
      std::make_unique<GraphOperation>("WordEmbedding", std::vector<std::string>{"table", "ids"},
                                       std::vector<std::string>{"hidden"});
  graph->add(make_gather(), {"table", "ids"}, {"hidden"});
  return graph;
}

std::unique_ptr<Operation> make_positional_embedding() {
  auto graph = std::make_unique<GraphOperation>(
      "PositionalEmbedding", std::vector<std::string>{"cos_table", "sin_table", "positions"},
      std::vector<std::string>{"cos", "sin"});
  graph->add(make_gather(), {"cos_table", "positions"}, {"cos"});
  graph->add(make_gather(), {"sin_table", "positions"}, {"sin"});
  return graph;
}

std::unique_ptr<Operation> make_lm_head(const ModelConfig& config, Phase phase) {
  auto graph = std::make_unique<GraphOperation>(
      "LmHead", std::vector<std::string>{"hidden", "norm_weight", "head_weight"},
      std::vector<std::string>{"logits", "next_token"});
  // Only the last token of a prompt is looked at; a decoding step has just one.
  graph->add(std::make_unique<IfOperation>([=] { return phase == Phase::kPrefill; },
                                           make_last_row_slice(config.hidden),
                                           make_row_copy(config.hidden)),
             {"hidden"}, {"last"});
  graph->add(make_rms_norm(kEpsilon, Fault::kNone), {"last", "norm_weight"}, {"normed"});
  graph->add(make_linear(false, Fault::kNone), {"normed", "head_weight"}, {"logits"});
  graph->add(make_greedy_search(), {"logits"}, {"next_token"});
  return graph;
}

/// Executes operations in order: at once, or on a thread of its own.
class ExecuteQueue {
 public:
  ExecuteQueue(Context& context, bool asynchronous) : context_(context) {
    if (asynchronous) thread_ = std::thread([this] { run(); });
  }
  ~ExecuteQueue() { wait(); }
  ExecuteQueue(const ExecuteQueue&) = delete;
  ExecuteQueue& operator=(const ExecuteQueue&) = delete;

  void execute(Operation& operation) {
    if (!thread_.joinable()) {
      if (status_ == Status::kOk) status_ = operation.execute(context_);
      return;
    }
    const std::lock_guard lock(mutex_);
    waiting_.push_back(&operation);
    changed_.notify_one();
  }

  /// Until all have been executed; the first failure, after which none is executed.
  Status wait() {
    if (thread_.joinable()) {
      execute_none_after_this();
      thread_.join();
    }
    return status_;
  }

 private:
  void execute_none_after_this() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_one();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Operation& next = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      if (status_ == Status::kOk) status_ = next.execute(context_);
      lock.lock();
    }
  }

  Context& context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation*> waiting_;
  bool ended_ = false;
  Status status_ = Status::kOk;  // of the thread's alone until it is joined
  std::thread thread_;
};

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

std::vector<Tensor> make_weights(const ModelConfig& config) {
  std::vector<Tensor> weights;
  const auto push = [&](Dims dims, float limit) {
    const uint64_t seed = config.seed * 1000003 + weights.size();
    weights.push_back(random_tensor({config.dtype, std::move(dims)}, limit, seed));
  };
  // A sum of K products keeps its size when the weights have variance 1/K.
  const auto push_matrix = [&](int64_t rows, int64_t columns) {
    push({rows, columns}, std::sqrt(3.0F / static_cast<float>(columns)));
  };
  const auto push_gamma = [&] {
    push({config.hidden}, 0.25F);
    std::vector<float> gamma = load(weights.back());
    for (float& value : gamma) value += 1.0F;
    store(weights.back(), gamma);
  };
  const int64_t kv_width = config.kv_heads * config.head_size();
  push({config.vocabulary, config.hidden}, kEmbeddingLimit);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    push_gamma();
    for (const int64_t width : {config.hidden, kv_width, kv_width}) {
      push_matrix(width, config.hidden);
      if (config.qkv_bias) push({width}, kBiasLimit);
    }
    push_matrix(config.hidden, config.hidden);
    push_gamma();
    push_matrix(config.mlp_width(), config.hidden);
    push_matrix(config.mlp_width(), config.hidden);
    push_matrix(config.hidden, config.mlp_width());
  }
  push_gamma();
  push_matrix(config.vocabulary, config.hidden);
  return weights;
}

Tensor rotary_table(const ModelConfig& config, bool sine) {
  const int64_t size = config.head_size();
  std::vector<float> values;
  for (int64_t position = 0; position < config.positions; ++position) {
    for (int64_t i = 0; i < size; ++i) {
      const double exponent =
          -2.0 * static_cast<double>(i % (size / 2)) / static_cast<double>(size);
      const double angle = static_cast<double>(position) * std::pow(kRotaryBase, exponent);
      values.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
    }
  }
  Tensor table = make_tensor({config.dtype, {config.positions, size}});
  store(table, values);
  return table;
}

Tensor causal_mask(DType dtype, int64_t tokens) {
  const float masked = dtype == DType::kBfloat16 ? 1.0F : kMaskedFloat16;
  std::vector<float> values;
  for (int64_t row = 0; row < tokens; ++row) {
    for (int64_t column = 0; column < tokens; ++column) {
      values.push_back(column > row ? masked : 0.0F);
    }
  }
  Tensor mask = make_tensor({dtype, {tokens, tokens}});
  store(mask, values);
  return mask;
}

KvCache make_cache(const ModelConfig& config, int64_t blocks, int64_t block_size) {
  KvCache cache;
  const TensorDesc desc{config.dtype, {blocks, block_size, config.kv_heads, config.head_size()}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    cache.keys.push_back(make_tensor(desc));
    cache.values.push_back(make_tensor(desc));
  }
  return cache;
}

Model::Model(const ModelConfig& config, Phase phase, const std::vector<Tensor>& weights)
    : name_(phase == Phase::kPrefill ? "LlamaModel_Prefill" : "LlamaModel_Decoder"),
      layer_count_(static_cast<size_t>(config.layers)),
      asynchronous_(config.asynchronous),
      weights_(weights) {
  const auto input = [](size_t index) { return Place{Kind::kInput, index}; };
  size_t weight_count = 0;
  const auto next_weight = [&] { return Place{Kind::kWeight, weight_count++}; };
  const auto push = [&](std::unique_ptr<Operation> operation, std::vector<Place> in,
                        std::vector<Place> out) {
    nodes_.push_back({std::move(operation), std::move(in), std::move(out)});
  };

  Place hidden = new_internal();
  push(make_word_embedding(), {next_weight(), input(0)}, {hidden});
  const Place cos = new_internal();
  const Place sin = new_internal();
  push(make_positional_embedding(), {input(2), input(3), input(1)}, {cos, sin});
  for (size_t layer = 0; layer < layer_count_; ++layer) {
    const bool faulty = static_cast<int64_t>(layer) == config.fault_layer;
    std::vector<Place> in{hidden};
    for (size_t i = 0; i < layer_weight_names(config.qkv_bias).size(); ++i)
      in.push_back(next_weight());
    in.insert(in.end(), {cos, sin});
    for (size_t i = 2; i < step_names(phase).size(); ++i) in.push_back(input(i + 2));
    in.push_back({Kind::kKeyCache, layer});
    in.push_back({Kind::kValueCache, layer});
    hidden = new_internal();
    push(make_layer(config, phase, faulty ? config.fault : Fault::kNone), std::move(in), {hidden});
  }
  push(make_lm_head(config, phase), {hidden, next_weight(), next_weight()},
       {{Kind::kOutput, 0}, {Kind::kOutput, 1}});
  output_count_ = 2;
}

Status Model::forward(const std::vector<Tensor>& inputs, const KvCache& cache, Context& context,
                      std::vector<Tensor>& outputs) {
  std::vector<Tensor> internals(internal_count_);
  outputs.assign(output_count_, {});
  const auto tensor_at = [&](Place place) -> Tensor {
    switch (place.kind) {
      case Kind::kInput:
        return inputs.at(place.index);
      case Kind::kWeight:
        return weights_.at(place.index);
      case Kind::kKeyCache:
        return cache.keys.at(place.index);
      case Kind::kValueCache:
        return cache.values.at(place.index);
      case Kind::kInternal:
        return internals.at(place.index);
      case Kind::kOutput:
        break;
    }
    return outputs.at(place.index);
  };
  ExecuteQueue queue(context, asynchronous_);
  for (const Node& node : nodes_) {
    VariantPack pack;
    std::vector<TensorDesc> descs;
    for (const Place place : node.in) {
      pack.in.push_back(tensor_at(place));
      descs.push_back(pack.in.back().desc);
    }
    for (const TensorDesc& desc : node.operation->infer(descs)) {
      const Place place = node.out[pack.out.size()];
      pack.out.push_back(make_tensor(desc));
      (place.kind == Kind::kOutput ? outputs : internals)[place.index] = pack.out.back();
    }
    const Status status = node.operation->setup(pack, context);
    if (status != Status::kOk) return status;
    queue.execute(*node.operation);
    if (!asynchronous_ && queue.wait() != Status::kOk) return queue.wait();
  }
  // In the asynchronous mode this is asked while the last operations may still be running.
  if (atb_speed::SpeedProbe::IsReportModelTopoInfo(name_)) {                     // -> every forward
    atb_speed::SpeedProbe::ReportModelTopoInfo(name_, topology(inputs.size()));  // ->
  }
  return queue.wait();
}

std::string Model::name_of(Place place) const {
  const char* word = "output";
  switch (place.kind) {
    case Kind::kInput:
      word = "input";
      break;
    case Kind::kWeight:
      word = "weight";
      break;
    case Kind::kKeyCache:
      word = "kCache";
      break;
    case Kind::kValueCache:
      word = "vCache";
      break;
    case Kind::kInternal:
      word = "internal";
      break;
    case Kind::kOutput:
      break;
  }
  return name_ + "_" + word + "_" + std::to_string(place.index);
}

std::string Model::topology(size_t input_count) const {
  const auto names = [&](Kind kind, size_t count) {
    Json::Array list;
    for (size_t i = 0; i < count; ++i) list.emplace_back(name_of({kind, i}));
    return list;
  };
  const auto names_at = [&](const std::vector<Place>& places) {
    Json::Array list;
    for (const Place place : places) list.emplace_back(name_of(place));
    return list;
  };
  Json::Array nodes;
  for (const Node& node : nodes_) {
    nodes.emplace_back(Json::Object{{"opName", node.operation->type()},
                                    {"inTensors", names_at(node.in)},
                                    {"outTensors", names_at(node.out)}});
  }
  return Json(Json::Object{{"modelName", name_},
                           {"inTensors", names(Kind::kInput, input_count)},
                           {"outTensors", names(Kind::kOutput, output_count_)},
                           {"internalTensors", names(Kind::kInternal, internal_count_)},
                           {"weightTensors", names(Kind::kWeight, weights_.size())},
                           {"kCacheTensors", names(Kind::kKeyCache, layer_count_)},
                           {"vCacheTensors", names(Kind::kValueCache, layer_count_)},
                           {"nodes", nodes}})
      .dump();
}

}  // namespace atb_host
