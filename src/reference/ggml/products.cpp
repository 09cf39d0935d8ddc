// SPDX-License-Identifier: Apache-2.0
// Products with weights: mul_mat and mul_mat_id, and what kernels of the CPU back end err in them.
//
// The result is x . W^T of every pair of matrices; W is repeated over the outer dimensions of x
// (grouped heads). In the CPU back end the activation x is converted first, to the type that the
// type of W is multiplied with:
//
//   W                            x becomes                  error of a value of x
//   f32                          itself                     0
//   f16, bf16                    f16, bf16                  ULP / 2: at most |x| 2^-11, |x| 2^-8
//   q4_0 q5_0 q8_0 iq4_nl        q8_0: 32 values of one     d/2 + |x| 2^-11, d = max|x| of the block / 127: the scale
//     mxfp4 nvfp4 q1_0             step, float16 scale        is a float16
//   q4_1 q5_1                    q8_1: the same with sums   the same, and 2^-11 |sum of the block| max|W| for the sum
//   k-quants, iq*, tq*           q8_K: 256 values           d/2
//
// so that w = sum |W| error, or 8 standard deviations of that sum and the roundoff times |y|
// (values that are all equal
// are rounded to the same side) where that is less, which it is in long sums, to which the rounding
// of the sum itself comes: 2 sqrt(K) u C with C = |W| . |x|. The variance takes d^2/12 and the
// square of a unit in the last place / 12: where one value is most of a sum, its rounding is that
// of all results, and no mean over values of other sizes bounds it. Of scales it takes 0.425 of the
// roundoff.
#include <algorithm>
#include <cmath>

