// SPDX-License-Identifier: Apache-2.0
// The functions of ggml that the host calls, with its objects as opaque pointers: the wheel that the libraries come from
// carries no headers. Names and signatures are those of ggml 0.13.1, unchanged in 0.26.0.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct ggml_context;
struct ggml_tensor;
struct ggml_cgraph;
struct ggml_backend;
struct ggml_backend_buffer;
struct ggml_backend_buffer_type;
struct ggml_backend_sched;

// Passed by value. With `no_alloc` tensors get no memory in the context: a back end or the scheduler gives it.
struct ggml_init_params {
  size_t mem_size;
  void* mem_buffer;
  bool no_alloc;
};

// `ask`: is the node wanted? Otherwise it has been computed; false stops the rest of the split.
typedef bool (*ggml_backend_sched_eval_callback)(ggml_tensor* tensor, bool ask, void* user_data);

const char* ggml_version(void);
ggml_context* ggml_init(ggml_init_params params);
void ggml_free(ggml_context* context);
size_t ggml_tensor_overhead(void);
size_t ggml_graph_overhead_custom(size_t nodes, bool grads);

ggml_tensor* ggml_new_tensor_1d(ggml_context*, int type, int64_t ne0);
ggml_tensor* ggml_new_tensor_2d(ggml_context*, int type, int64_t ne0, int64_t ne1);
ggml_tensor* ggml_set_name(ggml_tensor*, const char* name);
const char* ggml_get_name(const ggml_tensor*);
size_t ggml_nbytes(const ggml_tensor*);
size_t ggml_row_size(int type, int64_t elements);
void ggml_set_input(ggml_tensor*);
void ggml_set_output(ggml_tensor*);
size_t ggml_quantize_chunk(int type, const float* values, void* out, int64_t start, int64_t rows,
                           int64_t row_elements, const float* importance);

ggml_tensor* ggml_add(ggml_context*, ggml_tensor* a, ggml_tensor* b);
ggml_tensor* ggml_mul(ggml_context*, ggml_tensor* a, ggml_tensor* b);
ggml_tensor* ggml_mul_mat(ggml_context*, ggml_tensor* weight, ggml_tensor* x);
ggml_tensor* ggml_rms_norm(ggml_context*, ggml_tensor* x, float eps);
ggml_tensor* ggml_swiglu_split(ggml_context*, ggml_tensor* gate, ggml_tensor* up);
ggml_tensor* ggml_get_rows(ggml_context*, ggml_tensor* table, ggml_tensor* rows);
ggml_tensor* ggml_set_rows(ggml_context*, ggml_tensor* table, ggml_tensor* values,
                           ggml_tensor* rows);
ggml_tensor* ggml_cont(ggml_context*, ggml_tensor*);
ggml_tensor* ggml_cont_2d(ggml_context*, ggml_tensor*, int64_t ne0, int64_t ne1);
ggml_tensor* ggml_reshape_2d(ggml_context*, ggml_tensor*, int64_t ne0, int64_t ne1);
ggml_tensor* ggml_reshape_3d(ggml_context*, ggml_tensor*, int64_t ne0, int64_t ne1, int64_t ne2);
ggml_tensor* ggml_view_3d(ggml_context*, ggml_tensor*, int64_t ne0, int64_t ne1, int64_t ne2,
                          size_t nb1, size_t nb2, size_t offset);
ggml_tensor* ggml_permute(ggml_context*, ggml_tensor*, int axis0, int axis1, int axis2, int axis3);
ggml_tensor* ggml_soft_max_ext(ggml_context*, ggml_tensor* scores, ggml_tensor* mask, float scale,
                               float max_bias);
ggml_tensor* ggml_rope_ext(ggml_context*, ggml_tensor* x, ggml_tensor* positions,
                           ggml_tensor* factors, int dims, int mode, int original_context,
                           float base, float scale, float ext_factor, float attention_factor,
                           float beta_fast, float beta_slow);

ggml_cgraph* ggml_new_graph_custom(ggml_context*, size_t nodes, bool grads);
void ggml_build_forward_expand(ggml_cgraph*, ggml_tensor*);
int ggml_graph_n_nodes(ggml_cgraph*);
ggml_tensor* ggml_graph_node(ggml_cgraph*, int index);

ggml_backend* ggml_backend_cpu_init(void);
void ggml_backend_cpu_set_n_threads(ggml_backend*, int threads);
void ggml_backend_free(ggml_backend*);
int ggml_backend_graph_compute(ggml_backend*, ggml_cgraph*);
ggml_backend_buffer_type* ggml_backend_cpu_buffer_type(void);
ggml_backend_buffer* ggml_backend_cpu_buffer_from_ptr(void* memory, size_t size);
ggml_backend_buffer_type* ggml_backend_buffer_get_type(ggml_backend_buffer*);
ggml_backend_buffer* ggml_backend_alloc_ctx_tensors(ggml_context*, ggml_backend*);
void ggml_backend_buffer_clear(ggml_backend_buffer*, uint8_t value);
void ggml_backend_buffer_set_usage(ggml_backend_buffer*, int usage);
void ggml_backend_buffer_free(ggml_backend_buffer*);
void ggml_backend_tensor_set(ggml_tensor*, const void* data, size_t offset, size_t bytes);
void ggml_backend_tensor_get(const ggml_tensor*, void* data, size_t offset, size_t bytes);

ggml_backend_sched* ggml_backend_sched_new(ggml_backend** backends,
                                           ggml_backend_buffer_type** buffer_types,
                                           int backend_count, size_t graph_nodes, bool parallel,
                                           bool offload);
void ggml_backend_sched_free(ggml_backend_sched*);
bool ggml_backend_sched_alloc_graph(ggml_backend_sched*, ggml_cgraph*);
void ggml_backend_sched_reset(ggml_backend_sched*);
int ggml_backend_sched_graph_compute(ggml_backend_sched*, ggml_cgraph*);
int ggml_backend_sched_graph_compute_async(ggml_backend_sched*, ggml_cgraph*);
void ggml_backend_sched_synchronize(ggml_backend_sched*);
void ggml_backend_sched_set_tensor_backend(ggml_backend_sched*, ggml_tensor*, ggml_backend*);
void ggml_backend_sched_set_eval_callback(ggml_backend_sched*, ggml_backend_sched_eval_callback,
                                          void* user_data);
int ggml_backend_sched_get_n_splits(ggml_backend_sched*);
int ggml_backend_sched_get_n_copies(ggml_backend_sched*);

}  // extern "C"
