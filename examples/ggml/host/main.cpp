// SPDX-License-Identifier: Apache-2.0
// Generates a few tokens with a small random Llama through ggml's scheduler, in the ways that programs use it: one or
// several back ends, schedulers and threads, graphs reused or not, callbacks of its own. Prints the tokens and checksums:
// the same with and without a probe.
#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "model.h"

namespace {

using namespace ggml_host;

constexpr const char* kUsage = R"(usage: ggml_host [options]
  --layers N --hidden N --heads N --kv-heads N --intermediate N --vocab N --cells N --seed N
                     sizes of the model (2 64 4 2 128 96 32 1)
  --type T           of the matrices: f32 (default), f16, q4_0, q8_0
  --rope-mode N      0: neighbours are pairs (default), 2: halves of a head
  --prompt N         tokens of the prompt (5); --steps N: graphs after it, of one token each (3)
  --compute HOW      async (default), sync, or direct: without the scheduler, where no callback exists
  --rebuild          a new graph for each step; otherwise one is reused
  --backends N       CPU back ends of the scheduler (1)
  --parallel         inputs in several copies, as for pipelines
  --split            the second and later layers run on the second back end
  --cpu-threads N    of the engine (1)
  --threads N        threads of the host, each with schedulers of its own (1)
  --schedulers N     in each thread, computing in turn (1); each has a model, of seed, seed + 1 ...
  --runs N           times that each thread begins anew with new schedulers (1)
  --callback HOW     none (default); watch: asks for the nodes l_out-*; all: for every node;
                     cancel: as watch, and stops the graph at l_out-0
  --logits FILE      float32, in the order of the printed lines, each of the vocabulary's size
  --time             median of a step in microseconds, on stderr
  --paired           every second step calls the engine's own function past whoever interposed it;
                     --time then prints both and the median of the differences of neighbours
  --no-compute       only loads the engine
)";

struct Options {
  Sizes sizes;
  int64_t prompt = 5, steps = 3, backends = 1, cpu_threads = 1, threads = 1, schedulers = 1,
          runs = 1;
  bool parallel = false, split = false, rebuild = false, time = false, compute = true,
       paired = false;
  std::string_view how = "async", callback = "none", logits;
};

int type_number(std::string_view name) {
  constexpr std::pair<std::string_view, int> kTypes[] = {
      {"f32", 0}, {"f16", 1}, {"q4_0", 2}, {"q8_0", 8}};
  for (const auto& [known, number] : kTypes) {
    if (known == name) {
      return number;
    }
  }
  throw std::invalid_argument("no type " + std::string(name));
}

int64_t whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) {
    throw std::invalid_argument("no whole number: " + std::string(text));
  }
  return number;
}

std::string_view one_of(std::string_view text, std::initializer_list<std::string_view> known) {
  if (std::find(known.begin(), known.end(), text) == known.end()) {
    throw std::invalid_argument("unknown choice " + std::string(text));
  }
  return text;
}

