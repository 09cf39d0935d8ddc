// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace assay {
namespace {
thread_local bool inside_parallel_for = false;
}

unsigned resolve_job_count(int jobs) {
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
    for (size_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    inside_parallel_for = true;
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i);
    inside_parallel_for = false;
  };
  std::vector<std::jthread> helpers;
  helpers.reserve(thread_count - 1);
  for (size_t i = 1; i < thread_count; ++i) helpers.emplace_back(work);
  work();
}

}  // namespace assay
