// SPDX-License-Identifier: Apache-2.0
// Each variant is matmul() followed by its own steps: rounding, bias, scales. A weight with scale
// and offset is never written out, as x ((w + o) s) = (x w + o sum(x)) s.
//   docs/opcheck/products.md, "Linear"
#include "reference/products/linear.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <type_traits>

#include "reference/elementwise/broadcast.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

MatmulOptions product_options(const LinearOptions& options) {
  return {
      .transpose_x = options.transpose_x, .transpose_w = options.transpose_w, .jobs = options.jobs};
}

/// target = combine(target, term) with `term` broadcast to the target's shape.
template <typename Combine>
Status combine_with(Wide& target, const TensorView& term, std::string_view what, Combine combine) {
  const auto values = BroadcastValues::make(term, target.shape);
  if (!values)
    return fail(values.error().code, std::string(what) + " " + list_text(term.shape.span()) +
                                         " does not fit a product of shape " +
                                         list_text(target.shape.span()));
  double block[kBlock];
  for (int64_t first = 0; first < target.size(); first += kBlock) {
    const int64_t count = std::min(kBlock, target.size() - first);
    values->read(first, count, block);
    double* out = target.data() + first;
    for (int64_t i = 0; i < count; ++i) out[i] = combine(out[i], block[i]);
  }
  return {};
}

Status add(Wide& target, const TensorView& term, std::string_view what) {
  return combine_with(target, term, what, [](double a, double b) { return a + b; });
}
Status multiply(Wide& target, const TensorView& term, std::string_view what) {
  return combine_with(target, term, what, [](double a, double b) { return a * b; });
}

/// [b, n] beside a product of batches [b, m, n] belongs to the batches: [b, 1, n].
TensorView of_batches(const TensorView& term, const Dims& product, bool has_batches) {
  if (!has_batches || term.shape.size() != 2 || product.size() != 3) return term;
  TensorView result = term;
  result.shape = {term.shape[0], 1, term.shape[1]};
  result.strides = {term.strides[0], 0, term.strides[1]};
  return result;
}

/// To the nearest bfloat16, halves to even: the upper 16 bits of a float32, so 45 of a double's 52
/// fraction bits go. Numbers at both ends of bfloat16's range take the general way.
double to_bfloat16(double value) {
  const double magnitude = std::fabs(value);
  if (!(magnitude >= 0x1p-126 && magnitude < 0x1p127)) return round_to(value, DType::BFloat16);
  auto bits = std::bit_cast<uint64_t>(value);
  bits += ((uint64_t{1} << 44) - 1) + ((bits >> 45) & 1);
  return std::bit_cast<double>(bits & ~((uint64_t{1} << 45) - 1));
}

void round_all(Wide& values, DType dtype) {
  if (dtype == DType::BFloat16) {
    for (double& value : values.values) value = to_bfloat16(value);
    return;
  }
  for (double& value : values.values) value = round_to(value, dtype);
}

bool both_have_batches(const TensorView& x, const TensorView& w) {
  return x.shape.size() == 3 && w.shape.size() == 3;
}

Status multiply_rows(Wide& product, const TensorView& row_scale) {
  const int64_t n = product.shape.empty() ? 1 : product.shape[product.shape.size() - 1];
  const int64_t rows = n == 0 ? row_scale.element_count() : product.size() / n;
  if (row_scale.element_count() != rows)
    return fail(Errc::Invalid, "scales of rows ", row_scale.shape,
                " do not fit a product of shape ", product.shape);
  ASSAY_TRY(const Wide scales, widen(row_scale));
  for (int64_t row = 0; row < rows; ++row) {
    const double scale = scales.data()[row];
    double* out = product.data() + row * n;
    for (int64_t i = 0; i < n; ++i) out[i] *= scale;
  }
  return {};
}