Options parse(int count, char** arguments) {
  Options options;
  const std::pair<std::string_view, int64_t*> numbers[] = {
      {"--layers", &options.sizes.layers},
      {"--hidden", &options.sizes.hidden},
      {"--heads", &options.sizes.heads},
      {"--kv-heads", &options.sizes.kv_heads},
      {"--intermediate", &options.sizes.intermediate},
      {"--vocab", &options.sizes.vocab},
      {"--cells", &options.sizes.cells},
      {"--prompt", &options.prompt},
      {"--steps", &options.steps},
      {"--backends", &options.backends},
      {"--cpu-threads", &options.cpu_threads},
      {"--threads", &options.threads},
      {"--schedulers", &options.schedulers},
      {"--runs", &options.runs},
  };
  const std::pair<std::string_view, bool*> flags[] = {{"--parallel", &options.parallel},
                                                      {"--split", &options.split},
                                                      {"--rebuild", &options.rebuild},
                                                      {"--time", &options.time},
                                                      {"--paired", &options.paired}};
  for (int i = 1; i < count; ++i) {
    const std::string_view option = arguments[i];
    const auto value = [&]() -> std::string_view {
      if (++i == count) {
        throw std::invalid_argument(std::string(option) + " needs a value");
      }
      return arguments[i];
    };
    const auto number = std::find_if(std::begin(numbers), std::end(numbers),
                                     [&](auto& n) { return n.first == option; });
    const auto flag = std::find_if(std::begin(flags), std::end(flags),
                                   [&](auto& f) { return f.first == option; });
    if (number != std::end(numbers)) {
      *number->second = whole_number(value());
    } else if (flag != std::end(flags)) {
      *flag->second = true;
    } else if (option == "--seed") {
      options.sizes.seed = static_cast<uint64_t>(whole_number(value()));
    } else if (option == "--rope-mode") {
      options.sizes.rope_mode = static_cast<int>(whole_number(value()));
    } else if (option == "--type") {
      options.sizes.weight_type = type_number(value());
    } else if (option == "--compute") {
      options.how = one_of(value(), {"async", "sync", "direct"});
    } else if (option == "--callback") {
      options.callback = one_of(value(), {"none", "watch", "all", "cancel"});
    } else if (option == "--logits") {
      options.logits = value();
    } else if (option == "--no-compute") {
      options.compute = false;
    } else {
      throw std::invalid_argument("unknown option " + std::string(option));
    }
  }
  if (options.prompt < 1 || options.prompt + options.steps > options.sizes.cells) {
    throw std::invalid_argument("prompt and steps do not fit into the cells");
  }
  if (options.backends < 1 || (options.split && options.backends < 2)) {
    throw std::invalid_argument("--split needs two back ends");
  }
  return options;
}

void append(std::string& text, const char* format, auto... values) {
  char line[256];
  const int size = std::snprintf(line, sizeof line, format, values...);
  text.append(line, static_cast<size_t>(std::min<int>(size, sizeof line - 1)));
}

// The host's own callback: what it was asked and what it was given.
struct Watch {
  std::string_view how;
  std::string* log;
  int64_t asked = 0;
  uint64_t order = 0;  // over the names of all asks

  bool wants(std::string_view name) const { return how == "all" || name.starts_with("l_out-"); }

  static bool call(ggml_tensor* tensor, bool ask, void* user_data) {
    auto& watch = *static_cast<Watch*>(user_data);
    const std::string_view name = ggml_get_name(tensor);
    if (ask) {
      ++watch.asked;
      watch.order = watch.order * 31 + fnv1a(name.data(), name.size());
      return watch.wants(name);
    }
    std::vector<char> bytes(ggml_nbytes(tensor));
    ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
    append(*watch.log, "node %s %016" PRIx64 "\n", ggml_get_name(tensor),
           fnv1a(bytes.data(), bytes.size()));
    return !(watch.how == "cancel" && name == "l_out-0");
  }
};

using Compute = int(ggml_backend_sched*, ggml_cgraph*);

// The function in the engine's own library, whatever a preloaded one has put before it.
Compute* engines_own_compute() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&ggml_backend_sched_new), &info) != 0) {
    if (void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
      if (void* found = dlsym(library, "ggml_backend_sched_graph_compute_async")) {
        return reinterpret_cast<Compute*>(found);
      }
    }
  }
  throw std::runtime_error("the engine's library was not found");
}

struct Freed {
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
  void operator()(ggml_backend_sched* scheduler) const { ggml_backend_sched_free(scheduler); }
};

