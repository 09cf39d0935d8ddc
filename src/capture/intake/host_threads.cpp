// SPDX-License-Identifier: Apache-2.0
// Finds libgomp in the process and runs regions on its threads while the cores are free.
#include "capture/intake/host_threads.hpp"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

namespace assay::capture {
namespace {

using GompParallel = void (*)(void (*function)(void*), void* data, unsigned threads,
                              unsigned flags);
using OmpInParallel = int (*)();

struct Libgomp {
  GompParallel parallel = nullptr;
  OmpInParallel in_parallel = nullptr;
};

struct FoundLibraries {
  std::string libgomp;
  bool other_runtime = false;  // libiomp5 or libomp: torch may use that one instead
};

int note_library(dl_phdr_info* info, size_t, void* out) {
  auto& found = *static_cast<FoundLibraries*>(out);
  const char* path = info->dlpi_name;
  if (path == nullptr) return 0;
  const char* slash = std::strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  if (std::strncmp(name, "libiomp5", 8) == 0 || std::strncmp(name, "libomp", 6) == 0)
    found.other_runtime = true;
  // Several copies may be loaded (wheels bundle their own): torch's is the one with warm threads.
  if (std::strncmp(name, "libgomp", 7) == 0 &&
      (found.libgomp.empty() || std::strstr(path, "torch") != nullptr)) {
    found.libgomp = path;
  }
  return 0;
}

Libgomp find_libgomp() {
  FoundLibraries found;
  dl_iterate_phdr(note_library, &found);
  if (found.libgomp.empty() || found.other_runtime) return {};
  void* library = dlopen(found.libgomp.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  Libgomp result{reinterpret_cast<GompParallel>(dlsym(library, "GOMP_parallel")),
                 reinterpret_cast<OmpInParallel>(dlsym(library, "omp_in_parallel"))};
  return result.parallel != nullptr && result.in_parallel != nullptr ? result : Libgomp{};
}

const Libgomp& libgomp() {
  static const Libgomp found = find_libgomp();
  return found;
}

struct HostThreadState {
  std::atomic<unsigned> thread_count{1};
  std::atomic<pthread_t> model_thread{};
  std::atomic<bool> ignore_load{false};
  std::atomic<int64_t> load_checked_at{-1};  // seconds of the coarse monotonic clock
  std::atomic<bool> overloaded{false};
};

HostThreadState& state() {
  static HostThreadState instance;  // trivially destructible
  return instance;
}

// The load average counts the host's own spinning workers, so a machine that runs nothing else sits
// at the number of its cores; half a core of others above that is where regions begin to wait.
constexpr double kLoadPerCore = 1.25;

bool cores_are_busy() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  HostThreadState& s = state();
  if (s.load_checked_at.exchange(now.tv_sec, std::memory_order_relaxed) != now.tv_sec) {
    double load = 0;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    s.overloaded.store(
        getloadavg(&load, 1) == 1 && load > kLoadPerCore * static_cast<double>(cores),
        std::memory_order_relaxed);
  }
  return s.overloaded.load(std::memory_order_relaxed);
}

struct Region {
  void (*body)(void* data, size_t index);
  void* data;
  size_t count;
  std::atomic<size_t> next{0};
};

void run_region(void* argument) {
  auto& region = *static_cast<Region*>(argument);
  for (size_t i = region.next.fetch_add(1); i < region.count; i = region.next.fetch_add(1)) {
    region.body(region.data, i);
  }
}

void run_on_host_threads(void (*body)(void* data, size_t index), void* data, size_t count) {
  Region region{body, data, count, {}};
  const size_t threads = state().thread_count.load(std::memory_order_relaxed);
  libgomp().parallel(run_region, &region, static_cast<unsigned>(count < threads ? count : threads),
                     0);
}

}  // namespace

void use_host_threads(int thread_count) {
  state().thread_count.store(thread_count > 1 ? static_cast<unsigned>(thread_count) : 1);
  claim_host_threads();
  (void)libgomp();
}

void claim_host_threads() noexcept { state().model_thread.store(pthread_self()); }

BlockRunner host_runner(uint64_t size_bytes) noexcept {
  HostThreadState& s = state();
  if (size_bytes < kParallelBytes || s.thread_count.load(std::memory_order_relaxed) < 2)
    return nullptr;
  if (pthread_equal(s.model_thread.load(std::memory_order_relaxed), pthread_self()) == 0)
    return nullptr;
  const Libgomp& runtime = libgomp();
  if (runtime.parallel == nullptr || runtime.in_parallel() != 0) return nullptr;
  if (!s.ignore_load.load(std::memory_order_relaxed) && cores_are_busy()) return nullptr;
  return run_on_host_threads;
}

bool host_threads_available() noexcept { return libgomp().parallel != nullptr; }
void ignore_load_average(bool ignore) noexcept { state().ignore_load.store(ignore); }

}  // namespace assay::capture
