// SPDX-License-Identifier: Apache-2.0
// Brings calls of products to one form, alpha (x . w) scales + beta bias, mostly by changing shapes
// and strides, and computes that form, whole or for some rows. Integers are summed exactly.
// Convolutions, einsum, grouped products and triangular solves are in products_*.cpp.
#include "reference/aten/products.hpp"

#include <algorithm>
#include <cmath>

#include "reference/aten/values.hpp"
#include "reference/elementwise/activation.hpp"
#include "reference/elementwise/broadcast.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

constexpr double kExactIntegers = 0x1p53;  // doubles hold all integers below

/// [k] as [1, k] or [k, 1].
Tensor as_row(Tensor vector) {
  vector.view.shape = {1, vector.view.shape[0]};
  vector.view.strides = {0, vector.view.strides[0]};
  return vector;
}
Tensor as_column(Tensor vector) {
  vector.view.shape = {vector.view.shape[0], 1};
  vector.view.strides = {vector.view.strides[0], 0};
  return vector;
}
Tensor turned(Tensor matrix) {
  matrix.view = transposed(std::move(matrix.view));
  return matrix;
}

Error misfit(const Arguments& arguments, const Tensor& x, const Tensor& w) {
  return arguments.invalid("operands of shapes ", x.view.shape, " and ", w.view.shape,
                           " do not fit");
}

/// A tensor argument with so many dimensions.
Result<Tensor> of_rank(const Arguments& arguments, std::string_view name, size_t rank) {
  ASSAY_TRY(Tensor tensor, arguments.tensor(name));
  if (tensor.view.shape.size() != rank)
    return fail(
        arguments.invalid(name, " has shape ", tensor.view.shape, ", not ", rank, " dimensions"));
  return tensor;
}

/// x . w of operands as torch.matmul takes them; vectors lose their dimension in the result.
Result<Product> matmul_form(const Arguments& arguments, const Tensor& x, const Tensor& w) {
  const size_t x_rank = x.view.shape.size();
  const size_t w_rank = w.view.shape.size();
  if (x_rank == 0 || w_rank == 0) return fail(misfit(arguments, x, w));
  Product product;
  product.x = x_rank == 1 ? as_row(x) : x;
  product.w = w_rank == 1 ? as_column(w) : w;
  ASSAY_TRY(Dims shape, matmul_shape(product.x.view, product.w.view));
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i + 2 == shape.size() && x_rank == 1) continue;
    if (i + 1 == shape.size() && w_rank == 1) continue;
    product.shape.push_back((shape)[i]);
  }
  product.rows_are_those_of_x = w_rank > 1;
  return product;
}

/// beta self + alpha (x . w)
Result<Product> with_addend(const Arguments& arguments, Product product) {
  ASSAY_TRY(product.bias, arguments.tensor("self"));
  ASSAY_TRY(product.alpha, arguments.real("alpha", 1.0));
  ASSAY_TRY(product.beta, arguments.real("beta", 1.0));
  return product;
}

/// torch's linear: the weight is [n, k], or [k] for one output.
Result<Product> linear_form(const Arguments& arguments, std::string_view input) {
  ASSAY_TRY(const Tensor x, arguments.tensor(input));
  ASSAY_TRY(const Tensor w, arguments.tensor("weight"));
  if (w.view.shape.size() > 2) return fail(misfit(arguments, x, w));
  ASSAY_TRY(Product product, matmul_form(arguments, x, w.view.shape.size() == 2 ? turned(w) : w));
  ASSAY_TRY(product.bias, arguments.optional_tensor("bias"));
  return product;
}

/// [m] and [n]: [m, n], sums of one term.
Result<Product> outer_form(const Arguments& arguments, std::string_view left,
                           std::string_view right) {
  ASSAY_TRY(const Tensor x, of_rank(arguments, left, 1));
  ASSAY_TRY(const Tensor w, of_rank(arguments, right, 1));
  return matmul_form(arguments, as_column(x), as_row(w));
}

