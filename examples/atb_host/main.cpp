// SPDX-License-Identifier: Apache-2.0
// Generates a few tokens with a small random model through the acceleration library's interface, so that a probe has
// something to see on any machine. Prints the tokens and a checksum of all logits: the same with and without a probe.
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>

#include "model.h"
#include "runner.h"
#include "weights.h"

namespace {

using namespace atb_host;

constexpr int64_t kBlockSize = 4;  // tokens a block of the cache

constexpr const char* kUsage = R"(usage: atb_host [options]
  --layers N       decoder layers (2)          --hidden N      hidden size (64)
  --heads N        query heads (4)             --kv-heads N    key/value heads (2)
  --vocab N        vocabulary (256)            --intermediate N  MLP width (twice the hidden size)
  --prompt N       prompt tokens (8)           --steps N       decoding steps (3)
  --requests N     prompts, one by one (1)     --seed N        weights and prompt (1)
  --ranks N        processes that share the model, tensor parallel (1)
  --packed         q, k and v as one product, gate and up as one, in the graphs of MindIE's layers
  --quant          products of int8 in the layers: LinearQuantOperation
  --permuted       attention heads and units of the MLP stand in another order; the results stay
  --warmup HOW     first a run with dummy tokens: none (default), prompt, or all: a decoding step too
  --save-weights DIR  before anything is permuted, packed or quantised, for LlamaForCausalLM;
                   and the prompts. DIR must exist
  --dtype T        fp16 (default) or bf16      --no-bias       q, k and v without bias
  --device N       device id in paths (0)      --threads N     contexts at the same time (1)
  --atb V          8.0, 8.3 (default) or 9.1: which release to play
  --async          set up on one thread, execute on another, as with ATB_OPERATION_EXECUTE_ASYNC=1
  --fault NAME     one of those below, in one operation; --fault-layer N: of that layer (the middle)
  --overflow       as --fault overflow
  --exit HOW       normal, _exit, kill, abort, or fork: a child continues after the first prompt
  --host-time      milliseconds a step, and what was offered to the probe, on stderr
faults:
)";

void print_usage(std::FILE* file) {
  std::fprintf(file, "%s%s\n", kUsage, fault_names(2, 100).c_str());
}

struct Options {
  ModelConfig model;
  Version version;
  int64_t prompt = 8;
  int64_t steps = 3;
  int64_t requests = 1;
  int64_t threads = 1;
  int64_t device = 0;
  int64_t fault_layer = -1;  // the middle one
  std::string exit = "normal";
  std::string warmup = "none";
  std::string save_weights;  // folder; empty: not wanted
  bool host_time = false;
};

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "atb_host: %s\n", why.c_str());
  print_usage(stderr);
  std::exit(2);
}

int64_t number(std::string_view option, std::string_view text, int64_t least) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    refuse(std::string(option) + ": expected a number from " + std::to_string(least) +
           " on, got '" + std::string(text) + "'");
  }
  return value;
}

Fault fault_named(std::string_view name) {
  const auto fault = fault_from_name(name);
  if (!fault) refuse("--fault: unknown name '" + std::string(name) + "'");
  return *fault;
}

// Options with a number: where it goes and the least value that makes sense.
struct NumberOption {
  std::string_view name;
  int64_t* target;
  int64_t least;
};

void parse_text(std::string_view option, std::string_view text, Options& options) {
  if (option == "--dtype") {
    if (text != "fp16" && text != "bf16") refuse("--dtype: fp16 or bf16");
    options.model.dtype = text == "fp16" ? DType::kFloat16 : DType::kBfloat16;
  } else if (option == "--atb") {
    const auto version = version_from_name(text);
    if (!version) refuse("--atb: 8.0, 8.3 or 9.1");
    options.version = *version;
  } else if (option == "--fault") {
    options.model.fault = fault_named(text);
  } else if (option == "--exit") {
    options.exit = text;
  } else if (option == "--warmup") {
    if (text != "none" && text != "prompt" && text != "all") {
      refuse("--warmup: none, prompt or all");
    }
    options.warmup = text;
  } else if (option == "--save-weights") {
    options.save_weights = text;
  } else {
    refuse("unknown option '" + std::string(option) + "'");
  }
}

