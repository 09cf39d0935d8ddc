// SPDX-License-Identifier: Apache-2.0
// reduce() joins neighbouring dimensions that are both kept or both reduced and streams the values
// through once, in C order. Running sums and softmax see x as [outer, axis, inner].
#include "reference/selection/reduce.hpp"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference/attention/softmax_row.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

template <typename T>
T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>)  // wraps; signed overflow would be undefined
    return wrapping_add(a, b);
  else
    return a + b;
}

/// [outer, size, inner] of a shape cut at dimensions [first, last]. Precondition: no size is 0, so
/// that no product exceeds the element count.
struct Axis {
  int64_t outer = 1, size = 1, inner = 1;
};
Axis cut_at(const Dims& shape, size_t first, size_t last) {
  Axis axis;
  for (size_t i = 0; i < shape.size(); ++i)
    (i < first ? axis.outer : i <= last ? axis.size : axis.inner) *= shape[i];
  return axis;
}

template <typename T>
void running_sums(Array<T>& x, const Axis& axis, bool exclusive, bool reverse) {
  std::vector<T> sums(static_cast<size_t>(axis.inner));
  for (int64_t outer = 0; outer < axis.outer; ++outer) {
    std::fill(sums.begin(), sums.end(), T{});
    T* base = x.data() + outer * axis.size * axis.inner;
    for (int64_t k = 0; k < axis.size; ++k) {
      T* row = base + (reverse ? axis.size - 1 - k : k) * axis.inner;
      for (size_t i = 0; i < sums.size(); ++i) {
        const T next = plus(sums[i], row[i]);
        row[i] = exclusive ? sums[i] : next;
        sums[i] = next;
      }
    }
  }
}

/// Values of a view in C order, a buffer at a time.
class ValueStream {
 public:
  explicit ValueStream(const TensorView& view) : view_(view), left_(view.element_count()) {}
  /// At most `count` values, at least one as long as there are any.
  std::span<const double> take(int64_t count) {
    if (rest_.empty()) {
      const int64_t length = std::min(left_, static_cast<int64_t>(buffer_.size()));
      rest_ = std::span<const double>(buffer_).first(static_cast<size_t>(length));
      read_values(view_, next_, length, std::span(buffer_).first(static_cast<size_t>(length)));
      next_ += length;
      left_ -= length;
    }
    const size_t taken = std::min(rest_.size(), static_cast<size_t>(count));
    const std::span<const double> result = rest_.first(taken);
    rest_ = rest_.subspan(taken);
    return result;
  }

 private:
  const TensorView& view_;
  int64_t next_ = 0, left_ = 0;
  std::vector<double> buffer_ = std::vector<double>(8192);
  std::span<const double> rest_;
};
class IntegerStream {
 public:
  explicit IntegerStream(const Whole& values) : rest_(values.data(), values.values.size()) {}
  std::span<const int64_t> take(int64_t count) {
    const size_t taken = std::min(rest_.size(), static_cast<size_t>(count));
    const std::span<const int64_t> result = rest_.first(taken);
    rest_ = rest_.subspan(taken);
    return result;
  }

 private:
  std::span<const int64_t> rest_;
};

/// Neighbouring dimensions of the same kind as one.
struct Merged {
  std::vector<int64_t> sizes;
  std::vector<bool> reduced;
  std::vector<int64_t> out_strides;  // of kept dimensions; 0 of reduced ones
};
Merged merge(const Dims& shape, const std::vector<bool>& reduced) {
  Merged merged;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (merged.sizes.empty() || merged.reduced.back() != reduced[i]) {
      merged.sizes.push_back(shape[i]);
      merged.reduced.push_back(reduced[i]);
    } else {
      merged.sizes.back() *= shape[i];
    }
  }
  if (merged.sizes.empty()) {  // a 0-d tensor is a row of one
    merged.sizes.push_back(1);
    merged.reduced.push_back(false);
  }
  merged.out_strides.assign(merged.sizes.size(), 0);
  int64_t stride = 1;
  for (size_t i = merged.sizes.size(); i-- > 0;) {
    if (merged.reduced[i]) continue;
    merged.out_strides[i] = stride;
    stride *= merged.sizes[i];
  }
  return merged;
}

/// out[o] = combine(out[o], value) for every value, in C order.
template <typename Stream, typename T, typename Combine>
void accumulate(Stream& values, const Merged& merged, T* out, Combine combine) {
  const size_t rank = merged.sizes.size();
  const int64_t length = merged.sizes[rank - 1];
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < rank; ++i) rows *= merged.sizes[i];
  if (length == 0) return;
  std::vector<int64_t> index(rank, 0);
  int64_t offset = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t done = 0; done < length;) {
      const auto part = values.take(length - done);
      if (merged.reduced[rank - 1]) {
        T sum = out[offset];
        for (const auto value : part) sum = combine(sum, value);
        out[offset] = sum;
      } else {
        T* at = out + offset + done;
        for (size_t i = 0; i < part.size(); ++i) at[i] = combine(at[i], part[i]);
      }
      done += static_cast<int64_t>(part.size());
    }
    for (size_t i = rank - 1; i-- > 0;) {  // the next row
      offset += merged.out_strides[i];
      if (++index[i] < merged.sizes[i]) break;
      offset -= merged.out_strides[i] * merged.sizes[i];
      index[i] = 0;
    }
  }
}

