// SPDX-License-Identifier: Apache-2.0
// Finds the function that would have been called without us, through the library that called.
#include "capture/ggml/real_functions.hpp"

#include <dlfcn.h>

#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "capture/common/host_guard.hpp"

namespace assay::capture::ggml {
namespace {

constexpr size_t kFunctions = 5;
constexpr const char* kNames[kFunctions] = {
    "ggml_backend_sched_set_eval_callback", "ggml_backend_sched_graph_compute_async",
    "ggml_backend_sched_graph_compute", "ggml_backend_sched_free", "ggml_backend_graph_compute"};

// A thread computes from one or two places.
constexpr size_t kEntries = 4;
struct Entry {
  const void* caller = nullptr;
  void* function = nullptr;
};
constinit thread_local std::array<std::array<Entry, kEntries>, kFunctions> known
    __attribute__((tls_model("initial-exec")));

bool is_ours(const void* function) {
  Dl_info theirs{};
  Dl_info ours{};
  return ::dladdr(function, &theirs) != 0 &&
         ::dladdr(reinterpret_cast<const void*>(&real_function), &ours) != 0 &&
         theirs.dli_fbase == ours.dli_fbase;
}

void* find(const char* name, const void* return_address) {
  void* function = nullptr;
  Dl_info caller{};
  if (::dladdr(return_address, &caller) != 0 && caller.dli_fname != nullptr) {
    // The handle stays open: what a cached address lies in must not be unloaded.
    if (void* library = ::dlopen(caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD))
      function = ::dlsym(library, name);
  }
  // The main program is not found by its name, or its handle begins with what is preloaded.
  if (function == nullptr || is_ours(function)) function = ::dlsym(RTLD_NEXT, name);
  return function != nullptr && is_ours(function) ? nullptr : function;
}

void* find_once(Interposed which, const void* return_address) {
  using Key = std::pair<const void*, Interposed>;
  static auto* functions = new std::map<Key, void*>;
  static ForkLock lock;
  lock.lock();
  void* function = nullptr;
  try {
    const auto [place, fresh] = functions->try_emplace(Key{return_address, which}, nullptr);
    if (fresh) place->second = find(kNames[static_cast<size_t>(which)], return_address);
    function = place->second;
  } catch (...) {
    function = find(kNames[static_cast<size_t>(which)], return_address);
  }
  lock.unlock();
  return function;
}

}  // namespace

void* real_function(Interposed which, const void* return_address) noexcept {
  const size_t hash = (reinterpret_cast<uintptr_t>(return_address) >> 3) % kEntries;
  Entry& entry = known[static_cast<size_t>(which)][hash];
  if (entry.caller == return_address) return entry.function;
  const int errno_before = errno;
  void* function = find_once(which, return_address);
  errno = errno_before;
  if (function != nullptr) entry = {return_address, function};
  return function;
}

}  // namespace assay::capture::ggml
