// SPDX-License-Identifier: Apache-2.0
// What the operations of this folder share: their operands, and the table's functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "opcheck/operations/expectations.hpp"
#include "opcheck/operations/read_inputs.hpp"
#include "reference/products/linear.hpp"

namespace assay::opcheck {

namespace products {

/// Input 1 as matrices: FRACTAL_NZ, or four dimensions, become [rows, columns] or [b, rows,
/// columns]; padding of blocks is cropped.
///
/// k        of the other operand
/// columns  of the output, when it is known (-1: all that are stored)
/// errors   Invalid (fewer values than k or columns need) | Unsupported (FRACTAL_NZ of two
///          dimensions)
[[nodiscard]] Result<Tensor> matrices_of_weight(const Operands& operands, const Tensor& weight,
                                                bool transposed, int64_t k, int64_t columns);
[[nodiscard]] bool is_blocked_weight(const Operands& operands, const Tensor& weight);

/// Size of the output's last dimension; -1 when the dump does not have it.
[[nodiscard]] int64_t output_columns(const Operands& operands);
/// errors  Invalid: the dumped output has another number of elements
[[nodiscard]] Status check_output(const Operands& operands, size_t index, const Dims& shape);

/// Both operands of a product, ready.
struct Product {
  Tensor x;
  Tensor weight;
  reference::LinearOptions options;
  Dims shape;                   // of the result
  int64_t terms = 0;            // k
  bool blocked_weight = false;  // its padding was cropped
  std::string traits;           // ", NZ weight"
};
/// errors  Invalid (shapes) | of matrices_of_weight()
[[nodiscard]] Result<Product> product_of(const Case& one, const Tensor& x, const Tensor& weight,
                                         bool transpose_x, bool transpose_w);

/// Is the weight [n, k]? Key transposeB; without it what shapes allow, [k, n] first.
[[nodiscard]] Result<bool> weight_is_transposed(const Case& one, const Tensor& x,
                                                const Tensor& weight);

[[nodiscard]] inline bool is_int8(const Tensor& tensor) {
  return tensor.view.dtype == DType::Int8 || tensor.view.dtype == DType::QInt8;
}
/// bf16 biases: the product is stored before they are added.
[[nodiscard]] std::optional<DType> product_type_of(const Tensor* bias);

}  // namespace products

// Parameters, tensors and formulas: docs/opcheck/products.md.
[[nodiscard]] Result<Evaluation> evaluate_linear(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_linear_sparse(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_matmul(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_linear_quant(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_linear_activation(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_linear_activation_quant(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_linear_parallel(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_all_reduce(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_strided_batch_matmul(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_grouped_matmul_with_routing(const Case& one);
[[nodiscard]] Result<Evaluation> evaluate_grouped_matmul_inplace_add(const Case& one);

}  // namespace assay::opcheck