/// The sum over the batches is one product of depth batches k.
Result<Product> summed_batches_form(const Arguments& arguments) {
  ASSAY_TRY(const Tensor x, of_rank(arguments, "batch1", 3));
  ASSAY_TRY(const Tensor w, of_rank(arguments, "batch2", 3));
  const Dims& a = x.view.shape;
  const Dims& b = w.view.shape;
  if (a[0] != b[0] || a[2] != b[1]) return fail(misfit(arguments, x, w));
  Tensor side_by_side = x;
  side_by_side.view.shape = {a[1], a[0], a[2]};
  side_by_side.view.strides = {x.view.strides[1], x.view.strides[0], x.view.strides[2]};
  ASSAY_TRY_STATUS(checked_count(Dims{a[0], a[2]}));
  ASSAY_TRY(const Tensor left, reshaped(side_by_side, {a[1], a[0] * a[2]}));
  ASSAY_TRY(const Tensor right, reshaped(w, {b[0] * b[1], b[2]}));
  ASSAY_TRY(Product product, matmul_form(arguments, left, right));
  return with_addend(arguments, std::move(product));
}

/// torch.inner: sums over the last dimension of both.
Result<Product> inner_form(const Arguments& arguments) {
  ASSAY_TRY(const Tensor x, arguments.tensor("self"));
  ASSAY_TRY(const Tensor other, arguments.tensor("other"));
  const size_t rank = other.view.shape.size();
  if (rank == 0 || x.view.shape.empty())
    return fail(arguments.unsupported("of a tensor without dimensions"));
  if (rank <= 2) return matmul_form(arguments, x, rank == 2 ? turned(other) : other);
  const int64_t k = other.view.shape[rank - 1];
  int64_t rows = 1;
  Dims tail;
  for (size_t i = 0; i + 1 < rank; ++i) {
    rows *= other.view.shape[i];
    tail.push_back(other.view.shape[i]);
  }
  ASSAY_TRY(const Tensor matrix, reshaped(other, {rows, k}));
  ASSAY_TRY(Product product, matmul_form(arguments, x, turned(matrix)));
  product.shape.resize(product.shape.size() - 1);
  for (const int64_t size : tail) product.shape.push_back(size);
  product.rows_are_those_of_x = false;
  return product;
}

Result<Product> tensordot_form(const Arguments& arguments) {
  ASSAY_TRY(const Tensor x, arguments.tensor("self"));
  ASSAY_TRY(const Tensor w, arguments.tensor("other"));
  ASSAY_TRY(const std::vector<int64_t> x_dims, arguments.integers("dims_self"));
  ASSAY_TRY(const std::vector<int64_t> w_dims, arguments.integers("dims_other"));
  if (x_dims.size() != w_dims.size()) return fail(misfit(arguments, x, w));
  // The free axes, then those that meet; for w the other way round.
  const auto split = [&](const Tensor& tensor, const std::vector<int64_t>& dims, bool meet_first,
                         Dims& free) -> Result<Tensor> {
    std::vector<size_t> meeting, order;
    for (const int64_t dim : dims) {
      ASSAY_TRY(const size_t at, axis(arguments, dim, tensor.view.shape.size()));
      if (at >= tensor.view.shape.size() ||
          std::find(meeting.begin(), meeting.end(), at) != meeting.end())
        return fail(misfit(arguments, x, w));
      meeting.push_back(at);
    }
    for (size_t i = 0; i < tensor.view.shape.size(); ++i) {
      if (std::find(meeting.begin(), meeting.end(), i) != meeting.end()) continue;
      order.push_back(i);
      free.push_back(tensor.view.shape[i]);
    }
    order.insert(meet_first ? order.begin() : order.end(), meeting.begin(), meeting.end());
    Tensor moved = tensor;
    int64_t depth = 1;
    for (size_t i = 0; i < order.size(); ++i) {
      moved.view.shape[i] = tensor.view.shape[order[i]];
      moved.view.strides[i] = tensor.view.strides[order[i]];
    }
    for (const size_t at : meeting) depth *= tensor.view.shape[at];
    const int64_t rows = element_count(free).value_or(0);
    return reshaped(moved, meet_first ? Dims{depth, rows} : Dims{rows, depth});
  };
  Dims left_free, right_free;
  ASSAY_TRY(const Tensor left, split(x, x_dims, false, left_free));
  ASSAY_TRY(const Tensor right, split(w, w_dims, true, right_free));
  for (size_t i = 0; i < x_dims.size(); ++i) {
    ASSAY_TRY(const size_t a, axis(arguments, x_dims[i], x.view.shape.size()));
    ASSAY_TRY(const size_t b, axis(arguments, w_dims[i], w.view.shape.size()));
    if (x.view.shape[a] != w.view.shape[b]) return fail(misfit(arguments, x, w));
  }
  ASSAY_TRY(Product product, matmul_form(arguments, left, right));
  product.shape = left_free;
  for (const int64_t size : right_free) product.shape.push_back(size);
  product.rows_are_those_of_x = right_free.size() == 1;
  return product;
}

