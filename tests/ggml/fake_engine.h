// SPDX-License-Identifier: Apache-2.0
// What the fake engine exports: functions of ggml that programs and probes use, and five of its own.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
struct ggml_tensor;
struct ggml_context;
struct ggml_cgraph;
struct ggml_backend_buffer;
struct ggml_backend_sched;
struct ggml_init_params {
  size_t mem_size;
  void* mem_buffer;
  bool no_alloc;
};

const char* ggml_version();
ggml_context* ggml_init(ggml_init_params params);
void ggml_free(ggml_context*);
ggml_tensor* ggml_new_tensor_4d(ggml_context*, int type, int64_t ne0, int64_t ne1, int64_t ne2,
                                int64_t ne3);
ggml_tensor* ggml_rms_norm(ggml_context*, ggml_tensor*, float epsilon);
ggml_tensor* ggml_add(ggml_context*, ggml_tensor*, ggml_tensor*);
ggml_tensor* ggml_view_1d(ggml_context*, ggml_tensor*, int64_t count, size_t offset);
void ggml_set_output(ggml_tensor*);
ggml_tensor* ggml_set_name(ggml_tensor*, const char*);
const char* ggml_get_name(const ggml_tensor*);
const char* ggml_op_name(int op);
const char* ggml_op_desc(const ggml_tensor*);
int ggml_get_unary_op(const ggml_tensor*);
const char* ggml_unary_op_name(int op);
size_t ggml_nbytes(const ggml_tensor*);
int64_t ggml_nelements(const ggml_tensor*);
bool ggml_is_contiguous(const ggml_tensor*);
const char* ggml_type_name(int type);
size_t ggml_type_size(int type);
int64_t ggml_blck_size(int type);
int ggml_graph_n_nodes(ggml_cgraph*);
ggml_tensor* ggml_graph_node(ggml_cgraph*, int index);
ggml_backend_buffer* ggml_backend_cpu_buffer_from_ptr(void* memory, size_t size);
int ggml_backend_tensor_alloc(ggml_backend_buffer*, ggml_tensor*, void* address);
void ggml_backend_buffer_free(ggml_backend_buffer*);
void ggml_backend_tensor_get(const ggml_tensor*, void* out, size_t offset, size_t size);
bool ggml_backend_buffer_is_host(ggml_backend_buffer*);
const char* ggml_backend_buffer_name(ggml_backend_buffer*);
void ggml_backend_sched_set_eval_callback(ggml_backend_sched*,
                                          bool (*callback)(ggml_tensor*, bool, void*), void* user);
int ggml_backend_sched_graph_compute_async(ggml_backend_sched*, ggml_cgraph*);
int ggml_backend_sched_graph_compute(ggml_backend_sched*, ggml_cgraph*);
int ggml_backend_graph_compute(void* backend, ggml_cgraph*);
void ggml_backend_sched_free(ggml_backend_sched*);

ggml_backend_sched* fake_sched_new();
int fake_sched_starts(const ggml_backend_sched*);
ggml_cgraph* fake_graph_new();
void fake_graph_free(ggml_cgraph*);
void fake_graph_add(ggml_cgraph*, ggml_tensor*);
}
