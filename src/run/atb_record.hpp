// SPDX-License-Identifier: Apache-2.0
// From one of ATB's tensor files to a record: what its header says, where its bytes are.
#pragma once
#include <string>

#include "formats/atb_bin.hpp"
#include "run/record.hpp"

namespace assay::run {

/// The four numbers of a statistics record as those of a tensor. Values are complex numbers'
/// magnitudes, as everywhere else; the mean of a complex tensor is another quantity and stays NaN.
/// count    of all values of the tensor
[[nodiscard]] stats::TensorStats stats_of(const formats::AtbStatistics& statistics, int64_t count);

/// "fractal_nz" of ATB's number; empty for the plain order.
[[nodiscard]] std::string atb_memory_format(int64_t format);

/// Fills dtype, shape, strides, bytes, stats, memory_format. A record without data has no bytes; a
/// file that cannot be used has `problem` and the file as bytes, so that loading it says why.
/// parsed    of the file's bytes
void fill_from_atb_bin(const std::string& file, const Result<formats::AtbBin>& parsed,
                       TensorRecord* record);

}  // namespace assay::run
