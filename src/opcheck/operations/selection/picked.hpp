// SPDX-License-Identifier: Apache-2.0
// Indices that a device chose, judged by what they point at.
#pragma once
#include <string>

#include "reference/wide.hpp"

namespace assay::opcheck {

struct Picked {
  Tensor values;     // Float64, shape of the indices; NaN where an index does not count
  std::string note;  // "2 of 8 indices are out of range"; empty when all count
};
/// table[row, indices[row, i]] for each row (last dimension). An index outside the row, or one that
/// the row holds already, gives NaN: the former points nowhere, the latter hides that another one
/// is missing.
/// errors  Invalid (rows of the two differ) | of widen(), whole()
[[nodiscard]] Result<Picked> pick_by_row(const TensorView& table, const TensorView& indices);

}  // namespace assay::opcheck