// A model, its text so far, and the scheduler that computes it.
class Session {
 public:
  Session(const Options& options, const Sizes& sizes, std::string& log)
      : options_(options), log_(log), watch_{options.callback, &log} {
    std::vector<ggml_backend*> pointers;
    for (int64_t i = 0; i < options.backends; ++i) {
      backends_.emplace_back(ggml_backend_cpu_init());
      ggml_backend_cpu_set_n_threads(backends_.back().get(), static_cast<int>(options.cpu_threads));
      pointers.push_back(backends_.back().get());
    }
    // A scheduler moves nodes to the first back end with the same type of buffer, so the second gets another type: that of
    // mapped files, as good as any on the CPU.
    std::vector<ggml_backend_buffer_type*> buffer_types(pointers.size(),
                                                        ggml_backend_cpu_buffer_type());
    if (options.split) {
      alignas(64) static char nothing[64];
      ggml_backend_buffer* mapped = ggml_backend_cpu_buffer_from_ptr(nothing, sizeof nothing);
      std::fill(buffer_types.begin() + 1, buffer_types.end(), ggml_backend_buffer_get_type(mapped));
      ggml_backend_buffer_free(mapped);
    }
    model_ = std::make_unique<Model>(sizes, pointers.front());
    scheduler_.reset(ggml_backend_sched_new(pointers.data(), buffer_types.data(),
                                            static_cast<int>(pointers.size()), 4096,
                                            options.parallel, true));
    if (options.callback != "none") {
      ggml_backend_sched_set_eval_callback(scheduler_.get(), &Watch::call, &watch_);
    }
    for (int64_t i = 0; i < options.prompt; ++i) {
      next_.push_back(static_cast<int32_t>((3 + 7 * i) % options.sizes.vocab));
    }
  }

