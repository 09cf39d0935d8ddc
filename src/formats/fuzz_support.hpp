// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets of this folder share.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "tensor/convert.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {

/// Reads up to 64 elements at both ends of a view, so that a sanitizer sees an address outside its
/// storage.
inline void touch(const TensorView& view) {
  const int64_t count = view.element_count();
  const int64_t part = std::min<int64_t>(count, 64);
  std::vector<double> values(static_cast<size_t>(part * values_per_element(view.dtype)));
  read_values(view, 0, part, values);
  read_values(view, count - part, part, values);
}

}  // namespace assay::formats
