// SPDX-License-Identifier: Apache-2.0
#include "reference/elementwise/broadcast.hpp"

#include <algorithm>
#include <string>

#include "tensor/convert.hpp"

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

Result<Dims> broadcast_shape(const Dims& a, const Dims& b) {
  Dims shape;
  shape.resize(std::max(a.size(), b.size()));
  for (size_t i = 0; i < shape.size(); ++i) {  // from the last dimension on
    const int64_t left = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t right = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (left != right && left != 1 && right != 1)
      return fail(Errc::Invalid, "shapes " + list_text(a.span()) + " and " + list_text(b.span()) +
                                     " do not broadcast");
    shape[shape.size() - 1 - i] = left == 1 ? right : left;
  }
  ASSAY_TRY_STATUS(checked_count(shape));
  return shape;
}

Result<TensorView> expanded(const TensorView& view, const Dims& shape) {
  const bool fits = view.shape.size() <= shape.size() && [&] {
    for (size_t i = 0; i < view.shape.size(); ++i) {
      const int64_t size = view.shape[view.shape.size() - 1 - i];
      if (size != 1 && size != shape[shape.size() - 1 - i]) return false;
    }
    return true;
  }();
  if (!fits)
    return fail(Errc::Invalid, "shape " + list_text(view.shape.span()) + " does not broadcast to " +
                                   list_text(shape.span()));
  TensorView result = view;
  result.shape = shape;
  result.strides = Dims();
  result.strides.resize(shape.size());
  const size_t added = shape.size() - view.shape.size();
  for (size_t i = added; i < shape.size(); ++i) {
    if (view.shape[i - added] != 1) result.strides[i] = view.strides[i - added];
  }
  return result;
}

Result<BroadcastValues> BroadcastValues::make(const TensorView& view, const Dims& shape) {
  if (values_per_element(view.dtype) != 1 || info(view.dtype).kind == DTypeKind::Bits)
    return fail(Errc::Unsupported, std::string(name(view.dtype)) + " has no real values");
  ASSAY_TRY(TensorView whole, expanded(view, shape));
  BroadcastValues values;
  const int64_t count = view.element_count();
  if (!is_tail(view.shape, shape) || count == 0) {
    values.view_ = std::move(whole);
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