/// Products of 8-bit floats: scales of tensors, of rows and of columns.
Result<Product> scaled_form(const Arguments& arguments) {
  ASSAY_TRY(const Tensor x, of_rank(arguments, "self", 2));
  ASSAY_TRY(const Tensor w, of_rank(arguments, "mat2", 2));
  if (arguments.has("scale_result"))
    return fail(arguments.unsupported("a scale of the result depends on its type"));
  ASSAY_TRY(Product product, matmul_form(arguments, x, w));
  ASSAY_TRY(product.bias, arguments.optional_tensor("bias"));
  for (const std::string_view name : {"scale_a", "scale_b"}) {
    ASSAY_TRY(const Tensor scale, arguments.tensor(name));
    const int64_t count = scale.view.element_count();
    const bool of_rows = name == "scale_a";
    const int64_t lines = product.shape[of_rows ? 0 : 1];
    const Dims expected = of_rows ? Dims{lines, 1} : Dims{1, lines};
    if (count != 1 && scale.view.shape != expected)
      return fail(arguments.unsupported(name, " of shape ", scale.view.shape,
                                        ": scales of blocks have no reference"));
    product.scales.push_back(scale);
  }
  return product;
}

/// Weights of int8 with a scale for each of their rows.
Result<Product> packed_int8_form(const Arguments& arguments) {
  ASSAY_TRY(const Tensor x, of_rank(arguments, "self", 2));
  ASSAY_TRY(const Tensor w, of_rank(arguments, "mat2", 2));
  ASSAY_TRY(Product product, matmul_form(arguments, x, turned(w)));
  ASSAY_TRY(const Tensor scales, of_rank(arguments, "scales", 1));
  product.scales.push_back(scales);
  return product;
}

Result<Product> form_of(const Arguments& arguments, std::string_view operation) {
  if (operation == "linear") return linear_form(arguments, "input");
  if (operation == "mkldnn_linear") return linear_form(arguments, "self");
  if (operation == "outer" || operation == "ger") return outer_form(arguments, "self", "vec2");
  if (operation == "addbmm") return summed_batches_form(arguments);
  if (operation == "inner") return inner_form(arguments);
  if (operation == "tensordot") return tensordot_form(arguments);
  if (operation == "_scaled_mm") return scaled_form(arguments);
  if (operation == "_weight_int8pack_mm") return packed_int8_form(arguments);
  if (operation == "addr") {
    ASSAY_TRY(Product product, outer_form(arguments, "vec1", "vec2"));
    return with_addend(arguments, std::move(product));
  }
  struct Names {
    std::string_view operation, x, w;
    size_t x_rank, w_rank;  // 0: any
    bool addend;
  };
  static constexpr Names kNames[] = {
      {"mm", "self", "mat2", 2, 2, false},
      {"bmm", "self", "mat2", 3, 3, false},
      {"_int_mm", "self", "mat2", 2, 2, false},
      {"matmul", "self", "other", 0, 0, false},
      {"linalg_matmul", "self", "other", 0, 0, false},
      {"mv", "self", "vec", 2, 1, false},
      {"dot", "self", "tensor", 1, 1, false},
      {"vdot", "self", "other", 1, 1, false},
      {"addmm", "mat1", "mat2", 2, 2, true},
      {"_addmm_activation", "mat1", "mat2", 2, 2, true},
      {"addmv", "mat", "vec", 2, 1, true},
      {"baddbmm", "batch1", "batch2", 3, 3, true},
  };
  const auto* found = std::find_if(std::begin(kNames), std::end(kNames), [&](const Names& names) {
    return names.operation == operation;
  });
  if (found == std::end(kNames)) return fail(arguments.unsupported("no product"));
  const auto operand_of = [&](std::string_view name, size_t rank) {
    return rank == 0 ? arguments.tensor(name) : of_rank(arguments, name, rank);
  };
  ASSAY_TRY(const Tensor x, operand_of(found->x, found->x_rank));
  ASSAY_TRY(const Tensor w, operand_of(found->w, found->w_rank));
  // Batches of these do not broadcast.
  if (found->x_rank == 3 && x.view.shape[0] != w.view.shape[0])
    return fail(misfit(arguments, x, w));
  ASSAY_TRY(Product product, matmul_form(arguments, x, w));
  if (!found->addend) return product;
  return with_addend(arguments, std::move(product));
}