// What the fault's operation needs to be in the model; null: nothing more.
const char* missing_for_fault(const ModelConfig& model) {
  switch (place_of(model.fault)) {
    case FaultPlace::kQueryProduct:
      return model.qkv_bias && !model.quantised ? nullptr : "a bias, and no --quant";
    case FaultPlace::kQkvSplit:
      return model.packed ? nullptr : "--packed";
    case FaultPlace::kDownProduct:
      return model.quantised ? "float products, no --quant" : nullptr;
    case FaultPlace::kDownQuantised:
      return model.quantised ? nullptr : "--quant";
    case FaultPlace::kDownSum:
      return model.ranks > 1 ? nullptr : "--ranks";
    default:
      return nullptr;
  }
}

// What only together makes no sense.
void check(const Options& options) {
  const ModelConfig& model = options.model;
  if (model.hidden % (2 * model.heads) != 0) refuse("--hidden must be a multiple of twice --heads");
  if (model.heads % model.kv_heads != 0) refuse("--heads must be a multiple of --kv-heads");
  if (options.exit == "fork" && options.threads > 1) refuse("--exit fork needs --threads 1");
  if (model.kv_heads % model.ranks != 0 || model.mlp_width() % model.ranks != 0) {
    refuse("--kv-heads and the width of the MLP must be multiples of --ranks");
  }
  if (model.ranks > 1 && (options.threads > 1 || options.exit == "fork")) {
    refuse("--ranks needs --threads 1 and no --exit fork");
  }
  if (const char* needed = missing_for_fault(model))
    refuse(std::string("--fault: this one needs ") + needed);
  if (options.warmup != "none" && options.steps == 0) {
    refuse("--warmup needs --steps 1: its prompt is as long as prompt and steps together");
  }
}

Options parse(int count, char** arguments) {
  Options options;
  int64_t seed = 1;
  const NumberOption numbers[] = {
      {"--layers", &options.model.layers, 1},
      {"--hidden", &options.model.hidden, 2},
      {"--heads", &options.model.heads, 1},
      {"--kv-heads", &options.model.kv_heads, 1},
      {"--vocab", &options.model.vocabulary, 2},
      {"--intermediate", &options.model.intermediate, 1},
      {"--prompt", &options.prompt, 1},
      {"--steps", &options.steps, 0},
      {"--requests", &options.requests, 1},
      {"--threads", &options.threads, 1},
      {"--device", &options.device, -1},
      {"--ranks", &options.model.ranks, 1},
      {"--seed", &seed, 0},
      {"--fault-layer", &options.fault_layer, 0},
  };
  for (int i = 1; i < count; ++i) {
    const std::string_view option = arguments[i];
    if (option == "--help" || option == "-h") {
      print_usage(stdout);
      std::exit(0);
    }
    if (option == "--overflow") {
      options.model.fault = Fault::kOverflow;
    } else if (option == "--no-bias") {
      options.model.qkv_bias = false;
    } else if (option == "--async") {
      options.model.asynchronous = true;
    } else if (option == "--packed") {
      options.model.packed = true;
    } else if (option == "--quant") {
      options.model.quantised = true;
    } else if (option == "--permuted") {
      options.model.permuted = true;
    } else if (option == "--host-time") {
      options.host_time = true;
    } else {
      if (i + 1 == count) refuse("'" + std::string(option) + "' needs a value, or is unknown");
      const std::string_view text = arguments[++i];
      const auto* found =
          std::find_if(std::begin(numbers), std::end(numbers),
                       [&](const NumberOption& each) { return each.name == option; });
      if (found == std::end(numbers)) {
        parse_text(option, text, options);
      } else {
        *found->target = number(option, text, found->least);
      }
    }
  }
  check(options);
  ModelConfig& model = options.model;
  model.seed = static_cast<uint64_t>(seed);
  model.positions = options.prompt + options.steps;
  model.fault_layer = options.fault_layer < 0 ? (model.layers - 1) / 2 : options.fault_layer;
  return options;
}
struct Generation {
  std::vector<int64_t> tokens;
  uint64_t checksum = 14695981039346656037U;  // FNV-1a over the bytes of all logits
  std::vector<double> step_ms;
  Status status = Status::kOk;
  uint64_t saved_tensors = 0;
  uint64_t saved_bytes = 0;
  pid_t child = 0;  // --exit fork: in the parent its child, in the child -1
};

