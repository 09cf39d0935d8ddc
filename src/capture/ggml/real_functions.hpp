// SPDX-License-Identifier: Apache-2.0
// The functions behind ours. RTLD_NEXT does not find them: a library that Python loaded is in no
// global scope, although its calls do find the preloaded probe.
#pragma once
#include <cstdint>

namespace assay::capture::ggml {

enum class Interposed : uint8_t { SetCallback, ComputeAsync, Compute, Free, DirectCompute };

/// The function that a call from `return_address` would have reached without us; nullptr when there
/// is none. Looked up once for each place of a call (10 us), then 5 ns.
[[nodiscard]] void* real_function(Interposed which, const void* return_address) noexcept;

}  // namespace assay::capture::ggml
