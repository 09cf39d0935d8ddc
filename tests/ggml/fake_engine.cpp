// SPDX-License-Identifier: Apache-2.0
// A ggml of a future or a past that does not exist: the same functions over a tensor whose fields lie elsewhere, with other
// operator numbers. Whoever measures the layout reads it right; whoever compiled one in reads rubbish.
//
// FAKE_ENGINE   SHUFFLED   measurable
//               AMBIGUOUS  holds its sizes twice: which of them counts cannot be told
//               OLD        has no ggml_op_desc
//
// Like ggml's scheduler it computes all nodes up to the next one that is wanted in one go, and there leaves out a norm whose
// only reader follows it. With $FAKE_SWAPPED_CALL=N, compute call N (from 0) has the first node of the graph two places later.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fake_engine.h"

#define SHUFFLED 1
#define AMBIGUOUS 2
#define OLD 3

enum : int32_t { kTypeF32 = 0, kTypeF16 = 1, kTypeI32 = 26 };
enum : int32_t { kNone = 0, kAdd = 7, kView = 5, kRmsNorm = 3 };

struct ggml_tensor {
  char name[48];
  void* extra;
  void* data;
  int32_t flags;
  int32_t type;
  size_t nb[4];
#if FAKE_ENGINE == AMBIGUOUS
  int64_t logical_ne[4];
#endif
  int64_t ne[4];
  ggml_tensor* src[12];
  ggml_tensor* view_src;
  int32_t op_params[16];
  int32_t op;
  ggml_backend_buffer* buffer;
  size_t view_offs;
};
struct ggml_context {
  std::vector<char> arena;
  size_t used = 0;
};
struct ggml_cgraph {
  std::vector<ggml_tensor*> nodes;
};
struct ggml_backend_buffer {
  void* memory;
};
struct ggml_backend_sched {
  bool (*callback)(ggml_tensor*, bool, void*) = nullptr;
  void* user = nullptr;
  int calls = 0;
  int starts = 0;  // of threads, if it had any
};

namespace {

ggml_tensor* new_node(ggml_context* context, int32_t op, ggml_tensor* a, ggml_tensor* b,
                      const int64_t* ne) {
  ggml_tensor* node = ggml_new_tensor_4d(context, a->type, ne[0], ne[1], ne[2], ne[3]);
  node->op = op;
  node->src[0] = a;
  node->src[1] = b;
  return node;
}

void compute(ggml_tensor* node) {
  const auto count = static_cast<size_t>(ggml_nelements(node));
  auto* out = static_cast<float*>(node->data);
  if (node->op == kAdd) {
    const auto *a = static_cast<float*>(node->src[0]->data),
               *b = static_cast<float*>(node->src[1]->data);
    for (size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
  } else if (node->op == kRmsNorm) {
    float epsilon = 0;
    std::memcpy(&epsilon, node->op_params, sizeof epsilon);
    const auto row = static_cast<size_t>(node->ne[0]);
    const auto* x = static_cast<float*>(node->src[0]->data);
    for (size_t begin = 0; begin < count; begin += row) {
      double squares = 0;
      for (size_t i = begin; i < begin + row; ++i) squares += static_cast<double>(x[i]) * x[i];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(row) + epsilon);
      for (size_t i = begin; i < begin + row; ++i) out[i] = static_cast<float>(x[i] * scale);
    }
  }
}

using Nodes = std::vector<ggml_tensor*>;

// A norm that is added to its own input in the next node and read by none else, of the graph: never put into memory.
bool is_fused(const ggml_cgraph& graph, const Nodes& range, size_t index) {
  ggml_tensor* norm = range[index];
  if (norm->op != kRmsNorm || index + 1 == range.size()) return false;
  const ggml_tensor* next = range[index + 1];
  int readers = 0;
  for (const ggml_tensor* node : graph.nodes) {
    for (const ggml_tensor* source : node->src) readers += source == norm;
  }
  return readers == 1 && next->op == kAdd && next->src[0] == norm;
}

void compute_range(const ggml_cgraph& graph, const Nodes& range) {
  for (size_t i = 0; i < range.size(); ++i) {
    if (!is_fused(graph, range, i)) {
      compute(range[i]);
      continue;
    }
    ggml_tensor* sum = range[++i];
    std::vector<float> elsewhere(static_cast<size_t>(ggml_nelements(sum)));
    void* const memory = sum->src[0]->data;
    sum->src[0]->data = elsewhere.data();
    compute(sum->src[0]);
    compute(sum);
    sum->src[0]->data = memory;
  }
}

Nodes order_of(const ggml_cgraph& graph, int call) {
  Nodes nodes = graph.nodes;
  const char* swapped = std::getenv("FAKE_SWAPPED_CALL");
  if (swapped != nullptr && std::atoi(swapped) == call && nodes.size() > 2)
    std::rotate(nodes.begin(), nodes.begin() + 1, nodes.begin() + 3);
  return nodes;
}

}  // namespace