  // One graph: the prompt first, then a token each. Logits go behind `logits`.
  void step(int64_t number, std::vector<float>& logits, std::vector<double>& microseconds) {
    const auto count = static_cast<int64_t>(next_.size());
    if (graph_ == nullptr || options_.rebuild || count != graph_tokens_) {
      ggml_backend_sched_reset(scheduler_.get());
      graph_ = std::make_unique<Graph>(*model_, count);
      graph_tokens_ = count;
      if (options_.split && graph_->first_node_of_layer_1 > 0) {
        for (int i = graph_->first_node_of_layer_1; i < ggml_graph_n_nodes(graph_->graph); ++i) {
          ggml_backend_sched_set_tensor_backend(scheduler_.get(), ggml_graph_node(graph_->graph, i),
                                                backends_[1].get());
        }
      }
      if (!ggml_backend_sched_alloc_graph(scheduler_.get(), graph_->graph)) {
        throw std::runtime_error("no memory for the graph");
      }
    }
    graph_->set_inputs(next_, position_);
    const auto begin = std::chrono::steady_clock::now();
    int status = 0;
    if (options_.how == "async") {
      status = options_.paired && number % 2 == 1
                   ? direct_(scheduler_.get(), graph_->graph)
                   : ggml_backend_sched_graph_compute_async(scheduler_.get(), graph_->graph);
      ggml_backend_sched_synchronize(scheduler_.get());
    } else if (options_.how == "sync") {
      status = ggml_backend_sched_graph_compute(scheduler_.get(), graph_->graph);
    } else {
      status = ggml_backend_graph_compute(backends_.front().get(), graph_->graph);
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (number > 0) {
      microseconds.push_back(took.count());
    }
    position_ += count;

    if (options_.callback == "cancel") {  // what follows the node was never computed
      append(log_, "step %" PRId64 " status %d nodes %d\n", number, status,
             ggml_graph_n_nodes(graph_->graph));
      next_.assign(1, 1);
      return;
    }
    const std::vector<float> values = graph_->logits();
    const auto token =
        static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
    append(log_, "step %" PRId64 " status %d nodes %d splits %d token %d logits %016" PRIx64 "\n",
           number, status, ggml_graph_n_nodes(graph_->graph),
           ggml_backend_sched_get_n_splits(scheduler_.get()), token,
           fnv1a(values.data(), values.size() * sizeof(float)));
    logits.insert(logits.end(), values.begin(), values.end());
    next_.assign(1, token);
  }

  void report() {
    if (watch_.asked > 0) {
      append(log_, "asked %" PRId64 " %016" PRIx64 "\n", watch_.asked, watch_.order);
    }
  }

 private:
  const Options& options_;
  std::string& log_;
  Watch watch_;
  std::vector<std::unique_ptr<ggml_backend, Freed>> backends_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ggml_backend_sched, Freed> scheduler_;
  std::unique_ptr<Graph> graph_;
  Compute* direct_ = engines_own_compute();
  int64_t graph_tokens_ = 0;
  int64_t position_ = 0;
  std::vector<int32_t> next_;
};

struct Result {
  std::string log;
  std::vector<float> logits;
  std::vector<double> microseconds;
  std::string error;
};

void run_thread(const Options& options, int64_t thread, Result& result) {
  try {
    for (int64_t run = 0; run < options.runs; ++run) {
      std::vector<std::unique_ptr<Session>> sessions;
      for (int64_t i = 0; i < options.schedulers; ++i) {
        // Other weights for each, so that a mix-up shows.
        Sizes sizes = options.sizes;
        sizes.seed += static_cast<uint64_t>(thread * options.schedulers + i);
        sessions.push_back(std::make_unique<Session>(options, sizes, result.log));
      }
      for (int64_t step = 0; step <= options.steps; ++step) {
        for (const auto& session : sessions) {
          session->step(step, result.logits, result.microseconds);
        }
      }
      for (const auto& session : sessions) {
        session->report();
      }
    }
  } catch (const std::exception& error) {
    result.error = error.what();
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// With `paired` the times are those of direct calls and of calls by name in turn.
void print_times(const std::vector<double>& times, bool paired) {
  if (!paired || times.size() < 2) {
    std::fprintf(stderr, "step time: %.2f us\n", median(times));
    return;
  }
  std::vector<double> direct;
  std::vector<double> by_name;
  std::vector<double> difference;
  for (size_t i = 0; i + 1 < times.size(); i += 2) {
    direct.push_back(times[i]);
    by_name.push_back(times[i + 1]);
    difference.push_back(times[i + 1] - times[i]);
  }
  std::fprintf(stderr, "step time: direct %.2f us, by name %.2f us, difference %.3f us\n",
               median(direct), median(by_name), median(difference));
}

int run(const Options& options) {
  std::printf("ggml %s\n", ggml_version());
  if (!options.compute) {
    return 0;
  }
  std::vector<Result> results(static_cast<size_t>(options.threads));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < results.size(); ++i) {
      threads.emplace_back(run_thread, std::cref(options), static_cast<int64_t>(i),
                           std::ref(results[i]));
    }
    run_thread(options, 0, results[0]);
  }
  std::FILE* file =
      options.logits.empty() ? nullptr : std::fopen(std::string(options.logits).c_str(), "wb");
  if (!options.logits.empty() && file == nullptr) {
    throw std::runtime_error("cannot write " + std::string(options.logits));
  }
  std::vector<double> times;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].error.empty()) {
      throw std::runtime_error(results[i].error);
    }
    std::printf("thread %zu\n%s", i, results[i].log.c_str());
    if (file != nullptr) {
      std::fwrite(results[i].logits.data(), sizeof(float), results[i].logits.size(), file);
    }
    times.insert(times.end(), results[i].microseconds.begin(), results[i].microseconds.end());
  }
  if (file != nullptr && std::fclose(file) != 0) {
    throw std::runtime_error("cannot write " + std::string(options.logits));
  }
  if (options.time && !times.empty()) {
    print_times(times, options.paired);
  }
  return 0;
}

}  // namespace

// Also called from the library that has the same code: a program that loads it has one engine more.
extern "C" __attribute__((visibility("default"))) int ggml_host_main(int count, char** arguments) {
  if (count == 2 && std::string_view(arguments[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    const int status = run(parse(count, arguments));
    std::fflush(stdout);
    return status;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "ggml_host: %s\n%s", error.what(), kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ggml_host: %s\n", error.what());
    return 1;
  }
}

int main(int count, char** arguments) { return ggml_host_main(count, arguments); }
