// SPDX-License-Identifier: Apache-2.0
// Work on the OpenMP threads that the host already has. torch's workers spin for a while after each
// parallel region, so threads of ours would fight with them; a region of ours finds them awake
// (fork and join 0.5 us). Nothing is linked: GNU libgomp is looked up in the process. Without it
// everything runs on the calling thread.
#pragma once
#include <cstddef>
#include <cstdint>

namespace assay::capture {

/// A function with the signature of stats::BlockRunner.
using BlockRunner = void (*)(void (*body)(void* data, size_t index), void* data, size_t count);

/// How many threads the host computes with (torch.get_num_threads()), and that the calling thread
/// is the one that runs the model: another thread would start a second OpenMP pool.
void use_host_threads(int thread_count);
/// The calling thread is the one that runs the model, where that is known only later.
void claim_host_threads() noexcept;

/// Regions below this size are not worth a fork and join.
inline constexpr uint64_t kParallelBytes = 128u << 10;

/// The runner for work on `size_bytes` bytes now, or nullptr when one thread is right: small work,
/// inside a parallel region, on another thread than the model's, no libgomp, or cores busy with
/// other processes (a preempted worker makes the whole region wait; the load average is looked at
/// once a second).
[[nodiscard]] BlockRunner host_runner(uint64_t size_bytes) noexcept;

/// Whether libgomp was found in this process: for `assay doctor` and tests.
[[nodiscard]] bool host_threads_available() noexcept;
/// For tests and benchmarks: true ignores the load average.
void ignore_load_average(bool ignore) noexcept;

}  // namespace assay::capture
