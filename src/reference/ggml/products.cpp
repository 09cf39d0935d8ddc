// SPDX-License-Identifier: Apache-2.0
// Products with weights: mul_mat and mul_mat_id, and what kernels of the CPU back end err in them.
//
// The result is x . W^T of every pair of matrices; W is repeated over the outer dimensions of x (grouped heads). In the
// CPU back end the activation x is converted first, to the type that the type of W is multiplied with:
//
//   W                            x becomes                  error of a value of x
//   f32                          itself                     0
//   f16, bf16                    f16, bf16                  |x| 2^-11, |x| 2^-8
//   q4_0 q5_0 q8_0 iq4_nl        q8_0: 32 values of one     d/2 + |x| 2^-11, d = max|x| of the block / 127: the scale
//     mxfp4 nvfp4 q1_0             step, float16 scale        is a float16
//   q4_1 q5_1                    q8_1: the same with sums   the same, and 2^-11 |sum of the block| max|W| for the sum
//   k-quants, iq*, tq*           q8_K: 256 values           d/2
//
// so that w = sum |W| error, or 8 standard deviations of that sum and the roundoff times |y| (values that are all equal
// are rounded to the same side) where that is less, which it is in long sums, to which the rounding of the sum itself comes: 2 sqrt(K) u C with C = |W| . |x|. The
// variance takes d^2/12 and 0.425 of the roundoff.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/ascii.hpp"
#include "reference/aten/shapes.hpp"
#include "reference/ggml/volume.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::ggml {
namespace {

/// A source with four axes, slowest first, whatever its strides.
struct Operand {
  TensorView view;
  Sizes ne{};
};
Result<Operand> operand_of(const Arguments& arguments, const Tensor& tensor) {
  Operand operand;
  operand.view = tensor.view;
  ASSAY_TRY(operand.ne, sizes_of(arguments, tensor.view));
  if (!is_float(tensor.view.dtype) || values_per_element(tensor.view.dtype) != 1)
    return fail(arguments.unsupported(std::string(name(tensor.view.dtype)) + " values"));
  while (operand.view.shape.size() < 4) aten::insert_axis(operand.view, 0);
  return operand;
}
/// Rows of dimension 1 of one pair of the outer ones: [ne1, ne0].
TensorView matrix(const Operand& operand, int64_t i2, int64_t i3) {
  TensorView view = section(section(operand.view, 0, i3, 1), 1, i2, 1);
  view.shape = Dims(view.shape.span().subspan(2));
  view.strides = Dims(view.strides.span().subspan(2));
  return view;
}

/// Both operands and, of mul_mat_id, which matrix every row takes.
struct Product {
  Tensor kept_w, kept_x;
  Operand w, x;
  Whole ids;
  Sizes of_ids{};
  bool by_ids = false;
  Sizes ne{};  // of the result
};

Result<Product> product_of(const Arguments& arguments) {
  Product product;
  ASSAY_TRY(product.kept_w, arguments.tensor("src0"));
  ASSAY_TRY(product.kept_x, arguments.tensor("src1"));
  ASSAY_TRY(product.w, operand_of(arguments, product.kept_w));
  ASSAY_TRY(product.x, operand_of(arguments, product.kept_x));
  const Sizes& w = product.w.ne;
  const Sizes& x = product.x.ne;
  const auto mismatch = [&] {
    return fail(arguments.invalid("weight " + text_of(w) + " and activation " + text_of(x)));
  };
  if (w[0] != x[0]) return mismatch();
  product.by_ids = arguments.call().name == "ggml.mul_mat_id";
  if (product.by_ids) {
    ASSAY_TRY(product.ids, integers_of(arguments, "src2", &product.of_ids));
    if (w[3] != 1 || x[3] != 1 || product.of_ids[1] != x[2] || x[1] == 0 ||
        product.of_ids[0] % x[1] != 0)
      return mismatch();
    for (const int64_t id : product.ids.values) {
      if (id < 0 || id >= w[2])
        return fail(
            arguments.invalid("matrix " + std::to_string(id) + " of " + std::to_string(w[2])));
    }
    product.ne = {w[1], product.of_ids[0], x[2], 1};
  } else {
    if (w[2] == 0 || w[3] == 0 || x[2] % w[2] != 0 || x[3] % w[3] != 0) return mismatch();
    product.ne = {w[1], x[1], x[2], x[3]};
  }
  ASSAY_TRY_STATUS(checked_count(shape_of(product.ne)));
  return product;
}

/// x . W^T of every pair; `w` and `x` of the sizes of the product's operands, or with fewer columns.
Volume multiplied(const Product& product, const Operand& w, const Operand& x, int jobs,
                  bool absolute) {
  Volume result(product.ne);
  if (result.values.size() == 0) return result;
  if (w.ne[0] == 0) {
    std::fill(result.values.values.begin(), result.values.values.end(), 0.0);
    return result;
  }
  if (product.by_ids) {
    for (int64_t token = 0; token < product.ne[2]; ++token)
      for (int64_t used = 0; used < product.ne[1]; ++used) {
        const int64_t id =
            product.ids.values[static_cast<size_t>(used + product.of_ids[0] * token)];
        multiply_into(section(matrix(x, token, 0), 0, used % x.ne[1], 1),
                      transposed(matrix(w, id, 0)), result.row(used, token, 0), product.ne[0], jobs,
                      absolute);
      }
    return result;
  }
  for (int64_t i3 = 0; i3 < product.ne[3]; ++i3)
    for (int64_t i2 = 0; i2 < product.ne[2]; ++i2)
      multiply_into(matrix(x, i2, i3),
                    transposed(matrix(w, i2 / (x.ne[2] / w.ne[2]), i3 / (x.ne[3] / w.ne[3]))),
                    result.row(0, i2, i3), product.ne[0], jobs, absolute);
  return result;
}

Result<Values> multiply(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(const Product product, product_of(arguments));
  return single(multiplied(product, product.w, product.x, options.jobs, false));
}

// ---- Rounding ---------------------------------------------------------------------------------

/// Standard deviations that the converted values of one sum may be off together.
constexpr double kDeviations = 8;

/// What the activation is converted to.
struct Conversion {
  double roundoff = 0;     // of a value, relative
  int64_t block = 0;       // values of one step; 0: no steps
  bool with_sums = false;  // of blocks, in float16
};

Conversion conversion_for(std::string_view type) {
  if (type == "f16" || type == "float16") return {.roundoff = kFloat16Roundoff};
  if (type == "bf16" || type == "bfloat16") return {.roundoff = kBFloat16Roundoff};
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

/// The type in which the weight was stored, in lower case; a weight that comes as values says so by "src0_type".
Result<std::string> weight_type(const Arguments& arguments, const Product& product) {
  ASSAY_TRY(const std::string given, arguments.text("src0_type", ""));
  return lower_case(given.empty() ? name(product.w.view.dtype) : std::string_view(given));
}

/// Errors of the values of x: the largest possible ones, and mean squares.
struct ActivationError {
  Volume largest;
  Volume mean_square;
};
ActivationError activation_error(const Volume& x, const Conversion& conversion) {
  ActivationError error{Volume(x.ne), Volume(x.ne)};
  const int64_t block = conversion.block > 0 ? conversion.block : std::max<int64_t>(x.ne[0], 1);
  for (int64_t row = 0; row < x.rows(); ++row) {
    for (int64_t first = 0; first < x.ne[0]; first += block) {
      const int64_t begin = row * x.ne[0] + first;
      const int64_t end = begin + std::min(block, x.ne[0] - first);
      double size = 0;
      for (int64_t i = begin; i < end; ++i) size = std::fmax(size, std::fabs(x.values.data()[i]));
      const double step = conversion.block > 0 ? size / 127 : 0;
      for (int64_t i = begin; i < end; ++i) {
        const double value = std::fabs(x.values.data()[i]);
        // A q8_K block of 128 steps has no +128 for the largest value of the other sign.
        const bool at_the_end = conversion.block == 256 && value > size - size / 127;
        error.largest.values.data()[i] =
            step * (at_the_end ? 1 : 0.5) + conversion.roundoff * value;
        const double rounded = kMeanRounding * conversion.roundoff * value;
        error.mean_square.values.data()[i] = step * step / 12 + rounded * rounded;
      }
    }
  }
  return error;
}

Tensor tensor_of(const Volume& volume) {
  Tensor tensor = to_tensor(volume.values);
  tensor.view.shape = {volume.ne[3], volume.ne[2], volume.ne[1], volume.ne[0]};
  tensor.view.strides = contiguous_strides(tensor.view.shape);
  return tensor;
}
/// Precondition: `tensor` outlives the result.
Operand operand_of(const Tensor& tensor, const Volume& volume) { return {tensor.view, volume.ne}; }

template <typename F>
Volume by_blocks(const Volume& values, int64_t block, F reduce) {
  Sizes ne = values.ne;
  ne[0] = (ne[0] + block - 1) / block;
  Volume reduced(ne);
  for (int64_t row = 0; row < values.rows(); ++row)
    for (int64_t i = 0; i < ne[0]; ++i) {
      double total = 0;
      for (int64_t j = i * block; j < std::min((i + 1) * block, values.ne[0]); ++j)
        total = reduce(total, values.values.data()[row * values.ne[0] + j]);
      reduced.values.data()[row * ne[0] + i] = total;
    }
  return reduced;
}

/// 2^-11 times the sum over blocks of |sum of x| max|W|.
void add_sums_error(const Product& product, const Volume& w, const Volume& x, int64_t block,
                    int jobs, Magnitudes* rounding) {
  const Volume sums = by_blocks(x, block, [](double sum, double value) { return sum + value; });
  const Volume sizes = by_blocks(
      w, block, [](double size, double value) { return std::fmax(size, std::fabs(value)); });
  const Tensor of_x = tensor_of(sums);
  const Tensor of_w = tensor_of(sizes);
  const Volume error =
      multiplied(product, operand_of(of_w, sizes), operand_of(of_x, sums), jobs, true);
  for (int64_t i = 0; i < error.values.size(); ++i) {
    const double w_i = kFloat16Roundoff * error.values.data()[i];
    rounding->allowed.data()[i] += w_i;
    rounding->variance.data()[i] += w_i * w_i / 12;
  }
}

Result<Magnitudes> rounding_of_product(const Arguments& arguments, int jobs) {
  ASSAY_TRY(const Product product, product_of(arguments));
  Volume c = multiplied(product, product.w, product.x, jobs, true);
  Magnitudes rounding = scaled_rounding(std::move(c.values), 2 * kFloat32Roundoff,
                                        static_cast<double>(product.w.ne[0]));
  // The variance of a sum is that of its terms, w is four times its root.
  for (double& value : rounding.variance.values) value /= 4;
  ASSAY_TRY(const std::string type, weight_type(arguments, product));
  const Conversion conversion = conversion_for(type);
  if (conversion.roundoff == 0 && conversion.block == 0) return rounding;
  ASSAY_TRY(const Volume x, source(arguments, "src1"));
  ASSAY_TRY(Volume w, source(arguments, "src0"));
  const ActivationError error = activation_error(x, conversion);
  const Tensor largest = tensor_of(error.largest);
  const Tensor mean_square = tensor_of(error.mean_square);
  const Volume bound =
      multiplied(product, product.w, operand_of(largest, error.largest), jobs, true);
  if (conversion.with_sums) add_sums_error(product, w, x, conversion.block, jobs, &rounding);
  for (double& value : w.values.values) value *= value;
  const Tensor squares = tensor_of(w);
  const Volume variance = multiplied(product, operand_of(squares, w),
                                     operand_of(mean_square, error.mean_square), jobs, false);
  const Volume y = multiplied(product, product.w, product.x, jobs, false);
  for (int64_t i = 0; i < bound.values.size(); ++i) {
    const double likely = kDeviations * std::sqrt(variance.values.data()[i]) +
                          conversion.roundoff * std::fabs(y.values.data()[i]);
    rounding.allowed.data()[i] += std::fmin(bound.values.data()[i], likely);
    rounding.variance.data()[i] += variance.values.data()[i];
  }
  return rounding;
}

}  // namespace

std::span<const Operator> product_operators() {
  static constexpr Operator kTable[] = {
      {"ggml.mul_mat", OperatorClass::Product, multiply, rounding_of_product},
      {"ggml.mul_mat_id", OperatorClass::Product, multiply, rounding_of_product},
  };
  return kTable;
}

}  // namespace assay::reference::ggml
