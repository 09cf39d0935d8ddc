// SPDX-License-Identifier: Apache-2.0
// Threads, the caller among them, take the next index from one counter until there is none.
// Thread-local flags tell nested loops, which get no threads, and what an InterruptScope
// (base/interruption.hpp) watches.
#include "base/thread_pool.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/interruption.hpp"

namespace assay {
namespace {

std::atomic<int> default_job_count = 0;

thread_local bool inside_parallel_for = false;

/// What an InterruptScope, or the parallel_for that started this thread, says.
thread_local const std::atomic<bool>* interrupt_flag = nullptr;
thread_local bool may_throw = false;

class InsideParallelFor {
 public:
  InsideParallelFor() { inside_parallel_for = true; }
  ~InsideParallelFor() { inside_parallel_for = false; }
  InsideParallelFor(const InsideParallelFor&) = delete;
  InsideParallelFor& operator=(const InsideParallelFor&) = delete;
};

}  // namespace

InterruptScope::InterruptScope(const std::atomic<bool>* flag)
    : previous_(interrupt_flag), threw_before_(may_throw) {
  interrupt_flag = flag;
  may_throw = flag != nullptr;
}

InterruptScope::~InterruptScope() {
  interrupt_flag = previous_;
  may_throw = threw_before_;
}

bool is_interrupted() {
  return interrupt_flag != nullptr && interrupt_flag->load(std::memory_order_relaxed);
}

void throw_if_interrupted() {
  if (may_throw && is_interrupted()) throw Interrupted();
}

void set_default_job_count(int jobs) { default_job_count.store(jobs, std::memory_order_relaxed); }

unsigned resolve_job_count(int jobs) {
  if (jobs <= 0) jobs = default_job_count.load(std::memory_order_relaxed);
  if (jobs > 0) return static_cast<unsigned>(jobs);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&allowed)));
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

void parallel_for(size_t count, unsigned jobs, const std::function<void(size_t)>& body) {
  const size_t thread_count = std::min<size_t>(std::max(1u, jobs), count);
  if (thread_count <= 1 || inside_parallel_for) {
    for (size_t i = 0; i < count; ++i) {
      throw_if_interrupted();
      body(i);
    }
    throw_if_interrupted();
    return;
  }
  std::atomic<size_t> next{0};
  const std::atomic<bool>* const flag = interrupt_flag;
  std::exception_ptr thrown;
  std::atomic_flag has_thrown;
  const auto work = [&] {
    const InsideParallelFor inside;
    try {
      for (size_t i = next.fetch_add(1); i < count && !is_interrupted(); i = next.fetch_add(1))
        body(i);
    } catch (...) {
      next = count;
      if (!has_thrown.test_and_set()) thrown = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    helpers.reserve(thread_count - 1);
    for (size_t i = 1; i < thread_count; ++i) {
      helpers.emplace_back([&] {
        interrupt_flag = flag;
        work();
      });
    }
    work();
  }
  if (thrown) std::rethrow_exception(thrown);
  throw_if_interrupted();
}

}  // namespace assay