// ---- Computing a form -------------------------------------------------------------------------

/// values = combine(values, term), the term (or its magnitude) broadcast to the result's shape.
/// rows  of the result, which `values` holds; nothing: all
template <typename Combine>
Status combine_with(Wide& values, const Tensor& term, const Product& product,
                    std::optional<std::span<const int64_t>> rows, bool absolute, Combine combine) {
  ASSAY_TRY(const BroadcastValues terms, BroadcastValues::make(term.view, product.shape));
  std::vector<double> block(kBlock);
  const auto apply = [&](int64_t source, int64_t count, double* out) {
    for (int64_t first = 0; first < count; first += kBlock) {
      const int64_t length = std::min(kBlock, count - first);
      terms.read(source + first, length, block.data());
      for (int64_t i = 0; i < length; ++i) {
        const double one = block[static_cast<size_t>(i)];
        out[first + i] = combine(out[first + i], absolute ? std::fabs(one) : one);
      }
    }
  };
  if (!rows) {
    apply(0, values.size(), values.data());
  } else {
    const int64_t n = values.shape[1];
    for (size_t i = 0; i < rows->size(); ++i)
      apply((*rows)[i] * n, n, values.data() + static_cast<int64_t>(i) * n);
  }
  return {};
}

Status finish(Wide& values, const Product& product, std::optional<std::span<const int64_t>> rows,
              bool absolute) {
  const double alpha = absolute ? std::fabs(product.alpha) : product.alpha;
  const double beta = absolute ? std::fabs(product.beta) : product.beta;
  if (alpha != 1)
    for (double& value : values.values) value *= alpha;
  for (const Tensor& scale : product.scales)
    ASSAY_TRY_STATUS(combine_with(values, scale, product, rows, absolute,
                                  [](double value, double factor) { return value * factor; }));
  // torch ignores the addend of beta 0, whatever is in it.
  if (product.bias && beta != 0)
    ASSAY_TRY_STATUS(
        combine_with(values, *product.bias, product, rows, absolute,
                     [beta](double value, double addend) { return value + beta * addend; }));
  return {};
}

int64_t largest_magnitude(const Whole& values) {
  int64_t largest = 0;
  for (const int64_t value : values.values) {
    if (value == std::numeric_limits<int64_t>::min()) return std::numeric_limits<int64_t>::max();
    largest = std::max(largest, value < 0 ? -value : value);
  }
  return largest;
}

