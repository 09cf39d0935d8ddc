// SPDX-License-Identifier: Apache-2.0
// Reads the rows of a head through a view of that head alone; keys and values that lie in several
// parts are read one after the other, then dequantised in place.
#include "reference/attention/operand_rows.hpp"

#include "tensor/convert.hpp"

namespace assay::reference {

void read_head_rows(const TensorView& view, int64_t head, int64_t first, int64_t count,
                    double* out) {
  TensorView part = view;
  part.offset_elements += first * view.strides[0] + head * view.strides[1];
  part.shape = {count};
  part.strides = {view.strides[0]};
  int64_t size = 1;
  for (size_t i = 2; i < view.shape.size(); ++i) {
    part.shape.push_back(view.shape[i]);
    part.strides.push_back(view.strides[i]);
    size *= view.shape[i];
  }
  read_values(part, 0, count * size, {out, static_cast<size_t>(count * size)});
}

int64_t row_count(std::span<const KeyValueRows> parts) {
  int64_t rows = 0;
  for (const KeyValueRows& part : parts) rows += part.shape[0];
  return rows;
}

void read_key_value_rows(std::span<const KeyValueRows> parts, int64_t kv_head, int64_t size,
                         std::span<const double> scale, std::span<const double> offset,
                         int64_t scale_head, double* out) {
  int64_t rows = 0;
  for (const KeyValueRows& part : parts) {
    read_head_rows(part, kv_head, 0, part.shape[0], out + rows * size);
    rows += part.shape[0];
  }
  if (scale.empty()) return;
  const auto first = static_cast<size_t>((scale_head + kv_head) * size);
  for (int64_t row = 0; row < rows; ++row) {
    double* values = out + row * size;
    for (int64_t c = 0; c < size; ++c) {
      const size_t at = first + static_cast<size_t>(c);
      values[c] = (values[c] + (offset.empty() ? 0.0 : offset[at])) * scale[at];
    }
  }
}

}  // namespace assay::reference
