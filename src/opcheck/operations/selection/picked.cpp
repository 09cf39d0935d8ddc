// SPDX-License-Identifier: Apache-2.0
// One pass over the indices; for each column the row that named it last is remembered, which finds
// repetitions without a set for every row.
#include "opcheck/operations/selection/picked.hpp"
#include "tensor/sentence.hpp"

#include <limits>
#include <vector>

namespace assay::opcheck {

Result<Picked> pick_by_row(const TensorView& table, const TensorView& indices) {
  const bool has_rows = !table.shape.empty() && table.shape.size() == indices.shape.size();
  Dims table_rows = table.shape;
  Dims index_rows = indices.shape;
  if (has_rows) {
    table_rows.resize(table_rows.size() - 1);
    index_rows.resize(index_rows.size() - 1);
  }
  if (!has_rows || table_rows != index_rows)
    return fail(Errc::Invalid, "indices of shape ", indices.shape, " into rows of ", table.shape);
  ASSAY_TRY(const reference::Wide values, reference::widen(table));
  ASSAY_TRY(const reference::Whole places, reference::whole(indices));
  reference::Wide picked(indices.shape);
  const int64_t columns = table.shape[table.shape.size() - 1];
  const int64_t width = indices.shape[indices.shape.size() - 1];
  int64_t outside = 0;
  int64_t repeated = 0;
  std::vector<int64_t> seen_in(values.size() == 0 ? 0 : static_cast<size_t>(columns), -1);
  for (int64_t i = 0; i < places.size(); ++i) {
    const int64_t place = places.data()[i];
    const int64_t row = i / width;
    double& value = picked.data()[i];
    value = std::numeric_limits<double>::quiet_NaN();
    if (place < 0 || place >= columns) {
      ++outside;
    } else if (seen_in[static_cast<size_t>(place)] == row) {
      ++repeated;
    } else {
      seen_in[static_cast<size_t>(place)] = row;
      value = values.data()[row * columns + place];
    }
  }
  Picked result{reference::to_tensor(std::move(picked)), {}};
  const auto add = [&](int64_t count, const char* what) {
    if (count == 0) return;
    result.note += (result.note.empty() ? "" : ", ") + std::to_string(count) + " of " +
                   std::to_string(places.size()) + " indices " + what;
  };
  add(outside, "out of range");
  add(repeated, "repeated");
  return result;
}

}  // namespace assay::opcheck