/// Sums of integers, wrapped to the operands' type (_int_mm: to int32): those of the fp64 product
/// where none can exceed 2^53, else added up again modulo 2^64.
Result<Values> multiply_integers(const Arguments& arguments, const Product& product, int jobs) {
  const DType dtype = product.x.view.dtype;
  ASSAY_TRY(Wide rounded, multiply(product, jobs));
  Whole result(rounded.shape);
  ASSAY_TRY(const Whole x, whole(product.x.view));
  ASSAY_TRY(const Whole w, whole(product.w.view));
  const int64_t k = std::max<int64_t>(product_terms(product), 1);
  double addend = 0;
  if (product.bias) {
    ASSAY_TRY(const Whole bias, whole(product.bias->view));
    addend = std::fabs(product.beta) * static_cast<double>(largest_magnitude(bias));
  }
  const double bound = std::fabs(product.alpha) * static_cast<double>(k) *
                           static_cast<double>(largest_magnitude(x)) *
                           static_cast<double>(largest_magnitude(w)) +
                       addend;
  const bool fits = bound < kExactIntegers;
  if (!fits && (product.bias || product.alpha != 1 || product.x.view.shape.size() != 2 ||
                product.w.view.shape.size() != 2))
    return fail(arguments.unsupported("of integers whose sums exceed 2^53"));
  const int64_t m = x.shape[x.shape.size() - 2];
  const int64_t n = w.shape[w.shape.size() - 1];
  const DType out = operation_of(arguments.call().name) == "_int_mm" ? DType::Int32 : dtype;
  for (int64_t i = 0; i < result.size(); ++i) {
    uint64_t sum = 0;
    if (fits) {
      sum = static_cast<uint64_t>(static_cast<int64_t>(rounded.data()[i]));
    } else {
      for (int64_t l = 0; l < x.shape[1]; ++l)
        sum += static_cast<uint64_t>(x.data()[i / n % m * x.shape[1] + l]) *
               static_cast<uint64_t>(w.data()[l * n + i % n]);
    }
    result.data()[i] = wrap_to(static_cast<int64_t>(sum), out);
  }
  return single(to_tensor(std::move(result)));
}

Result<Values> evaluate_product(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(const std::optional<Product> product, product_of(arguments));
  if (!product) return fail(arguments.unsupported("no product"));
  if (is_whole(product->x.view.dtype) && is_whole(product->w.view.dtype))
    return multiply_integers(arguments, *product, options.jobs);
  return single(multiply(*product, options.jobs));
}

/// relu or gelu of addmm; gelu as the CPU has it, by erf.
Result<Values> evaluate_activation(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(const bool gelu, arguments.truth("use_gelu", false));
  ASSAY_TRY(const std::optional<Product> product, product_of(arguments));
  if (!product) return fail(arguments.unsupported("no product"));
  ASSAY_TRY(const Wide values, multiply(*product, options.jobs));
  const TensorView x = view_of(values);
  return single(gelu ? reference::gelu(x, GeluForm::Erf) : relu(x));
}

Result<Values> evaluate_convolution(const Arguments& arguments, const EvaluateOptions& options) {
  return single(convolve(arguments, options.jobs));
}

Result<Values> evaluate_grouped(const Arguments& arguments, const EvaluateOptions& options) {
  return single(grouped_product(arguments, options.jobs));
}

}  // namespace

