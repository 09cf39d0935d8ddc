// SPDX-License-Identifier: Apache-2.0
// Torch's modules have flags for what watches its operators, Python functions for what watches calls.
#include "capture/torch/watchers.hpp"

#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "capture/torch/python_compat.hpp"

namespace assay::capture {
namespace {

struct Watcher {
  std::string_view name;
  std::string_view sees;
  const char* module = nullptr;  // of torch, with a flag
  const char* flag = nullptr;
};
constexpr std::array<Watcher, kWatcherCount> kWatchers = {{
    {"torch.profiler", "it counts each captured operator twice", "torch.autograd.profiler",
     "_is_profiler_enabled"},
    {"a TorchDispatchMode", "torch's stack of modes holds one more, that of the capture",
     "torch.utils._python_dispatch", "_is_in_non_infra_torch_dispatch_mode"},
    {"a tracer of Python's calls", "it meets functions that are called for the capture alone"},
}};
constexpr size_t kTracer = 2;
constexpr long kMonitoringTools = 6;

// In each process the first session to meet one says so. Leaked on purpose.
struct Flag {
  PyObject* globals = nullptr;  // of its module
  PyObject* name = nullptr;
  bool is_said = false;
};
std::array<Flag, kWatcherCount> flags;

bool is_set(size_t watcher) {
  Flag& flag = flags[watcher];
  if (flag.name == nullptr) {
    flag.name = PyUnicode_InternFromString(kWatchers[watcher].flag);
    flag.globals = imported(kWatchers[watcher].module, "__dict__").release();
  }
  return flag.globals != nullptr &&
         PyDict_GetItemWithError(flag.globals, flag.name) == Py_True;  // borrowed
}

bool is_something(const Ref& answer) { return answer && answer.get() != Py_None; }

// sys.setprofile(), sys.settrace(), and sys.monitoring from 3.12 on.
bool are_calls_traced() {
  for (const char* name : {"getprofile", "gettrace"}) {
    if (is_something(Ref(PyObject_CallObject(PySys_GetObject(name), nullptr)))) return true;
  }
  PyObject* monitoring = PySys_GetObject("monitoring");
  for (long tool = 0; monitoring != nullptr && tool < kMonitoringTools; ++tool) {
    if (is_something(Ref(PyObject_CallMethod(monitoring, "get_tool", "l", tool)))) return true;
  }
  return false;
}

}  // namespace

void Watchers::look_around_operator() {
  for (size_t i = 0; i < kTracer; ++i) {
    if (!met_[i] && is_set(i)) meet(i);
  }
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
}

void Watchers::look_around_functions() {
  if (!met_[kTracer] && are_calls_traced()) meet(kTracer);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
}

void Watchers::meet(size_t watcher) {
  met_[watcher] = true;
  if (std::exchange(flags[watcher].is_said, true)) return;
  const auto& [name, sees, module, flag] = kWatchers[watcher];
  log_line(LogLevel::Warning,
           std::string("the program uses ").append(name).append(": ").append(sees));
}

std::string Watchers::text() const {
  std::string text;
  for (size_t i = 0; i < kWatcherCount; ++i) {
    if (met_[i]) text.append(text.empty() ? "" : ", ").append(kWatchers[i].name);
  }
  return text;
}

}  // namespace assay::capture
