// SPDX-License-Identifier: Apache-2.0
// A view that repeats over the end of the shape (a bias, a scale) is read from its period, a short
// one from a buffer of several periods; any other is read through strides of 0.
#include "reference/elementwise/broadcast.hpp"

#include <algorithm>
#include <string>

#include "reference/movement/views.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

size_t leading_ones(const Dims& shape) {
  size_t count = 0;
  while (count < shape.size() && shape[count] == 1) ++count;
  return count;
}

/// True when the shape without leading ones is the end of the other one.
bool is_tail(const Dims& part, const Dims& whole) {
  const size_t skipped = leading_ones(part);
  const size_t length = part.size() - skipped;
  return length <= whole.size() &&
         std::equal(part.begin() + skipped, part.end(), whole.end() - length);
}

}  // namespace

Result<BroadcastValues> BroadcastValues::make(const TensorView& view, const Dims& shape) {
  ASSAY_TRY_STATUS(check_real(view));
  ASSAY_TRY(const Tensor whole, broadcast_to(Tensor{view, nullptr}, shape));
  BroadcastValues values;
  const int64_t count = view.element_count();
  if (!is_tail(view.shape, shape) || count == 0) {
    values.view_ = whole.view;
    return values;
  }
  values.view_ = view;
  if (count == element_count(shape)) return values;
  values.period_ = count;
  if (count < kBlock) {
    values.row_.resize(static_cast<size_t>(kBlock + 2 * count));
    const auto period = std::span(values.row_).first(static_cast<size_t>(count));
    read_values(view, 0, count, period);
    for (size_t i = period.size(); i < values.row_.size(); ++i)
      values.row_[i] = values.row_[i - period.size()];
  }
  return values;
}

void BroadcastValues::read(int64_t first, int64_t count, double* out) const {
  if (period_ == 0) {
    read_values(view_, first, count, std::span(out, static_cast<size_t>(count)));
    return;
  }
  while (count > 0) {
    const int64_t start = first % period_;
    int64_t length = 0;
    if (row_.empty()) {
      length = std::min(count, period_ - start);
      read_values(view_, start, length, std::span(out, static_cast<size_t>(length)));
    } else {
      length = std::min(count, static_cast<int64_t>(row_.size()) - start);
      std::copy_n(row_.data() + start, length, out);
    }
    first += length;
    out += length;
    count -= length;
  }
}

}  // namespace assay::reference
