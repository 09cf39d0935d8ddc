// SPDX-License-Identifier: Apache-2.0
// A ggml engine of a hundred lines for tests: the constructors that a layout is measured with, over
// a tensor whose fields lie elsewhere than in any known version. Compiled once for each order of
// the fields; never loaded by a program.
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

constexpr int kRmsNorm = 41;
constexpr int kAdd = 7;
constexpr int kView = 90;

struct Tensor {
#if ASSAY_FAKE_ORDER == 0
  char name[48];
  int64_t ne[4];
  int32_t flags;
  int32_t op;
  void* buffer;
  int32_t op_params[16];
  Tensor* src[6];
  Tensor* view_src;
  int32_t type;
  size_t nb[4];
  void* data;
  size_t view_offs;
#else  // the sources and the viewed tensor lie apart: their number cannot be told
  int32_t type;
  Tensor* view_src;
  int64_t ne[4];
  size_t nb[4];
  int32_t op;
  int32_t op_params[16];
  int32_t flags;
  Tensor* src[10];
  void* buffer;
  size_t view_offs;
  void* data;
  char name[64];
#endif
};

struct Context {
  char* next;
};
Context context;

size_t bytes_of_type(int type) { return type == 1 ? 2 : 4; }

Tensor* new_tensor(int type, int64_t a, int64_t b, int64_t c, int64_t d) {
  auto* tensor = reinterpret_cast<Tensor*>(context.next);
  context.next += (sizeof(Tensor) + 32 + 15) / 16 * 16;
  *tensor = {};
  tensor->type = type;
  const int64_t ne[4] = {a, b, c, d};
  std::memcpy(tensor->ne, ne, sizeof(ne));
  tensor->nb[0] = bytes_of_type(type);
  for (int i = 1; i < 4; ++i) tensor->nb[i] = tensor->nb[i - 1] * static_cast<size_t>(ne[i - 1]);
  return tensor;
}

}  // namespace

extern "C" {

struct InitParameters {
  size_t size;
  void* memory;
  bool no_alloc;
};

void* ggml_init(InitParameters parameters) {
  context.next = static_cast<char*>(parameters.memory) + 32;
  return &context;
}
void ggml_free(void*) {}
Tensor* ggml_new_tensor_4d(void*, int type, int64_t a, int64_t b, int64_t c, int64_t d) {
  return new_tensor(type, a, b, c, d);
}
Tensor* ggml_rms_norm(void*, Tensor* a, float eps) {
  Tensor* result = new_tensor(a->type, a->ne[0], a->ne[1], a->ne[2], a->ne[3]);
  result->op = kRmsNorm;
  std::memcpy(result->op_params, &eps, sizeof(eps));
  result->src[0] = a;
  return result;
}
Tensor* ggml_add(void*, Tensor* a, Tensor* b) {
  Tensor* result = new_tensor(a->type, a->ne[0], a->ne[1], a->ne[2], a->ne[3]);
  result->op = kAdd;
  result->src[0] = a;
  result->src[1] = b;
  return result;
}
Tensor* ggml_view_1d(void*, Tensor* a, int64_t count, size_t offset) {
  Tensor* result = new_tensor(a->type, count, 1, 1, 1);
  result->op = kView;
  std::memcpy(result->op_params, &offset, sizeof(offset));
  result->src[0] = a;
  result->view_src = a;
  result->view_offs = offset;
  return result;
}
void ggml_set_output(Tensor* tensor) { tensor->flags |= 2; }
Tensor* ggml_set_name(Tensor* tensor, const char* name) {
  std::snprintf(tensor->name, sizeof(tensor->name), "%s", name);
  return tensor;
}
const char* ggml_get_name(const Tensor* tensor) { return tensor->name; }
const char* ggml_op_name(int op) {
  return op == kRmsNorm ? "RMS_NORM" : op == kAdd ? "ADD" : "VIEW";
}
size_t ggml_nbytes(const Tensor* t) { return t->nb[3] * static_cast<size_t>(t->ne[3]); }
int64_t ggml_nelements(const Tensor* t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }

struct Buffer {
  void* memory;
};
Buffer the_buffer;
void* ggml_backend_cpu_buffer_from_ptr(void* memory, size_t) {
  the_buffer.memory = memory;
  return &the_buffer;
}
void ggml_backend_tensor_alloc(void* buffer, Tensor* tensor, void* address) {
  tensor->buffer = buffer;
  tensor->data = address;
}
void ggml_backend_buffer_free(void*) {}

}  // extern "C"
