// SPDX-License-Identifier: Apache-2.0
// What is taken of a tensor while its host waits: statistics, digest, bytes.
#pragma once
#include <optional>
#include <span>

#include "stats/tensor_stats.hpp"
#include "tensor/tensor_view.hpp"
#include "writer/layouts/native_run.hpp"

namespace assay::capture {

/// On the threads that the host computes with, where that is worth it. Whatever floating-point
/// environment the host has set, its traps and its rounding change nothing, and it finds it again.
[[nodiscard]] stats::TensorStats statistics_of(const TensorView& view);

/// Writes the elements in C order, lazy bits applied; `out` has exactly their bytes.
void copy_elements(const TensorView& view, std::span<std::byte> out);

/// Appends the elements to the step file that `run` has open; a record that got them is the first
/// to have them.
void append_elements(writer::NativeRun& run, const TensorView& view, native::Record& record);

}  // namespace assay::capture