std::vector<int64_t> prompt_ids(const Options& options, int64_t request) {
  const Tensor random = random_tensor({DType::kFloat16, {options.prompt}}, 1.0F,
                                      options.model.seed * 31 + static_cast<uint64_t>(request));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < options.prompt; ++i) {
    ids.push_back(random.data<const uint16_t>()[i] % options.model.vocabulary);
  }
  return ids;
}

/// One stream: a context, a prompt model and a decoding model over the shared weights.
class Generator {
 public:
  Generator(const Options& options, const std::vector<Tensor>& weights)
      : options_(options),
        context_(static_cast<int>(options.device), options.version),
        prefill_(options.model, Phase::kPrefill, weights),
        decode_(options.model, Phase::kDecode, weights),
        cos_(rotary_table(options.model, false)),
        sin_(rotary_table(options.model, true)) {
    context_.set_stream();
  }

  Generation run() {
    if (options_.warmup != "none") warm_up();
    for (int64_t request = 0; request < options_.requests; ++request) {
      new_sequence();
      run_prompt(prompt_ids(options_, request));
      if (request == 0 && options_.exit == "fork") fork_here();
      for (int64_t step = 0; step < options_.steps; ++step) run_step(options_.prompt + step);
    }
    result_.saved_tensors = context_.saved_tensors();
    result_.saved_bytes = context_.saved_bytes();
    return std::move(result_);
  }

 private:
  void new_sequence() {
    const int64_t blocks = (options_.model.positions + kBlockSize - 1) / kBlockSize;
    cache_ = make_cache(options_.model, blocks, kBlockSize);
    // The blocks of the sequence are used from the last to the first, as after some time of serving.
    block_table_.clear();
    for (int64_t block = blocks; block-- > 0;) block_table_.push_back(static_cast<int32_t>(block));
  }

  // As a server tries how much memory the longest prompt takes: nothing of it is printed.
  void warm_up() {
    new_sequence();
    run_prompt(std::vector<int64_t>(static_cast<size_t>(options_.model.positions), 0));
    if (options_.warmup == "all") run_step(options_.model.positions - 1);
    const Status status = result_.status;
    result_ = {};
    result_.status = status;
  }

  void run_prompt(const std::vector<int64_t>& ids) {
    const auto count = static_cast<int64_t>(ids.size());
    std::vector<int64_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    forward(prefill_,
            {make_int64(ids), make_int64(positions), cos_, sin_, slots(0, count),
             make_int32({static_cast<int32_t>(count)}), causal_mask(options_.model.dtype, count)});
  }

  void run_step(int64_t position) {
    if (result_.status != Status::kOk) return;
    const Tensor table = make_int32(block_table_);
    forward(decode_, {make_int64({result_.tokens.back()}), make_int64({position}), cos_, sin_,
                      slots(position, position + 1), make_int32({1}),
                      with_dims(table, {1, table.desc.dims[0]}),
                      make_int32({static_cast<int32_t>(position + 1)})});
  }

  // Where in the cache the tokens of these positions go.
  Tensor slots(int64_t begin, int64_t end) const {
    std::vector<int32_t> result;
    for (int64_t position = begin; position < end; ++position) {
      const int64_t block = block_table_[static_cast<size_t>(position / kBlockSize)];
      result.push_back(static_cast<int32_t>(block * kBlockSize + position % kBlockSize));
    }
    return make_int32(result);
  }

  void forward(Model& model, const std::vector<Tensor>& inputs) {
    if (result_.status != Status::kOk) return;
    const Stopwatch watch;
    std::vector<Tensor> outputs;
    result_.status = model.forward(inputs, cache_, context_, outputs);
    result_.step_ms.push_back(watch.elapsed_us() / 1000);
    if (result_.status != Status::kOk) return;
    for (const std::byte byte : *outputs[0].memory) {
      result_.checksum = (result_.checksum ^ static_cast<uint64_t>(byte)) * 1099511628211U;
    }
    result_.tokens.push_back(outputs[1].data<const int64_t>()[0]);
  }

