// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "atb/probe.h"
#include "operations.h"

namespace atb_host {
namespace {

constexpr float kMaskedFloat16 = -10000.0F;  // bf16 masks hold a one, which the kernel multiplies

std::vector<std::string> joined(std::vector<std::string> names,
                                const std::vector<std::vector<std::string>>& more) {
  for (const auto& list : more) names.insert(names.end(), list.begin(), list.end());
  return names;
}

// "q" -> "q_weight", "q_bias", "q_scale": what a linear operation takes beside its input.
std::vector<std::string> linear_names(const ModelConfig& config, const std::string& stem) {
  const bool projection = stem == "q" || stem == "k" || stem == "v" || stem == "qkv";
  std::vector<std::string> names{stem + "_weight"};
  if (projection && config.qkv_bias) names.push_back(stem + "_bias");
  if (config.quantised) names.push_back(stem + "_scale");
  return names;
}

std::vector<std::string> projections(const ModelConfig& config) {
  return config.packed ? std::vector<std::string>{"qkv"} : std::vector<std::string>{"q", "k", "v"};
}

std::vector<std::string> attention_weight_names(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const std::string& stem : projections(config))
    names = joined(names, {linear_names(config, stem)});
  return joined(names, {linear_names(config, "o")});
}

std::vector<std::string> mlp_weight_names(const ModelConfig& config) {
  const auto linear = [&](const char* stem) { return linear_names(config, stem); };
  if (config.packed) return joined(linear("gate_up"), {linear("down")});
  return joined(linear("gate"), {linear("up"), linear("down")});
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

void add_linear(GraphOperation& graph, const ModelConfig& config, const std::string& stem,
                const std::string& input, const std::string& output, Fault fault,
                std::vector<GraphOperation::Reshape> reshapes = {}) {
  const std::vector<std::string> names = linear_names(config, stem);
  const bool bias = names.size() > 1 && names[1] == stem + "_bias";
  auto operation = config.quantised ? make_linear_quant(bias, fault) : make_linear(bias, fault);
  graph.add(std::move(operation), joined({input}, {names}), {output}, std::move(reshapes));
}

// A linear operation whose columns are spread over the ranks, so that each has a part of the sum.
void add_row_parallel(GraphOperation& graph, const ModelConfig& config, const std::string& stem,
                      const std::string& input, const std::string& output, Fault fault,
                      std::vector<GraphOperation::Reshape> reshapes = {}) {
  const FaultPlace product =
      config.quantised ? FaultPlace::kDownQuantised : FaultPlace::kDownProduct;
  const std::string partial = config.ranks == 1 ? output : "partial";
  add_linear(graph, config, stem, input, partial, fault_at(product, fault), std::move(reshapes));
  if (config.ranks == 1) return;
  graph.add(make_all_reduce(config.rank, config.ranks, config.peers,
                            fault_at(FaultPlace::kDownSum, fault)),
            {partial}, {output});
}

// The nodes from the cache to the output projection.
void add_attention_core(GraphOperation& graph, const ModelConfig& config, Phase phase,
                        Fault fault) {
  const int64_t kv_heads = config.kv_heads_here();
  const AttentionShape shape{.heads = config.heads_here(),
                             .kv_heads = kv_heads,
                             .scale = 1.0F / std::sqrt(static_cast<float>(config.head_size()))};
  // In place: the outputs are the caches that came in.
  graph.add(make_reshape_and_cache(fault_at(FaultPlace::kCacheWrite, fault)),
            {"k_rotated", "v", "key_cache", "value_cache", "slots"}, {"key_cache", "value_cache"},
            {split_heads(kv_heads), split_heads(kv_heads)});
  const Fault attention_fault = fault_at(FaultPlace::kAttention, fault);
  if (phase == Phase::kPrefill) {
    graph.add(make_self_attention(shape, attention_fault),
              {"q_rotated", "k_rotated", "v", "mask", "seq_len"}, {"attended"});
    add_row_parallel(graph, config, "o", "attended", "y", Fault::kNone);
  } else {
    graph.add(make_paged_attention(shape, attention_fault),
              {"q_rotated", "key_cache", "value_cache", "block_tables", "context_lens"},
              {"attended"}, {split_heads(shape.heads)});
    add_row_parallel(graph, config, "o", "attended", "y", Fault::kNone, {join_heads});
  }
}

const std::vector<std::string> kCaches{"key_cache", "value_cache"};
const std::vector<std::string> kRopeIn{"q", "k", "cos", "sin", "seq_len"};
const std::vector<std::string> kRopeOut{"q_rotated", "k_rotated"};

std::unique_ptr<Operation> make_attention(const ModelConfig& config, Phase phase, Fault fault) {
  auto graph = std::make_unique<GraphOperation>(
      "Attention", joined({"x"}, {attention_weight_names(config), step_names(phase), kCaches}),
      std::vector<std::string>{"y"});
  for (const std::string& stem : projections(config)) {
    const Fault here = stem == "q" ? fault_at(FaultPlace::kQueryProduct, fault) : Fault::kNone;
    add_linear(*graph, config, stem, "x", stem, here);
  }
  graph->add(make_rope(fault_at(FaultPlace::kRope, fault)), kRopeIn, kRopeOut);
  add_attention_core(*graph, config, phase, fault);
  return graph;
}

std::unique_ptr<Operation> make_mlp(const ModelConfig& config, Fault fault) {
  auto graph = std::make_unique<GraphOperation>("Mlp", joined({"x"}, {mlp_weight_names(config)}),
                                                std::vector<std::string>{"y"});
  add_linear(*graph, config, "gate", "x", "gate", Fault::kNone);
  add_linear(*graph, config, "up", "x", "up", Fault::kNone);
  graph->add(make_swish(fault_at(FaultPlace::kActivation, fault)), {"gate"}, {"activated"});
  graph->add(make_elewise(Elewise::kMul, fault_at(FaultPlace::kGate, fault)), {"activated", "up"},
             {"gated"});
  add_row_parallel(*graph, config, "down", "gated", "y", fault);
  return graph;
}

std::unique_ptr<GraphOperation> make_layer_graph(const ModelConfig& config, Phase phase) {
  return std::make_unique<GraphOperation>(
      phase == Phase::kPrefill ? "Prefill_layer" : "Decoder_layer",
      joined({"hidden"}, {layer_weight_names(config), step_names(phase), kCaches}),
      std::vector<std::string>{"output"});
}

std::unique_ptr<Operation> make_layer(const ModelConfig& config, Phase phase, Fault fault) {
  auto graph = make_layer_graph(config, phase);
  graph->add(make_rms_norm(kEpsilon, fault_at(FaultPlace::kInputNorm, fault)),
             {"hidden", "input_norm"}, {"normed"});
  graph->add(make_attention(config, phase, fault),
             joined({"normed"}, {attention_weight_names(config), step_names(phase), kCaches}),
             {"attention"});
  graph->add(make_elewise(Elewise::kAdd, fault_at(FaultPlace::kResidual, fault)),
             {"hidden", "attention"}, {"residual"});
  graph->add(make_rms_norm(kEpsilon, Fault::kNone), {"residual", "post_norm"}, {"normed_again"});
  graph->add(make_mlp(config, fault), joined({"normed_again"}, {mlp_weight_names(config)}),
             {"mlp"});
  graph->add(make_elewise(Elewise::kAdd, Fault::kNone), {"residual", "mlp"}, {"output"});
  return graph;
}

// Normalisation, the fused product and its parts, as one graph.
std::unique_ptr<Operation> make_packed_projection(const ModelConfig& config, Fault fault) {
  auto norm_linear = std::make_unique<GraphOperation>(
      "NormLinear", joined({"x", "norm"}, {linear_names(config, "qkv")}),
      std::vector<std::string>{"qkv"});
  norm_linear->add(make_rms_norm(kEpsilon, fault_at(FaultPlace::kInputNorm, fault)), {"x", "norm"},
                   {"normed"});
  add_linear(*norm_linear, config, "qkv", "normed", "qkv",
             fault_at(FaultPlace::kQueryProduct, fault));
  const int64_t query_width = config.heads_here() * config.head_size();
  const int64_t key_width = config.kv_heads_here() * config.head_size();
  auto graph = std::make_unique<GraphOperation>(
      "QKVLinearSplitPack", joined({"x", "norm"}, {linear_names(config, "qkv")}),
      std::vector<std::string>{"q", "k", "v"});
  graph->add(std::move(norm_linear), joined({"x", "norm"}, {linear_names(config, "qkv")}), {"qkv"});
  graph->add(
      make_split({query_width, key_width, key_width}, fault_at(FaultPlace::kQkvSplit, fault)),
      {"qkv"}, {"q", "k", "v"});
  return graph;
}

std::unique_ptr<Operation> make_packed_attention(const ModelConfig& config, Phase phase,
                                                 Fault fault) {
  auto rotary = std::make_unique<GraphOperation>("RotaryPositionEmbedding", kRopeIn, kRopeOut);
  rotary->add(make_rope(fault_at(FaultPlace::kRope, fault)), kRopeIn, kRopeOut);
  auto graph = std::make_unique<GraphOperation>(
      "Attention",
      joined({"x", "input_norm"}, {attention_weight_names(config), step_names(phase), kCaches}),
      std::vector<std::string>{"y"});
  graph->add(make_packed_projection(config, fault),
             joined({"x", "input_norm"}, {linear_names(config, "qkv")}), {"q", "k", "v"});
  graph->add(std::move(rotary), kRopeIn, kRopeOut);
  add_attention_core(*graph, config, phase, fault);
  return graph;
}

std::unique_ptr<Operation> make_packed_mlp(const ModelConfig& config, Fault fault) {
  const int64_t width = config.mlp_width() / config.ranks;
  auto graph = std::make_unique<GraphOperation>(
      "Mlp", joined({"x", "post_norm"}, {mlp_weight_names(config)}), std::vector<std::string>{"y"});
  graph->add(make_rms_norm(kEpsilon, Fault::kNone), {"x", "post_norm"}, {"normed"});
  add_linear(*graph, config, "gate_up", "normed", "gate_up", Fault::kNone);
  graph->add(make_split({width, width}, Fault::kNone), {"gate_up"}, {"gate", "up"});
  graph->add(make_swish(fault_at(FaultPlace::kActivation, fault)), {"gate"}, {"activated"});
  graph->add(make_elewise(Elewise::kMul, fault_at(FaultPlace::kGate, fault)), {"activated", "up"},
             {"gated"});
  add_row_parallel(*graph, config, "down", "gated", "y", fault);
  return graph;
}

// As MindIE packs its layers: the normalisations stand inside Attention and Mlp.
std::unique_ptr<Operation> make_packed_layer(const ModelConfig& config, Phase phase, Fault fault) {
  auto graph = make_layer_graph(config, phase);
  graph->add(make_packed_attention(config, phase, fault),
             joined({"hidden", "input_norm"},
                    {attention_weight_names(config), step_names(phase), kCaches}),
             {"attention"});
  graph->add(make_elewise(Elewise::kAdd, fault_at(FaultPlace::kResidual, fault)),
             {"hidden", "attention"}, {"residual"});
  graph->add(make_packed_mlp(config, fault),
             joined({"residual", "post_norm"}, {mlp_weight_names(config)}), {"mlp"});
  graph->add(make_elewise(Elewise::kAdd, Fault::kNone), {"residual", "mlp"}, {"output"});
  return graph;
}

std::unique_ptr<Operation> make_word_embedding(Fault fault) {
  auto graph =
      std::make_unique<GraphOperation>("WordEmbedding", std::vector<std::string>{"table", "ids"},
                                       std::vector<std::string>{"hidden"});
  graph->add(make_gather(fault_at(FaultPlace::kEmbedding, fault)), {"table", "ids"}, {"hidden"});
  return graph;
}

std::unique_ptr<Operation> make_positional_embedding() {
  auto graph = std::make_unique<GraphOperation>(
      "PositionalEmbedding", std::vector<std::string>{"cos_table", "sin_table", "positions"},
      std::vector<std::string>{"cos", "sin"});
  graph->add(make_gather(Fault::kNone), {"cos_table", "positions"}, {"cos"});
  graph->add(make_gather(Fault::kNone), {"sin_table", "positions"}, {"sin"});
  return graph;
}

std::unique_ptr<Operation> make_lm_head(const ModelConfig& config, Phase phase) {
  // In the packed model the final norm is an operation of its own before this one.
  std::vector<std::string> in{"hidden", "head_weight"};
  if (!config.packed) in.insert(in.begin() + 1, "norm_weight");
  auto graph = std::make_unique<GraphOperation>("LmHead", std::move(in),
                                                std::vector<std::string>{"logits", "next_token"});
  // Only the last token of a prompt is looked at; a decoding step has just one.
  graph->add(std::make_unique<IfOperation>([=] { return phase == Phase::kPrefill; },
                                           make_last_row_slice(config.hidden),
                                           make_row_copy(config.hidden)),
             {"hidden"}, {"last"});
  if (!config.packed) {
    graph->add(make_rms_norm(kEpsilon, Fault::kNone), {"last", "norm_weight"}, {"normed"});
  }
  graph->add(make_linear(false, Fault::kNone), {config.packed ? "last" : "normed", "head_weight"},
             {"logits"});
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

std::vector<std::string> layer_weight_names(const ModelConfig& config) {
  return joined({"input_norm"},
                {attention_weight_names(config), {"post_norm"}, mlp_weight_names(config)});
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
  const TensorDesc desc{config.dtype,
                        {blocks, block_size, config.kv_heads_here(), config.head_size()}};
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
  push(make_word_embedding(config.fault), {next_weight(), input(0)}, {hidden});
  const Place cos = new_internal();
  const Place sin = new_internal();
  push(make_positional_embedding(), {input(2), input(3), input(1)}, {cos, sin});
  for (size_t layer = 0; layer < layer_count_; ++layer) {
    const bool faulty = static_cast<int64_t>(layer) == config.fault_layer;
    std::vector<Place> in{hidden};
    for (size_t i = 0; i < layer_weight_names(config).size(); ++i) in.push_back(next_weight());
    in.insert(in.end(), {cos, sin});
    for (size_t i = 2; i < step_names(phase).size(); ++i) in.push_back(input(i + 2));
    in.push_back({Kind::kKeyCache, layer});
    in.push_back({Kind::kValueCache, layer});
    hidden = new_internal();
    const Fault fault = faulty ? config.fault : Fault::kNone;
    push(config.packed ? make_packed_layer(config, phase, fault) : make_layer(config, phase, fault),
         std::move(in), {hidden});
  }
  std::vector<Place> head_in{hidden};
  if (config.packed) {
    const Place normed = new_internal();
    push(make_rms_norm(kEpsilon, Fault::kNone), {hidden, next_weight()}, {normed});
    head_in = {normed};
  } else {
    head_in.push_back(next_weight());
  }
  head_in.push_back(next_weight());
  push(make_lm_head(config, phase), std::move(head_in), {{Kind::kOutput, 0}, {Kind::kOutput, 1}});
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
