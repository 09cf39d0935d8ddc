// SPDX-License-Identifier: Apache-2.0
// A handler that pthread_atfork() calls in each child counts up.
#include "writer/fork_guard.hpp"

#include <pthread.h>

#include <atomic>

namespace assay::writer {
namespace {

std::atomic<uint32_t> generation{0};

// Runs in the child between fork and everything else: an atomic increment is all that is allowed
// there.
void after_fork_in_child() { generation.fetch_add(1, std::memory_order_relaxed); }

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

uint32_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

}  // namespace assay::writer