extern "C" {

const char* ggml_version() { return "9.9.9-fake"; }
ggml_context* ggml_init(ggml_init_params params) {
  auto* context = new ggml_context;
  context->arena.resize(params.mem_size);
  return context;
}
void ggml_free(ggml_context* context) { delete context; }
ggml_tensor* ggml_new_tensor_4d(ggml_context* context, int type, int64_t ne0, int64_t ne1,
                                int64_t ne2, int64_t ne3) {
  constexpr size_t kHeader = 16;
  constexpr size_t kRecord = kHeader + (sizeof(ggml_tensor) + 15) / 16 * 16;
  if (context->used + kRecord > context->arena.size()) return nullptr;
  auto* tensor = new (context->arena.data() + context->used + kHeader) ggml_tensor{};
  context->used += kRecord;
  const int64_t ne[4] = {ne0, ne1, ne2, ne3};
  tensor->type = type;
  size_t stride = ggml_type_size(type);
  for (int i = 0; i < 4; ++i) {
    tensor->ne[i] = ne[i];
#if FAKE_ENGINE == AMBIGUOUS
    tensor->logical_ne[i] = ne[i];
#endif
    tensor->nb[i] = stride;
    stride *= static_cast<size_t>(ne[i]);
  }
  return tensor;
}
ggml_tensor* ggml_rms_norm(ggml_context* context, ggml_tensor* x, float epsilon) {
  ggml_tensor* node = new_node(context, kRmsNorm, x, nullptr, x->ne);
  std::memcpy(node->op_params, &epsilon, sizeof epsilon);
  return node;
}
ggml_tensor* ggml_add(ggml_context* context, ggml_tensor* a, ggml_tensor* b) {
  return new_node(context, kAdd, a, b, a->ne);
}
ggml_tensor* ggml_view_1d(ggml_context* context, ggml_tensor* x, int64_t count, size_t offset) {
  const int64_t ne[4] = {count, 1, 1, 1};
  ggml_tensor* node = new_node(context, kView, x, nullptr, ne);
  node->view_src = x;
  node->view_offs = offset;
  std::memcpy(node->op_params, &offset, sizeof offset);
  std::strcpy(node->name, (std::string(x->name) + " (view)").c_str());
  if (x->data != nullptr) node->data = static_cast<char*>(x->data) + offset;
  return node;
}
void ggml_set_output(ggml_tensor* tensor) { tensor->flags |= 2; }
ggml_tensor* ggml_set_name(ggml_tensor* tensor, const char* name) {
  std::strncpy(tensor->name, name, sizeof tensor->name - 1);
  return tensor;
}
const char* ggml_get_name(const ggml_tensor* tensor) { return tensor->name; }
const char* ggml_op_name(int op) {
  return op == kAdd       ? "ADD"
         : op == kView    ? "VIEW"
         : op == kRmsNorm ? "RMS_NORM"
         : op == kNone    ? "NONE"
                          : "X";
}
#if FAKE_ENGINE != OLD
const char* ggml_op_desc(const ggml_tensor* tensor) { return ggml_op_name(tensor->op); }
#endif
int ggml_get_unary_op(const ggml_tensor*) { return 0; }
const char* ggml_unary_op_name(int) { return "ABS"; }
size_t ggml_nbytes(const ggml_tensor* tensor) {
  return static_cast<size_t>(ggml_nelements(tensor)) * ggml_type_size(tensor->type);
}
int64_t ggml_nelements(const ggml_tensor* tensor) {
  return tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
}
bool ggml_is_contiguous(const ggml_tensor*) { return true; }
const char* ggml_type_name(int type) {
  return type == kTypeF16 ? "f16" : type == kTypeI32 ? "i32" : "f32";
}
size_t ggml_type_size(int type) { return type == kTypeF16 ? 2 : 4; }
int64_t ggml_blck_size(int) { return 1; }
int ggml_graph_n_nodes(ggml_cgraph* graph) { return static_cast<int>(graph->nodes.size()); }
ggml_tensor* ggml_graph_node(ggml_cgraph* graph, int index) {
  return graph->nodes[static_cast<size_t>(index)];
}

ggml_backend_buffer* ggml_backend_cpu_buffer_from_ptr(void* memory, size_t) {
  return new ggml_backend_buffer{memory};
}
int ggml_backend_tensor_alloc(ggml_backend_buffer* buffer, ggml_tensor* tensor, void* address) {
  tensor->buffer = buffer;
  tensor->data = address;
  return 0;
}
void ggml_backend_buffer_free(ggml_backend_buffer* buffer) { delete buffer; }
void ggml_backend_tensor_get(const ggml_tensor* tensor, void* out, size_t offset, size_t size) {
  std::memcpy(out, static_cast<const char*>(tensor->data) + offset, size);
}
bool ggml_backend_buffer_is_host(ggml_backend_buffer*) { return true; }
const char* ggml_backend_buffer_name(ggml_backend_buffer*) { return "CPU"; }

void ggml_backend_sched_set_eval_callback(ggml_backend_sched* sched,
                                          bool (*callback)(ggml_tensor*, bool, void*), void* user) {
  sched->callback = callback;
  sched->user = user;
}
int ggml_backend_sched_graph_compute_async(ggml_backend_sched* sched, ggml_cgraph* graph) {
  Nodes range;
  const Nodes nodes = order_of(*graph, sched->calls++);
  for (ggml_tensor* node : nodes) {
    range.push_back(node);
    const bool wanted = sched->callback != nullptr && sched->callback(node, true, sched->user);
    if (!wanted && node != nodes.back()) continue;
    ++sched->starts;
    compute_range(*graph, range);
    range.clear();
    if (wanted && !sched->callback(node, false, sched->user)) break;
  }
  return 0;
}
int ggml_backend_sched_graph_compute(ggml_backend_sched* sched, ggml_cgraph* graph) {
  return ggml_backend_sched_graph_compute_async(sched, graph);
}
int ggml_backend_graph_compute(void*, ggml_cgraph* graph) {
  for (ggml_tensor* node : graph->nodes) compute(node);
  return 0;
}
void ggml_backend_sched_free(ggml_backend_sched* sched) { delete sched; }

ggml_backend_sched* fake_sched_new() { return new ggml_backend_sched; }
int fake_sched_starts(const ggml_backend_sched* sched) { return sched->starts; }
ggml_cgraph* fake_graph_new() { return new ggml_cgraph; }
void fake_graph_free(ggml_cgraph* graph) { delete graph; }
void fake_graph_add(ggml_cgraph* graph, ggml_tensor* node) { graph->nodes.push_back(node); }
}
