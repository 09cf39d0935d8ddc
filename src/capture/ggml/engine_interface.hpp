// SPDX-License-Identifier: Apache-2.0
// The functions of a ggml engine that the probe calls. Nothing of the engine is compiled in: no
// header, no structure, no number of an operator or a type; what lies where in a tensor is measured
// (tensor_layout.hpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace assay::capture::ggml {

// The engine's objects; only their addresses mean something here.
struct EngineTensor;
struct EngineContext;
struct EngineBuffer;
struct EngineGraph;
struct EngineScheduler;

/// Handed over by value to ggml_init.
struct ContextParameters {
  size_t memory_bytes;
  void* memory;
  bool without_data;
};

/// Asked before a node is computed (ask), and called after it for those that were wanted.
using EvalCallback = bool (*)(EngineTensor* tensor, bool ask, void* user);

using SetEvalCallback = void (*)(EngineScheduler*, EvalCallback, void*);
using GraphCompute = int (*)(EngineScheduler*, EngineGraph*);
using FreeScheduler = void (*)(EngineScheduler*);

// X(type of the result, name, arguments)
#define ASSAY_GGML_REQUIRED_SYMBOLS(X)                                                            \
  X(EngineContext*, ggml_init, (ContextParameters))                                               \
  X(void, ggml_free, (EngineContext*))                                                            \
  X(EngineTensor*, ggml_new_tensor_4d, (EngineContext*, int, int64_t, int64_t, int64_t, int64_t)) \
  X(EngineTensor*, ggml_rms_norm, (EngineContext*, EngineTensor*, float))                         \
  X(EngineTensor*, ggml_add, (EngineContext*, EngineTensor*, EngineTensor*))                      \
  X(EngineTensor*, ggml_view_1d, (EngineContext*, EngineTensor*, int64_t, size_t))                \
  X(void, ggml_set_output, (EngineTensor*))                                                       \
  X(EngineTensor*, ggml_set_name, (EngineTensor*, const char*))                                   \
  X(const char*, ggml_get_name, (const EngineTensor*))                                            \
  X(const char*, ggml_op_name, (int))                                                             \
  X(const char*, ggml_op_desc, (const EngineTensor*))                                             \
  X(int, ggml_get_unary_op, (const EngineTensor*))                                                \
  X(const char*, ggml_unary_op_name, (int))                                                       \
  X(size_t, ggml_nbytes, (const EngineTensor*))                                                   \
  X(int64_t, ggml_nelements, (const EngineTensor*))                                               \
  X(const char*, ggml_type_name, (int))                                                           \
  X(size_t, ggml_type_size, (int))                                                                \
  X(int64_t, ggml_blck_size, (int))                                                               \
  X(int, ggml_graph_n_nodes, (EngineGraph*))                                                      \
  X(EngineTensor*, ggml_graph_node, (EngineGraph*, int))                                          \
  X(EngineBuffer*, ggml_backend_cpu_buffer_from_ptr, (void*, size_t))                             \
  X(void, ggml_backend_tensor_alloc, (EngineBuffer*, EngineTensor*, void*))                       \
  X(void, ggml_backend_buffer_free, (EngineBuffer*))                                              \
  X(void, ggml_backend_tensor_get, (const EngineTensor*, void*, size_t, size_t))                  \
  X(bool, ggml_backend_buffer_is_host, (EngineBuffer*))                                           \
  X(const char*, ggml_backend_buffer_name, (EngineBuffer*))                                       \
  X(void, ggml_backend_sched_set_eval_callback, (EngineScheduler*, EvalCallback, void*))

#define ASSAY_GGML_OPTIONAL_SYMBOLS(X)           \
  X(int, ggml_get_glu_op, (const EngineTensor*)) \
  X(const char*, ggml_glu_op_name, (int))        \
  X(const char*, ggml_version, ())               \
  X(const char*, ggml_commit, ())                \
  X(int, ggml_backend_buffer_get_usage, (EngineBuffer*))

struct EngineFunctions {
#define ASSAY_GGML_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  ASSAY_GGML_REQUIRED_SYMBOLS(ASSAY_GGML_MEMBER)
  ASSAY_GGML_OPTIONAL_SYMBOLS(ASSAY_GGML_MEMBER)
#undef ASSAY_GGML_MEMBER
};

}  // namespace assay::capture::ggml
