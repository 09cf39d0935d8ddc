// SPDX-License-Identifier: Apache-2.0
// Programs on the fake engine that do what a probe must survive: trap_host KIND.
//
//   fork          forks in its callback, at every third call; the child goes on and ends by exit(7)
//   fork-quietly  the same; the child ends by _exit(7)
//   quick         ends by quick_exit(0)
//   nested        its callback computes a graph of another scheduler
//   direct        computes without a scheduler
//   large         graphs of 4 MiB, for limits on the size of files
//
// Prints the last value of `second` after each graph: x is step, step + 1 ...
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fake_engine.h"

namespace {

struct Graph {
  explicit Graph(int64_t rows, const char* first_name) {
    context = ggml_init({1 << 16, nullptr, true});
    x = ggml_set_name(ggml_new_tensor_4d(context, 0, 4, rows, 1, 1), "x");
    first = ggml_set_name(ggml_rms_norm(context, x, 0.25F), first_name);
    second = ggml_set_name(ggml_add(context, first, x), "second");
    values = static_cast<size_t>(4 * rows);
    memory.resize(3 * values);
    buffer = ggml_backend_cpu_buffer_from_ptr(memory.data(), memory.size() * sizeof(float));
    ggml_backend_tensor_alloc(buffer, x, &memory[0]);
    ggml_backend_tensor_alloc(buffer, first, &memory[values]);
    ggml_backend_tensor_alloc(buffer, second, &memory[2 * values]);
    graph = fake_graph_new();
    fake_graph_add(graph, first);
    fake_graph_add(graph, second);
    sched = fake_sched_new();
  }
  void compute(int step) {
    for (size_t i = 0; i < values; ++i)
      memory[i] = static_cast<float>(i + static_cast<size_t>(step));
    if (direct) {
      ggml_backend_graph_compute(nullptr, graph);
    } else {
      ggml_backend_sched_graph_compute(sched, graph);
    }
  }
  [[nodiscard]] double last() const { return static_cast<double>(memory.back()); }

  ggml_context* context;
  ggml_tensor *x, *first, *second;
  size_t values = 0;
  std::vector<float> memory;
  ggml_backend_buffer* buffer;
  ggml_cgraph* graph;
  ggml_backend_sched* sched;
  bool direct = false;
};

std::string kind;
Graph* other = nullptr;
int calls = 0;
pid_t child = -1;
bool in_child = false;

bool on_node(ggml_tensor*, bool ask, void*) {
  ++calls;
  if (kind.starts_with("fork") && calls % 3 == 0 && !in_child) {
    std::fflush(stdout);
    child = fork();
    in_child = child == 0;
    if (!in_child) {
      int status = 0;
      waitpid(child, &status, 0);
      std::printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
  }
  if (kind == "nested" && ask) {
    other->compute(100 + calls);
    std::printf("nested %a\n", other->last());
  }
  return true;
}

}  // namespace

int main(int, char** arguments) {
  kind = arguments[1];
  Graph graph(kind == "large" ? 1 << 18 : 2, "first");
  Graph inner(2, "inner");
  other = &inner;
  graph.direct = kind == "direct";
  if (!graph.direct && kind != "large" && kind != "quick")
    ggml_backend_sched_set_eval_callback(graph.sched, on_node, nullptr);
  for (int step = 0; step < 3; ++step) {
    graph.compute(step);
    std::printf("%s %a\n", in_child ? "of the child" : "second", graph.last());
  }
  std::fflush(stdout);
  if (in_child && kind == "fork-quietly") _exit(7);
  if (in_child) std::exit(7);
  if (kind == "quick") std::quick_exit(0);
  return 0;
}