/// Makes integers of a row, computing in T, and returns their scale; a NaN stays one and takes the
/// row with it.
template <typename T>
double quantise_row(double* values, int64_t count) {
  T largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<T>(std::fabs(values[i]));
    largest = std::isnan(largest) || largest > magnitude ? largest : magnitude;
  }
  const T scale = largest / T{127};
  if (scale == 0) {
    std::fill_n(values, count, 0.0);
    return 0;
  }
  for (int64_t i = 0; i < count; ++i) {
    // In double 127 x is exact, so that halves are met exactly, too.
    const double steps = std::is_same_v<T, float>
                             ? static_cast<double>(static_cast<T>(values[i]) / scale)
                             : values[i] * 127.0 / static_cast<double>(largest);
    values[i] = quantise_int8(steps);
  }
  return static_cast<double>(scale);
}

}  // namespace

Result<Wide> linear(const TensorView& x, const TensorView& w, const TensorView* bias,
                    const LinearOptions& options) {
  ASSAY_TRY(Wide product, matmul(x, w, product_options(options)));
  if (options.product_type) round_all(product, *options.product_type);
  if (bias != nullptr)
    ASSAY_TRY_STATUS(
        add(product, of_batches(*bias, product.shape, both_have_batches(x, w)), "bias"));
  return product;
}

Result<Wide> linear_per_batch(const TensorView& x, const TensorView& w, const TensorView* bias,
                              const LinearOptions& options) {
  const bool w_has_batches = w.shape.size() == 3;
  if (options.transpose_x || x.shape.size() != 3 || w.shape.size() < 2 || w.shape.size() > 3 ||
      (w_has_batches && w.shape[0] != x.shape[1]))
    return fail(Errc::Invalid, "x ", x.shape, " and w ", w.shape,
                " are not [m, b, k] and [k, n] or [b, k, n]");
  Wide product;
  if (!w_has_batches) {
    ASSAY_TRY(product, matmul(x, w, product_options(options)));
  } else {
    TensorView batch_first = x;
    std::swap(batch_first.shape[0], batch_first.shape[1]);
    std::swap(batch_first.strides[0], batch_first.strides[1]);
    ASSAY_TRY(const Dims shape, matmul_shape(batch_first, w, product_options(options)));
    const int64_t batches = shape[0];
    const int64_t n = shape[2];
    product = Wide(Dims{shape[1], batches, n});
    const TensorView columns = options.transpose_w ? transposed(w) : w;
    for (int64_t b = 0; b < batches; ++b) {
      const auto matrix = [b](TensorView view) {
        view.offset_elements += b * view.strides[0];
        view.shape = {view.shape[1], view.shape[2]};
        view.strides = {view.strides[1], view.strides[2]};
        return view;
      };
      multiply_into(matrix(batch_first), matrix(columns), product.data() + b * n, batches * n,
                    options.jobs);
    }
  }
  if (options.product_type) round_all(product, *options.product_type);
  if (bias != nullptr) ASSAY_TRY_STATUS(add(product, *bias, "bias"));
  return product;
}

Result<Wide> dequantisation_scales(const TensorView& scales) {
  if (scales.dtype != DType::Int64 && scales.dtype != DType::UInt64) return widen(scales);
  ASSAY_TRY_STATUS(checked_count(scales.shape));
  Wide result(scales.shape);
  std::vector<int64_t> bits(result.values.size());
  gather_bytes(scales, 0, result.size(), std::as_writable_bytes(std::span(bits)));
  std::transform(bits.begin(), bits.end(), result.values.begin(), scale_from_bits);
  return result;
}

Result<Wide> quantised_linear(const TensorView& x, const TensorView& w, const TensorView* bias,
                              const TensorView& scale, const TensorView* row_scale,
                              const LinearOptions& options) {
  ASSAY_TRY(Wide product, linear(x, w, bias, options));
  ASSAY_TRY(const Wide scales, dequantisation_scales(scale));
  ASSAY_TRY_STATUS(multiply(
      product, of_batches(view_of(scales), product.shape, both_have_batches(x, w)), "scale"));
  if (row_scale != nullptr) ASSAY_TRY_STATUS(multiply_rows(product, *row_scale));
  return product;
}

