// SPDX-License-Identifier: Apache-2.0
// Rows of one head out of the tensors of an attention, as double or float.
#pragma once
#include <span>
#include <vector>

#include "reference/attention/attention.hpp"

namespace assay::reference {

/// Rows [first, first + count) of one head of a [rows, heads, size...] view, count * size values.
void read_head_rows(const TensorView& view, int64_t head, int64_t first, int64_t count,
                    double* out);

/// Number of rows of all parts.
[[nodiscard]] int64_t row_count(std::span<const KeyValueRows> parts);

/// All rows of one kv head, dequantised when scales are given. `size` values a row.
void read_key_value_rows(std::span<const KeyValueRows> parts, int64_t kv_head, int64_t size,
                         std::span<const double> scale, std::span<const double> offset,
                         int64_t scale_head, double* out);

}  // namespace assay::reference