  void fork_here() {
    const pid_t child = fork();
    if (child < 0) refuse("cannot fork");
    result_.child = child == 0 ? -1 : child;
  }

  const Options& options_;
  Context context_;
  Model prefill_;
  Model decode_;
  Tensor cos_;
  Tensor sin_;
  KvCache cache_;
  std::vector<int32_t> block_table_;
  Generation result_;
};

void print(const Generation& generation, const Options& options) {
  std::printf("%stokens", generation.child == -1 ? "child " : "");
  for (const int64_t token : generation.tokens) std::printf(" %lld", static_cast<long long>(token));
  std::printf("\n%slogits %016llx\n", generation.child == -1 ? "child " : "",
              static_cast<unsigned long long>(generation.checksum));
  if (!options.host_time) return;
  for (size_t i = 0; i < generation.step_ms.size(); ++i) {
    std::fprintf(stderr, "step %zu: %.3f ms\n", i, generation.step_ms[i]);
  }
  std::fprintf(stderr, "offered to the probe: %llu tensors, %llu bytes\n",
               static_cast<unsigned long long>(generation.saved_tensors),
               static_cast<unsigned long long>(generation.saved_bytes));
}

void end(const std::string& how) {
  std::fflush(stdout);
  if (how == "_exit") _exit(0);
  if (how == "kill") raise(SIGKILL);
  if (how == "abort") std::abort();
}

// Everything in this process; returns its exit status.
int generate(const Options& options, const Checkpoint& checkpoint) {
  const std::vector<Tensor> weights = model_weights(options.model, checkpoint);
  std::vector<Generation> results(static_cast<size_t>(options.threads));
  if (options.threads == 1) {
    results[0] = Generator(options, weights).run();
  } else {
    std::vector<std::thread> threads;
    for (Generation& result : results) {
      threads.emplace_back([&] { result = Generator(options, weights).run(); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  if (results[0].child > 0) waitpid(results[0].child, nullptr, 0);
  int exit_status = 0;
  for (const Generation& generation : results) {
    if (options.model.rank == 0) print(generation, options);
    if (generation.status != Status::kOk) {
      std::fprintf(stderr, "atb_host: the library stopped with status %d\n",
                   static_cast<int>(generation.status));
      exit_status = 3;
    }
  }
  end(options.exit);
  return exit_status;
}

// One process a rank, each with a device of its own; returns the first exit status that is not 0.
int generate_on_ranks(Options options, const Checkpoint& checkpoint) {
  Peers peers(options.model.ranks,
              static_cast<size_t>(options.model.positions * options.model.hidden));
  options.model.peers = &peers;
  std::vector<pid_t> processes;
  const int64_t first_device = options.device;
  for (int64_t rank = 0; rank < options.model.ranks; ++rank) {
    options.model.rank = rank;
    options.device = first_device + rank;
    const pid_t process = fork();
    if (process < 0) refuse("cannot fork");
    if (process == 0) return generate(options, checkpoint);
    processes.push_back(process);
  }
  int exit_status = 0;
  for (size_t left = processes.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    const int theirs = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (theirs == 0 || exit_status != 0) continue;
    exit_status = theirs;
    // The others wait for a sum that never comes.
    for (const pid_t process : processes) {
      if (process != ended) kill(process, SIGKILL);
    }
  }
  return exit_status;
}

void save_weights(const Options& options, const Checkpoint& checkpoint) {
  std::vector<std::vector<int64_t>> prompts;
  for (int64_t request = 0; request < options.requests; ++request) {
    prompts.push_back(prompt_ids(options, request));
  }
  if (!save_checkpoint(options.model, checkpoint, prompts, options.save_weights)) {
    refuse("--save-weights: cannot write in '" + options.save_weights + "'");
  }
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = parse(count, arguments);
  const Checkpoint checkpoint = make_checkpoint(options.model);
  if (!options.save_weights.empty()) save_weights(options, checkpoint);
  return options.model.ranks == 1 ? generate(options, checkpoint)
                                  : generate_on_ranks(options, checkpoint);
}