Result<Wide> weight_quantised_linear(const TensorView& x_given, const TensorView& w_given,
                                     const TensorView* offset, const TensorView& scale,
                                     int64_t group_size, const LinearOptions& options) {
  ASSAY_TRY(const Dims shape, matmul_shape(x_given, w_given, product_options(options)));
  if (w_given.shape.size() != 2 || group_size < 0)
    return fail(Errc::Invalid, "w ", w_given.shape, " in groups of ", group_size, " rows");
  const TensorView w = options.transpose_w ? transposed(w_given) : w_given;
  const TensorView x = options.transpose_x ? transposed(x_given) : x_given;
  const size_t last = x.shape.size() - 1;
  const int64_t k = w.shape[0];
  const int64_t n = w.shape[1];
  const int64_t size = group_size == 0 ? std::max<int64_t>(k, 1) : group_size;
  const int64_t groups = k / size + (k % size == 0 ? 0 : 1);
  ASSAY_TRY(const Wide scales, dequantisation_scales(scale));
  std::optional<Wide> offsets;
  if (offset != nullptr && offset->element_count() != 0) {
    ASSAY_TRY(offsets, widen(*offset));
  }
  /// Scales and offsets: one for all, one a column, one a group, or one for each column of a group.
  const auto check = [&](const Wide& values, std::string_view what) -> Status {
    if (values.size() == 1 || values.size() == n || values.size() == groups ||
        values.size() == groups * n)
      return {};
    return fail(Errc::Invalid, what, " ", values.shape, " does not fit ", groups, " groups of w ",
                w_given.shape);
  };
  // A vector of as many values as there are groups means the groups, when there are any.
  const auto at = [&](const Wide& values, int64_t group, int64_t j) {
    if (values.size() == 1) return values.data()[0];
    if (values.size() == groups * n) return values.data()[group * n + j];
    return values.data()[group_size != 0 && values.size() == groups ? group : j];
  };
  ASSAY_TRY_STATUS(check(scales, "scale"));
  if (offsets) ASSAY_TRY_STATUS(check(*offsets, "offset"));

  Wide result(shape, 0.0);
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t first = group * size;
    const int64_t depth = std::min(size, k - first);
    const TensorView left = section(x, last, first, depth);
    // x ((w + o) s) = (x w + o sum(x)) s, so that the weight is never written out.
    ASSAY_TRY(const Wide product,
              matmul(left, section(w, 0, first, depth), {.jobs = options.jobs}));
    ASSAY_TRY(const Wide rows, widen(left));
    const int64_t m = n == 0 ? 0 : product.size() / n;
    for (int64_t i = 0; i < m; ++i) {
      double sum = 0;
      if (offsets)
        for (int64_t l = 0; l < depth; ++l) sum += rows.data()[i * depth + l];
      for (int64_t j = 0; j < n; ++j) {
        const double shifted =
            product.data()[i * n + j] + (offsets ? at(*offsets, group, j) * sum : 0.0);
        result.data()[i * n + j] += shifted * at(scales, group, j);
      }
    }
  }
  return result;
}

Result<Wide> dynamic_quantised_linear(const TensorView& x_given, const TensorView& w,
                                      const TensorView& scale, const TensorView* bias,
                                      RowScale row_scale, const LinearOptions& options) {
  ASSAY_TRY_STATUS(matmul_shape(x_given, w, product_options(options)));
  ASSAY_TRY(Wide rows, widen(options.transpose_x ? transposed(x_given) : x_given));
  const int64_t k = rows.shape[rows.shape.size() - 1];
  Wide scales(Dims{k == 0 ? 0 : rows.size() / k});
  for (int64_t row = 0; row < scales.size(); ++row) {
    double* values = rows.data() + row * k;
    scales.data()[row] = row_scale == RowScale::Float32 ? quantise_row<float>(values, k)
                                                        : quantise_row<double>(values, k);
  }
  const TensorView row_scales = view_of(scales);
  LinearOptions rest = options;
  rest.transpose_x = false;
  ASSAY_TRY(Wide product, quantised_linear(view_of(rows), w, nullptr, scale,
                                           k == 0 ? nullptr : &row_scales, rest));
  if (bias != nullptr)
    ASSAY_TRY_STATUS(
        add(product, of_batches(*bias, product.shape, both_have_batches(x_given, w)), "bias"));
  return product;
}

}  // namespace assay::reference