#include "reference/ggml/dialect.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::ggml {
namespace {

/// Both operands and, of mul_mat_id, which matrix every row takes.
struct Product {
  Source w, x;
  Whole ids;  // [tokens, used]
  bool by_ids = false;
  Dims shape;  // of the result: four axes
};

Result<Product> product_of(const Arguments& arguments) {
  Product product;
  ASSAY_TRY(product.w, source(arguments, "src0"));
  ASSAY_TRY(product.x, source(arguments, "src1"));
  for (const TensorView* view : {&product.w.view(), &product.x.view()}) {
    if (!is_float(view->dtype) || values_per_element(view->dtype) != 1)
      return fail(arguments.unsupported(view->dtype, " values"));
  }
  const Sizes& w = product.w.ne;
  const Sizes& x = product.x.ne;
  const auto mismatch = [&] {
    return fail(arguments.invalid("weight ", text_of(w), " and activation ", text_of(x)));
  };
  if (w[0] != x[0]) return mismatch();
  product.by_ids = arguments.call().name == "ggml.mul_mat_id";
  product.shape = {x[3], x[2], x[1], w[1]};
  if (product.by_ids) {
    ASSAY_TRY(const Source ids, source(arguments, "src2"));
    ASSAY_TRY(product.ids, whole(ids.view()));
    if (w[3] != 1 || x[3] != 1 || ids.ne[1] != x[2] || x[1] == 0 || ids.ne[0] % x[1] != 0)
      return mismatch();
    for (const int64_t id : product.ids.values) {
      if (id < 0 || id >= w[2]) return fail(arguments.invalid("matrix ", id, " of ", w[2]));
    }
    product.shape[2] = ids.ne[0];
  } else if (w[2] == 0 || w[3] == 0 || x[2] % w[2] != 0 || x[3] % w[3] != 0) {
    return mismatch();
  }
  ASSAY_TRY_STATUS(checked_count(product.shape));
  return product;
}

/// Row `row` of the second axis of one matrix [n, k] of four axes, or the whole of it.
TensorView matrix_of(const TensorView& view, int64_t i2) {
  TensorView matrix = section(view, 1, i2, 1);
  matrix.shape = Dims(view.shape.span().subspan(2));
  matrix.strides = Dims(view.strides.span().subspan(2));
  return matrix;
}

/// Axis 0 of `parts` and axis 1 of `repeated` parts each split in two, so that matrices of W meet
/// those of x by broadcasting: [parts, repeats, parts, repeats, rows, columns].
TensorView split_matrices(const TensorView& view, const Sizes& of_w) {
  TensorView split = view;
  split.shape = {of_w[3],       view.shape[0] / of_w[3],
                 of_w[2],       view.shape[1] / of_w[2],
                 view.shape[2], view.shape[3]};
  split.strides = {view.strides[0] * split.shape[1],
                   view.strides[0],
                   view.strides[1] * split.shape[3],
                   view.strides[1],
                   view.strides[2],
                   view.strides[3]};
  return split;
}

/// x . W^T of every pair; `w` and `x` as the product's operands, or with fewer columns.
Result<Wide> multiplied(const Product& product, const TensorView& w, const TensorView& x, int jobs,
                        bool absolute) {
  if (!product.by_ids) {
    ASSAY_TRY(Wide result, matmul(split_matrices(x, product.w.ne), split_matrices(w, product.w.ne),
                                  {.transpose_w = true, .jobs = jobs, .absolute = absolute}));
    result.shape = product.shape;
    return result;
  }
  Wide result(product.shape);
  const int64_t used = product.shape[2];
  const int64_t n = product.shape[3];
  for (int64_t row = 0; row < product.ids.size(); ++row)
    multiply_into(section(matrix_of(x, row / used), 0, row % used % x.shape[2], 1),
                  transposed(matrix_of(w, product.ids.data()[row])), result.data() + row * n, n,
                  jobs, absolute);
  return result;
}

Result<Values> multiply(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(const Product product, product_of(arguments));
  ASSAY_TRY(Wide y, multiplied(product, product.w.view(), product.x.view(), options.jobs, false));
  return result_of(std::move(y));
}

// ---- Rounding ---------------------------------------------------------------------------------

/// Standard deviations that the converted values of one sum may be off together.
constexpr double kDeviations = 8;

/// What the activation is converted to.
struct Conversion {
  double roundoff = 0;     // of a value, relative; of blocks that of their scales
  int min_exponent = 0;    // of a value that is no block's: below it the steps stay as they are
  int64_t block = 0;       // values of one step; 0: no steps
  bool with_sums = false;  // of blocks, in float16
};

Conversion conversion_for(std::string_view type) {
  if (type == "f16" || type == "float16")
    return {.roundoff = kFloat16Roundoff, .min_exponent = -14};
  if (type == "bf16" || type == "bfloat16")
    return {.roundoff = kBFloat16Roundoff, .min_exponent = -126};
  if (type == "q4_1" || type == "q5_1")
    return {.roundoff = kFloat16Roundoff, .block = 32, .with_sums = true};
  for (const std::string_view one :
       {"q4_0", "q5_0", "q8_0", "iq4_nl", "mxfp4", "nvfp4", "q1_0", "q8_1"}) {
    if (type == one) return {.roundoff = kFloat16Roundoff, .block = 32};
  }
  if (type.starts_with("q") || type.starts_with("iq") || type.starts_with("tq"))
    return {.block = 256};
  return {};
}

/// Errors of the values of x: the largest possible ones, and mean squares.
struct ActivationError {
  Wide largest;
  Wide mean_square;
};
/// Of values that are rounded one by one.
ActivationError rounding_error(const Wide& x, const Conversion& conversion) {
  ActivationError error{Wide(x.shape, 0.0), Wide(x.shape, 0.0)};
  for (int64_t i = 0; i < x.size(); ++i) {
    if (x.data()[i] == 0) continue;
    int exponent = 0;
    std::frexp(x.data()[i], &exponent);  // [0.5, 1) times 2^exponent
    const double half_unit =
        std::ldexp(conversion.roundoff, std::max(exponent - 1, conversion.min_exponent));
    error.largest.data()[i] = half_unit;
    error.mean_square.data()[i] = half_unit * half_unit / 3;
  }
  return error;
}
ActivationError activation_error(const Wide& x, const Conversion& conversion) {
  if (conversion.block == 0) return rounding_error(x, conversion);
  ActivationError error{Wide(x.shape), Wide(x.shape)};
  const int64_t length = std::max<int64_t>(x.shape[3], 1);
  const int64_t block = conversion.block;
  for (int64_t begin = 0, end = 0; begin < x.size(); begin = end) {
    end = std::min(begin + block, (begin / length + 1) * length);
    double size = 0;
    for (int64_t i = begin; i < end; ++i) size = std::fmax(size, std::fabs(x.data()[i]));
    const double step = size / 127;
    for (int64_t i = begin; i < end; ++i) {
      const double value = std::fabs(x.data()[i]);
      // A q8_K block of 128 steps has no +128 for the largest value of the other sign.
      const bool at_the_end = conversion.block == 256 && value > size - size / 127;
      error.largest.data()[i] = step * (at_the_end ? 1 : 0.5) + conversion.roundoff * value;
      const double rounded = kMeanRounding * conversion.roundoff * value;
      error.mean_square.data()[i] = step * step / 12 + rounded * rounded;
    }
  }
  return error;
}

template <typename F>
Wide by_blocks(const Wide& values, int64_t block, F reduce) {
  Dims shape = values.shape;
  shape[3] = (shape[3] + block - 1) / block;
  Wide reduced(shape, 0.0);
  const int64_t length = values.shape[3];
  for (int64_t i = 0; i < values.size(); ++i) {
    double& total = reduced.data()[i / length * shape[3] + i % length / block];
    total = reduce(total, values.data()[i]);
  }
  return reduced;
}

/// 2^-11 times the sum over blocks of |sum of x| max|W|.
Status add_sums_error(const Product& product, const Wide& w, const Wide& x, int64_t block, int jobs,
                      Magnitudes* rounding) {
  const Wide sums = by_blocks(x, block, [](double sum, double value) { return sum + value; });
  const Wide sizes = by_blocks(
      w, block, [](double size, double value) { return std::fmax(size, std::fabs(value)); });
  ASSAY_TRY(const Wide error, multiplied(product, view_of(sizes), view_of(sums), jobs, true));
  for (int64_t i = 0; i < error.size(); ++i) {
    const double w_i = kFloat16Roundoff * error.data()[i];
    rounding->allowed.data()[i] += w_i;
    rounding->variance.data()[i] += w_i * w_i / 12;
  }
  return {};
}

Result<Magnitudes> rounding_of_product(const Arguments& arguments, int jobs) {
  ASSAY_TRY(const Product product, product_of(arguments));
  const auto of = [&](const TensorView& w, const TensorView& x, bool absolute) {
    return multiplied(product, w, x, jobs, absolute);
  };
  ASSAY_TRY(Wide c, of(product.w.view(), product.x.view(), true));
  Magnitudes rounding =
      scaled_rounding(std::move(c), 2 * kFloat32Roundoff, static_cast<double>(product.w.ne[0]));
  // The variance of a sum is that of its terms, w is four times its root.
  for (double& value : rounding.variance.values) value /= 4;
  ASSAY_TRY(const std::string type, stored_type(arguments, "src0"));
  const Conversion conversion = conversion_for(type);
  if (conversion.roundoff == 0 && conversion.block == 0) return rounding;
  ASSAY_TRY(const Wide x, values_of(arguments, "src1"));
  ASSAY_TRY(Wide w, values_of(arguments, "src0"));
  const ActivationError error = activation_error(x, conversion);
  ASSAY_TRY(const Wide bound, of(product.w.view(), view_of(error.largest), true));
  if (conversion.with_sums)
    ASSAY_TRY_STATUS(add_sums_error(product, w, x, conversion.block, jobs, &rounding));
  for (double& value : w.values) value *= value;
  ASSAY_TRY(const Wide variance, of(view_of(w), view_of(error.mean_square), false));
  ASSAY_TRY(const Wide y, of(product.w.view(), product.x.view(), false));
  for (int64_t i = 0; i < bound.size(); ++i) {
    const double likely =
        kDeviations * std::sqrt(variance.data()[i]) + conversion.roundoff * std::fabs(y.data()[i]);
    rounding.allowed.data()[i] += std::fmin(bound.data()[i], likely);
    rounding.variance.data()[i] += variance.data()[i];
  }
  return rounding;
}

}  // namespace

std::span<const DialectRow> product_operators() {
  static constexpr auto kProduct = OperatorClass::Product;
  static constexpr DialectRow kTable[] = {
      own("ggml.mul_mat", kProduct, multiply, rounding_of_product),
      own("ggml.mul_mat_id", kProduct, multiply, rounding_of_product),
  };
  return kTable;
}

}  // namespace assay::reference::ggml
