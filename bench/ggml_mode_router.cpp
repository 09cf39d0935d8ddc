// SPDX-License-Identifier: Apache-2.0
// For measurements: sends the graphs of one process in turn through several probes, so that all of them meet the same
// minutes of the same machine. Preloaded in front of them; each probe is a file of its own, since a library that is loaded once
// has one state.
//
//   LD_PRELOAD="ggml_mode_router.so off.so statistics.so"
//   GGML_ROUTER_MODES   a line a mode: name, kind, file of the probe, its request; tabs between
//                       kinds: none   straight to the engine
//                              probe  through the file's functions, with the request in ASSAY_GGML_DUMP
//                              empty  a callback that wants every node and does nothing: the floor
//                              naive  a callback that sums up every node in a plain loop: the rival
//   GGML_ROUTER_BLOCK   graphs that follow each other in one mode
//   GGML_ROUTER_OUT     a line a graph: mode, nodes, ns of the wall clock and of the thread's processor time since the graph before
//
// The calls are passed on by a jump, so that a probe sees the return address of the host, and our time is not on its stack. The
// first graphs go through the modes one after the other, one each: the probes read their requests.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Compute = int(void* sched, void* graph);
struct Tensor {  // as far as the naive loop needs it; ggml 0.13 to 0.26, x86-64
  int32_t type;
  void* buffer;
  int64_t ne[4];
  size_t nb[4];
  int32_t op;
  int32_t op_params[16];
  int32_t flags;
  Tensor* src[10];
  Tensor* view_src;
  size_t view_offs;
  void* data;
};
using Callback = bool(Tensor*, bool ask, void* user);

struct Mode {
  std::string name;
  std::string kind;
  std::string library;
  std::string request;
  Compute* compute = nullptr;
};

struct Engine {
  Compute* compute = nullptr;
  void (*set_callback)(void*, Callback*, void*) = nullptr;
  int (*nodes)(void*) = nullptr;
};

Engine engine;
std::vector<Mode> modes;
std::vector<size_t> order;  // of the modes in this round
size_t place_in_order = 0;
long left_in_block = 0;
long block = 8;
size_t first_calls = 0;
std::FILE* out = nullptr;
std::mt19937 generator(1);
size_t mode_before = SIZE_MAX;
int nodes_before = 0;
int64_t wall_before = 0;
int64_t thread_before = 0;
volatile double sink = 0;

int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

bool want_all(Tensor*, bool, void*) { return true; }

bool sum_up(Tensor* tensor, bool ask, void*) {
  const auto count = tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
  const Tensor* root = tensor;
  while (root->view_src != nullptr) root = root->view_src;
  // What lies in a cache or has gaps is left out, as we leave it out.
  if (ask || tensor->type != 0 || tensor->data == nullptr || root->op == 0 ||
      tensor->nb[3] * static_cast<size_t>(tensor->ne[3]) != 4 * static_cast<size_t>(count))
    return true;
  const auto* values = static_cast<const float*>(tensor->data);
  double sum = 0;
  double squares = 0;
  float low = INFINITY;
  float high = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
    sum += static_cast<double>(values[i]);
    squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  sink = sum + squares + static_cast<double>(low) + static_cast<double>(high);
  return true;
}

int through_callback(void* sched, void* graph, Callback* callback) {
  engine.set_callback(sched, callback, nullptr);
  const int status = engine.compute(sched, graph);
  engine.set_callback(sched, nullptr, nullptr);
  return status;
}
int compute_empty(void* sched, void* graph) { return through_callback(sched, graph, want_all); }
int compute_naive(void* sched, void* graph) { return through_callback(sched, graph, sum_up); }

template <typename Function>
void find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function != nullptr) return;
  std::fprintf(stderr, "mode router: no %s\n", name);
  std::abort();
}

constexpr const char* kComputeName = "ggml_backend_sched_graph_compute_async";

void set_up(void* caller) {
  Dl_info info{};
  dladdr(caller, &info);
  void* host = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  find(host, kComputeName, &engine.compute);
  find(host, "ggml_backend_sched_set_eval_callback", &engine.set_callback);
  find(host, "ggml_graph_n_nodes", &engine.nodes);
  std::istringstream lines(std::getenv("GGML_ROUTER_MODES"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Mode mode;
    std::getline(words, mode.name, '\t');
    std::getline(words, mode.kind, '\t');
    std::getline(words, mode.library, '\t');
    std::getline(words, mode.request, '\t');
    mode.compute = mode.kind == "empty"   ? compute_empty
                   : mode.kind == "naive" ? compute_naive
                                          : engine.compute;
    if (mode.kind == "probe")
      find(dlopen(mode.library.c_str(), RTLD_LAZY), kComputeName, &mode.compute);
    order.push_back(modes.size());
    modes.push_back(std::move(mode));
  }
  if (const char* text = std::getenv("GGML_ROUTER_BLOCK")) block = std::atol(text);
  out = std::fopen(std::getenv("GGML_ROUTER_OUT"), "w");
  if (out == nullptr || modes.empty()) std::abort();
}

size_t next_mode() {
  if (first_calls < modes.size()) {
    const Mode& mode = modes[first_calls];
    if (mode.request.empty()) {
      unsetenv("ASSAY_GGML_DUMP");
    } else {
      setenv("ASSAY_GGML_DUMP", mode.request.c_str(), 1);
    }
    return first_calls++;
  }
  if (left_in_block-- == 0) {
    left_in_block = block - 1;
    if (++place_in_order >= order.size()) {
      place_in_order = 0;
      std::shuffle(order.begin(), order.end(), generator);
    }
  }
  return order[place_in_order];
}

Compute* route(void* graph, void* caller) {
  if (modes.empty()) set_up(caller);
  const int64_t wall = nanoseconds(CLOCK_MONOTONIC);
  const int64_t thread = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  if (mode_before != SIZE_MAX) {
    std::fprintf(out, "%s\t%d\t%lld\t%lld\n", modes[mode_before].name.c_str(), nodes_before,
                 static_cast<long long>(wall - wall_before),
                 static_cast<long long>(thread - thread_before));
    std::fflush(out);
  }
  mode_before = next_mode();
  nodes_before = engine.nodes(graph);
  wall_before = nanoseconds(CLOCK_MONOTONIC);
  thread_before = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  return modes[mode_before].compute;
}

}  // namespace

// The last call has to be a jump: without optimisation it would be a call with our return address.
extern "C" __attribute__((visibility("default"), optimize("O2"))) int
ggml_backend_sched_graph_compute_async(void* sched, void* graph) {
  return route(graph, __builtin_return_address(0))(sched, graph);
}
