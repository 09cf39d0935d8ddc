// SPDX-License-Identifier: Apache-2.0
// A program on the fake engine: fake_host [STEPS [SEED]]. Computes one graph of x (2 rows of 4 values) STEPS times, or
// five times; x is SEED (0) plus the number of the call, and upwards. Prints `fourth`, after each call, and how often the
// engine has started its threads.
//
//   twice  = x + x
//   first  = rms_norm(x)           read by `second` alone: the engine does not put it into memory, if it need not
//   second = first + x             lies in memory until the end
//   third  = rms_norm(second)
//   fourth = third + second        in the memory of `first`
//   a view of `fourth`
//   fifth  = second + twice        in the memory of `third`
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "fake_engine.h"

int main(int count, char** words) {
  const int steps = count > 1 ? std::atoi(words[1]) : 5;
  const int seed = count > 2 ? std::atoi(words[2]) : 0;
  ggml_context* context = ggml_init({1 << 16, nullptr, true});
  std::vector<float> memory(5 * 8);
  ggml_backend_buffer* buffer =
      ggml_backend_cpu_buffer_from_ptr(memory.data(), memory.size() * sizeof(float));
  const auto place = [&](ggml_tensor* tensor, const char* name, size_t at) {
    ggml_backend_tensor_alloc(buffer, tensor, &memory[at]);
    return ggml_set_name(tensor, name);
  };
  ggml_tensor* x = place(ggml_new_tensor_4d(context, 0, 4, 2, 1, 1), "x", 0);
  ggml_tensor* twice = place(ggml_add(context, x, x), "twice", 8);
  ggml_tensor* first = place(ggml_rms_norm(context, x, 0.25F), "first", 16);
  ggml_tensor* second = place(ggml_add(context, first, x), "second", 24);
  ggml_tensor* third = place(ggml_rms_norm(context, second, 0.25F), "third", 32);
  ggml_tensor* fourth = place(ggml_add(context, third, second), "fourth", 16);
  ggml_tensor* fifth = place(ggml_add(context, second, twice), "fifth", 32);
  ggml_tensor* view = ggml_view_1d(context, fourth, 4, 16);

  ggml_cgraph* graph = fake_graph_new();
  for (ggml_tensor* node : {twice, first, second, third, fourth, view, fifth})
    fake_graph_add(graph, node);
  ggml_backend_sched* sched = fake_sched_new();
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < 8; ++i)
      memory[static_cast<size_t>(i)] = static_cast<float>(i + step + seed);
    const int starts_before = fake_sched_starts(sched);
    const int status = ggml_backend_sched_graph_compute(sched, graph);
    std::printf("status %d:", status);
    for (size_t i = 16; i < 24; ++i) std::printf(" %a", static_cast<double>(memory[i]));
    std::printf("\n");
    std::fprintf(stderr, "starts %d\n", fake_sched_starts(sched) - starts_before);
  }
  ggml_backend_sched_free(sched);
  fake_graph_free(graph);
  ggml_backend_buffer_free(buffer);
  ggml_free(context);
}
