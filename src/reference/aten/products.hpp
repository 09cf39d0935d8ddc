// SPDX-License-Identifier: Apache-2.0
// Calls of products, brought to one form: what evaluate(), magnitudes() and product_rows() work on.
#pragma once
#include "reference/aten/registry.hpp"

namespace assay::reference::aten {

/// "addmm" of "aten.addmm.dtype_out" and of "aten.addmm_.default".
[[nodiscard]] std::string_view operation_of(std::string_view name);

/// result = alpha (x . w) scales... + beta bias, by matmul()'s rules, in `shape`.
struct Product {
  Tensor x;                    // [..., m, k]
  Tensor w;                    // [..., k, n]; leading sizes broadcast
  std::vector<Tensor> scales;  // each broadcasts to `shape`
  std::optional<Tensor> bias;  // broadcasts to `shape`
  double alpha = 1;
  double beta = 1;
  Dims shape;  // m n elements a batch; dimensions of one vector are left out
  /// The axes of the result of torch, each the axis of `shape` that it is; empty: as they stand.
  std::vector<size_t> order;
  /// A matrix dimension split in several, or a vector operand: rows of the result are not rows of
  /// x.
  bool rows_are_those_of_x = true;
};

/// The form of a call; nothing for overloads that have none (convolutions, grouped products).
/// errors  Invalid (operands that do not fit) | Unsupported
[[nodiscard]] Result<std::optional<Product>> product_of(const Arguments& arguments);
/// The form of an einsum of two operands; nothing for one or more than two.
[[nodiscard]] Result<std::optional<Product>> einsum_product(const Arguments& arguments);

/// absolute  of the magnitudes of all operands and factors
/// errors    of matmul() | Invalid (bias or scales that do not fit)
[[nodiscard]] Result<Wide> multiply(const Product& product, int jobs, bool absolute = false);
/// Rows of x, ascending, of all batches as one: [rows, n].
[[nodiscard]] Result<Wide> multiply_rows(const Product& product, std::span<const int64_t> rows,
                                         int jobs, bool absolute = false);
/// beta bias of every element, or of rows as in multiply_rows(): what is added behind the product.
/// Nothing without one.
[[nodiscard]] Result<std::optional<Wide>> addend_of(
    const Product& product, const std::optional<std::span<const int64_t>>& rows);
/// The length of the sums: k.
[[nodiscard]] int64_t product_terms(const Product& product);

/// Convolutions of one to three dimensions.
/// absolute  as multiply()
[[nodiscard]] Result<Wide> convolve(const Arguments& arguments, int jobs, bool absolute = false);
/// The bias of every element of its result; nothing without one.
[[nodiscard]] Result<std::optional<Wide>> addend_of_convolution(const Arguments& arguments);
/// Values that one result of a convolution adds up.
[[nodiscard]] Result<int64_t> convolution_terms(const Arguments& arguments);
[[nodiscard]] bool is_convolution(std::string_view name);

/// Products of groups of rows or of columns: _grouped_mm and its scaled kind.
[[nodiscard]] Result<Wide> grouped_product(const Arguments& arguments, int jobs,
                                           bool absolute = false);
[[nodiscard]] Result<int64_t> grouped_terms(const Arguments& arguments);
[[nodiscard]] bool is_grouped_product(std::string_view name);

Result<std::vector<Tensor>> evaluate_solve_triangular(const Arguments& arguments,
                                                      const EvaluateOptions& options);
Result<std::vector<Tensor>> evaluate_einsum(const Arguments& arguments,
                                            const EvaluateOptions& options);

}  // namespace assay::reference::aten
