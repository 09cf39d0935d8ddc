// SPDX-License-Identifier: Apache-2.0
// The simplest probe of ggml that works: preloaded, it copies every computed node of every graph. An oracle for tests: it
// shares nothing with ours, and compiles in the layout of `struct ggml_tensor` that their engines have. The host must not
// set a callback of its own.
//
// $GGML_NAIVE_OUT.txt has a line a node, tabs between: graph, index, name, operator, type, ne (4, commas), bytes, offset, names of
// the sources (|). $GGML_NAIVE_OUT.bin has the bytes, of contiguous host tensors; others have -1 for the offset.
#include <dlfcn.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

struct Tensor {  // ggml 0.13 to 0.26, x86-64
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
  char name[64];
  void* extra;
};
static_assert(sizeof(Tensor) == 328);  // and eight bytes of padding
constexpr int32_t kComputed = 16;      // flag

using Compute = int(void* sched, void* graph);
using Callback = bool(Tensor*, bool ask, void* user);

struct Engine {
  Compute* compute_async;
  void (*set_callback)(void*, Callback*, void*);
  const char* (*op_name)(int32_t);
  const char* (*type_name)(int32_t);
  size_t (*bytes)(const Tensor*);
  bool (*is_contiguous)(const Tensor*);
};

std::mutex mutex;
std::FILE* lines = nullptr;
std::FILE* payload = nullptr;
long graphs = 0;

// In the library of the caller and what it depends on: what a Python extension loads is in no common name space.
void* find(void* caller, const char* name) {
  Dl_info of_caller{};
  dladdr(caller, &of_caller);
  void* library = dlopen(of_caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  Dl_info own{};
  Dl_info of_found{};
  dladdr(reinterpret_cast<void*>(&find), &own);
  if (found == nullptr || (dladdr(found, &of_found) != 0 && of_found.dli_fbase == own.dli_fbase)) {
    found = dlsym(RTLD_NEXT, name);
  }
  if (found == nullptr) {
    std::fprintf(stderr, "naive probe: no %s\n", name);
    std::abort();
  }
  return found;
}

struct Graph {
  const Engine* engine;
  long number;
  int index;
};

bool on_node(Tensor* tensor, bool ask, void* user) {
  auto& graph = *static_cast<Graph*>(user);
  if (ask) return true;
  const int index = graph.index++;
  if ((tensor->flags & kComputed) == 0) return true;
  std::string sources;
  for (const Tensor* source : tensor->src) {
    if (source != nullptr) sources += (sources.empty() ? "" : "|") + std::string(source->name);
  }
  const std::lock_guard lock(mutex);
  const size_t bytes = graph.engine->bytes(tensor);
  long offset = -1;
  if (graph.engine->is_contiguous(tensor) && tensor->data != nullptr) {
    offset = std::ftell(payload);
    std::fwrite(tensor->data, 1, bytes, payload);
  }
  std::fprintf(
      lines, "%ld\t%d\t%s\t%s\t%s\t%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\t%zu\t%ld\t%s\n",
      graph.number, index, tensor->name, graph.engine->op_name(tensor->op),
      graph.engine->type_name(tensor->type), tensor->ne[0], tensor->ne[1], tensor->ne[2],
      tensor->ne[3], bytes, offset, sources.c_str());
  return true;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int ggml_backend_sched_graph_compute_async(
    void* sched, void* graph) {
  void* caller = __builtin_return_address(0);
  const auto function = [&]<typename T>(T*& out, const char* name) {
    out = reinterpret_cast<T*>(find(caller, name));
  };
  Engine engine{};
  function(engine.compute_async, "ggml_backend_sched_graph_compute_async");
  function(engine.set_callback, "ggml_backend_sched_set_eval_callback");
  function(engine.op_name, "ggml_op_name");
  function(engine.type_name, "ggml_type_name");
  function(engine.bytes, "ggml_nbytes");
  function(engine.is_contiguous, "ggml_is_contiguous");
  Graph state{&engine, 0, 0};
  {
    const std::lock_guard lock(mutex);
    if (lines == nullptr) {
      const char* out = std::getenv("GGML_NAIVE_OUT");
      if (out == nullptr) return engine.compute_async(sched, graph);
      lines = std::fopen((std::string(out) + ".txt").c_str(), "w");
      payload = std::fopen((std::string(out) + ".bin").c_str(), "wb");
      if (lines == nullptr || payload == nullptr) std::abort();
    }
    state.number = graphs++;
  }
  engine.set_callback(sched, &on_node, &state);
  const int status = engine.compute_async(sched, graph);
  engine.set_callback(sched, nullptr, nullptr);
  const std::lock_guard lock(mutex);
  std::fflush(lines);
  std::fflush(payload);
  return status;
}