std::string_view operation_of(std::string_view name) {
  name.remove_prefix(std::min(name.size(), std::string_view("aten.").size()));
  name = name.substr(0, name.find('.'));
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

Result<std::optional<Product>> product_of(const Arguments& arguments) {
  const std::string_view name = arguments.call().name;
  if (is_convolution(name) || is_grouped_product(name)) return std::optional<Product>();
  if (operation_of(name) == "einsum") return einsum_product(arguments);
  ASSAY_TRY(Product product, form_of(arguments, operation_of(name)));
  return std::optional(std::move(product));
}

int64_t product_terms(const Product& product) {
  return product.x.view.shape[product.x.view.shape.size() - 1];
}

Result<std::optional<Wide>> addend_of(const Product& product,
                                      const std::optional<std::span<const int64_t>>& rows) {
  if (!product.bias || product.beta == 0) return std::nullopt;
  Wide values(product.shape);
  if (rows) {
    const int64_t last = product.shape.empty() ? 1 : product.shape[product.shape.size() - 1];
    values = Wide(Dims{static_cast<int64_t>(rows->size()), last});
  }
  ASSAY_TRY_STATUS(
      combine_with(values, *product.bias, product, rows, false,
                   [&product](double, double addend) { return product.beta * addend; }));
  return values;
}

Result<Wide> multiply(const Product& product, int jobs, bool absolute) {
  ASSAY_TRY(Wide values,
            matmul(product.x.view, product.w.view, {.jobs = jobs, .absolute = absolute}));
  values.shape = product.shape;
  ASSAY_TRY_STATUS(finish(values, product, std::nullopt, absolute));
  if (product.order.empty()) return values;
  TensorView moved = view_of(values);
  for (size_t i = 0; i < product.order.size(); ++i) {
    moved.shape[i] = values.shape[product.order[i]];
    moved.strides[i] = contiguous_strides(values.shape)[product.order[i]];
  }
  return widen(moved);
}

Result<Wide> multiply_rows(const Product& product, std::span<const int64_t> rows, int jobs,
                           bool absolute) {
  const TensorView& x = product.x.view;
  const TensorView& w = product.w.view;
  ASSAY_TRY(const Dims whole_shape, matmul_shape(x, w));
  const size_t rank = whole_shape.size();
  const int64_t m = whole_shape[rank - 2];
  const int64_t n = whole_shape[rank - 1];
  const int64_t k = product_terms(product);
  ASSAY_TRY_STATUS(checked_count(Dims{static_cast<int64_t>(rows.size()), std::max(n, k)}));
  Wide values(Dims{static_cast<int64_t>(rows.size()), n});

  /// The matrix of one batch of the result; leading sizes of 1, and missing ones, stand for every
  /// batch.
  const auto matrix_of = [&](const TensorView& view, int64_t batch) {
    TensorView matrix = view;
    const size_t own = view.shape.size() - 2;
    matrix.shape = {view.shape[own], view.shape[own + 1]};
    matrix.strides = {view.strides[own], view.strides[own + 1]};
    for (size_t i = rank - 2; i-- > 0;) {
      const int64_t place = batch % whole_shape[i];
      batch /= whole_shape[i];
      const size_t missing = rank - 2 - own;
      if (i >= missing && view.shape[i - missing] != 1)
        matrix.offset_elements += place * view.strides[i - missing];
    }
    return matrix;
  };
  Wide left(Dims{static_cast<int64_t>(rows.size()), k});
  for (size_t i = 0; i < rows.size(); ++i)
    read_values(section(matrix_of(x, rows[i] / m), 0, rows[i] % m, 1), 0, k,
                std::span(left.values).subspan(i * static_cast<size_t>(k), static_cast<size_t>(k)));
  // Rows that meet the same matrix are one product.
  const bool one_matrix = w.shape.size() == 2;
  for (size_t first = 0; first < rows.size();) {
    size_t last = first + 1;
    while (last < rows.size() && (one_matrix || rows[last] / m == rows[first] / m)) ++last;
    const auto from = static_cast<int64_t>(first);
    multiply_into(section(view_of(left), 0, from, static_cast<int64_t>(last - first)),
                  matrix_of(w, rows[first] / m), values.data() + from * n, n, jobs, absolute);
    first = last;
  }
  ASSAY_TRY_STATUS(finish(values, product, rows, absolute));
  return values;
}

std::span<const Overloads> product_overloads() {
  constexpr auto kProduct = OperatorClass::Product;
  static constexpr Overloads kTable[] = {
      {"_addmm_activation.default", OperatorClass::Fused, evaluate_activation},
      {"_convolution.default _convolution.deprecated _slow_conv2d_forward.default conv1d.default "
       "conv1d.padding conv2d.default conv2d.padding conv3d.default conv3d.padding "
       "conv_transpose1d.default conv_transpose2d.input conv_transpose3d.input convolution.default "
       "convolution_overrideable.default mkldnn_convolution.default slow_conv3d.default "
       "thnn_conv2d.default",
       kProduct, evaluate_convolution},
      {"_grouped_mm.default _scaled_grouped_mm.default", kProduct, evaluate_grouped},
      {"_int_mm.default _scaled_mm.default _weight_int8pack_mm.default addbmm.default "
       "addmm.default addmm.dtype addmv.default addr.default baddbmm.default baddbmm.dtype "
       "bmm.default bmm.dtype dot.default ger.default inner.default linalg_matmul.default "
       "linear.default matmul.default mkldnn_linear.default mm.default mm.dtype mv.default "
       "outer.default tensordot.default vdot.default",
       kProduct, evaluate_product},
      {"einsum.default", kProduct, evaluate_einsum},
      {"linalg_solve_triangular.default", OperatorClass::Fused, evaluate_solve_triangular},
  };
  return kTable;
}

}  // namespace assay::reference::aten
