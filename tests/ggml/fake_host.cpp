// SPDX-License-Identifier: Apache-2.0
// A program on the fake engine: two graphs of x (2 rows of 4 values), `first` = rms_norm(x), `second` = first + x and a view
// of that. Prints `second`.
#include <cstdio>
#include <vector>

#include "fake_engine.h"

int main() {
  ggml_context* context = ggml_init({1 << 16, nullptr, true});
  ggml_tensor* x = ggml_set_name(ggml_new_tensor_4d(context, 0, 4, 2, 1, 1), "x");
  ggml_tensor* first = ggml_set_name(ggml_rms_norm(context, x, 0.25F), "first");
  ggml_tensor* second = ggml_set_name(ggml_add(context, first, x), "second");
  std::vector<float> memory(3 * 8);
  ggml_backend_buffer* buffer =
      ggml_backend_cpu_buffer_from_ptr(memory.data(), memory.size() * sizeof(float));
  ggml_backend_tensor_alloc(buffer, x, &memory[0]);
  ggml_backend_tensor_alloc(buffer, first, &memory[8]);
  ggml_backend_tensor_alloc(buffer, second, &memory[16]);
  ggml_tensor* view = ggml_view_1d(context, second, 4, 16);

  ggml_cgraph* graph = fake_graph_new();
  for (ggml_tensor* node : {first, second, view}) fake_graph_add(graph, node);
  ggml_backend_sched* sched = fake_sched_new();
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 8; ++i) memory[static_cast<size_t>(i)] = static_cast<float>(i + step);
    const int status = ggml_backend_sched_graph_compute(sched, graph);
    std::printf("status %d:", status);
    for (size_t i = 16; i < 24; ++i) std::printf(" %a", static_cast<double>(memory[i]));
    std::printf("\n");
  }
  ggml_backend_sched_free(sched);
  fake_graph_free(graph);
  ggml_backend_buffer_free(buffer);
  ggml_free(context);
}