template <typename T, typename Stream>
Tensor reduced_values(Stream values, Reduction reduction, const Merged& merged, const Dims& shape) {
  using Limits = std::numeric_limits<T>;
  const T lowest = Limits::has_infinity ? -Limits::infinity() : Limits::min();
  const T highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  Array<T> out(shape, reduction == Reduction::Max   ? lowest
                      : reduction == Reduction::Min ? highest
                                                    : T{});
  switch (reduction) {
    case Reduction::Max:  // a NaN stays: it replaces everything, and nothing is larger than it
      accumulate(values, merged, out.data(), [](T a, T b) { return b > a || b != b ? b : a; });
      break;
    case Reduction::Min:
      accumulate(values, merged, out.data(), [](T a, T b) { return b < a || b != b ? b : a; });
      break;
    case Reduction::Sum:
      accumulate(values, merged, out.data(), plus<T>);
  }
  return to_tensor(std::move(out));
}

/// softmax_row() down the columns of a [count, inner] matrix.
void softmax_columns(double* x, int64_t count, int64_t inner) {
  const auto width = static_cast<size_t>(inner);
  std::vector<double> most(width, -std::numeric_limits<double>::infinity());
  std::vector<double> sum(width, 0.0);
  for (int64_t k = 0; k < count; ++k) {
    const double* row = x + k * inner;
    for (size_t i = 0; i < width; ++i) most[i] = row[i] > most[i] ? row[i] : most[i];
  }
  for (int64_t k = 0; k < count; ++k) {
    double* row = x + k * inner;
    for (size_t i = 0; i < width; ++i) row[i] -= most[i];
    exponentials(row, inner, 0);
    for (size_t i = 0; i < width; ++i) sum[i] += row[i];
  }
  for (int64_t k = 0; k < count; ++k) {
    double* row = x + k * inner;
    for (size_t i = 0; i < width; ++i) row[i] /= sum[i];
  }
}

}  // namespace

Result<Tensor> cumsum(const TensorView& x, int64_t axis, bool exclusive, bool reverse) {
  ASSAY_TRY(const size_t at, axis_of(axis, x.shape.size()));
  if (is_integer(x.dtype) || x.dtype == DType::Bool) {
    ASSAY_TRY(Whole values, whole(x));
    if (values.size() != 0) running_sums(values, cut_at(x.shape, at, at), exclusive, reverse);
    return to_tensor(std::move(values));
  }
  ASSAY_TRY(Wide values, widen(x));
  if (values.size() != 0) running_sums(values, cut_at(x.shape, at, at), exclusive, reverse);
  return to_tensor(std::move(values));
}

Result<Tensor> reduce(const TensorView& x, Reduction reduction, std::span<const int64_t> axes) {
  ASSAY_TRY_STATUS(checked_count(x.shape));
  std::vector<bool> reduced(x.shape.size(), axes.empty());
  for (const int64_t axis : axes) {
    ASSAY_TRY(const size_t at, axis_of(axis, x.shape.size()));
    if (reduced[at]) return fail(Errc::Invalid, "axis ", axis, " is listed twice");
    reduced[at] = true;
  }
  Dims shape;
  for (size_t i = 0; i < reduced.size(); ++i)
    if (!reduced[i]) shape.push_back(x.shape[i]);
  ASSAY_TRY(const int64_t count, checked_count(shape));
  if (reduction != Reduction::Sum && count != 0 && x.element_count() == 0)
    return fail(Errc::Invalid, "a tensor of shape ", x.shape, " has no largest or smallest value");
  if (x.element_count() == 0) {  // sums of nothing
    if (is_integer(x.dtype) || x.dtype == DType::Bool) return to_tensor(Whole(shape, 0));
    return to_tensor(Wide(shape, 0.0));
  }
  const Merged merged = merge(x.shape, reduced);
  if (is_integer(x.dtype) || x.dtype == DType::Bool) {
    ASSAY_TRY(const Whole values, whole(x));
    return reduced_values<int64_t>(IntegerStream(values), reduction, merged, shape);
  }
  ASSAY_TRY_STATUS(check_real(x));
  return reduced_values<double>(ValueStream(x), reduction, merged, shape);
}

Result<Wide> softmax(const TensorView& x, std::span<const int64_t> axes) {
  if (axes.empty()) return fail(Errc::Invalid, "softmax along no axis");
  std::vector<size_t> sorted;
  for (const int64_t axis : axes) {
    ASSAY_TRY(const size_t at, axis_of(axis, x.shape.size()));
    sorted.push_back(at);
  }
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i] != sorted[i - 1] + 1)
      return fail(Errc::Invalid, "axes ", axes, " do not follow each other");
  }
  ASSAY_TRY(Wide y, widen(x));
  if (y.size() == 0) return y;
  const Axis axis = cut_at(x.shape, sorted.front(), sorted.back());
  for (int64_t outer = 0; outer < axis.outer; ++outer) {
    double* base = y.data() + outer * axis.size * axis.inner;
    if (axis.inner == 1)
      softmax_row(base, axis.size);
    else
      softmax_columns(base, axis.size, axis.inner);
  }
  return y;
}

}  // namespace assay::reference
