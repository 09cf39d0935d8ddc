// SPDX-License-Identifier: Apache-2.0
// Threads of the offline tools. Code inside a host process never uses this. Own code instead of
// oneTBB: Debian ships TBB only as a shared library, and the wheel and the native command carry
// none; what is needed of it is one ordered loop.
#pragma once
#include <cstddef>
#include <functional>

namespace assay {

/// jobs <= 0 means the process' default: one per core it may use, unless it was told.
[[nodiscard]] unsigned resolve_job_count(int jobs);
/// The default from here on; <= 0: one per core.
void set_default_job_count(int jobs);

/// Calls body(i) once for every i in [0, count) on up to `jobs` threads, the caller's included;
/// returns when all are done. Indices are handed out in order. Nested calls run on the calling
/// thread alone. When body throws, on whichever thread, no more indices are handed out, and the
/// first exception is thrown here. Inside an InterruptScope whose flag is set no more indices are
/// handed out, either, and Interrupted is thrown.
void parallel_for(size_t count, unsigned jobs, const std::function<void(size_t index)>& body);

}  // namespace assay
