// SPDX-License-Identifier: Apache-2.0
// Operands as the reference product takes them: blocked weights become matrices, cropped to the
// columns of the output, and the output's size is checked before anything is computed.
//   docs/opcheck/products.md
#include "opcheck/operations/products/evaluate.hpp"
#include "reference/movement/transdata.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck::products {

bool is_blocked_weight(const Operands& operands, const Tensor& weight) {
  return operands.is_nz_input(1) || weight.view.shape.size() == 4;
}

Result<Tensor> matrices_of_weight(const Operands& operands, const Tensor& weight, bool transposed,
                                  int64_t k, int64_t columns) {
  if (!is_blocked_weight(operands, weight)) return weight;
  if (weight.view.shape.size() < 3)
    return fail(not_supported("weight is FRACTAL_NZ of shape " +
                              list_text(weight.view.shape.span()) +
                              ": the sizes of its blocks are not in the dump"));
  ASSAY_TRY(Tensor matrices,
            reference::nz_to_nd(weight, transposed ? columns : k, transposed ? k : columns));
  Dims& shape = matrices.view.shape;
  Dims& strides = matrices.view.strides;
  if (shape.size() == 3 && shape[0] == 1) {  // the batch that every NZ weight has
    shape = {shape[1], shape[2]};
    strides = {strides[1], strides[2]};
  }
  return matrices;
}

int64_t output_columns(const Operands& operands) {
  if (!operands.has_output(0)) return -1;
  const Result<Tensor> output = operands.output(0);
  // An output that cannot be read is reported where it is compared.
  if (!output || output->view.shape.empty()) return -1;
  return output->view.shape[output->view.shape.size() - 1];
}

Status check_output(const Operands& operands, size_t index, const Dims& shape) {
  if (!operands.has_output(index)) return {};
  ASSAY_TRY(const Tensor output, operands.output(index));
  if (output.view.element_count() == element_count(shape)) return {};
  return fail(Errc::Invalid, "outtensor", index, " has shape ", output.view.shape,
              ", the inputs give ", shape);
}

Result<Product> product_of(const Case& one, const Tensor& x, const Tensor& weight, bool transpose_x,
                           bool transpose_w) {
  const Operands& operands = *one.operands;
  if (operands.is_nz_input(0)) return fail(not_supported("x is FRACTAL_NZ"));
  if (operands.has_output(0) && operands.is_nz_output(0))
    return fail(not_supported("the output is FRACTAL_NZ"));
  const size_t rank = x.view.shape.size();
  if (rank < 2)
    return fail(Errc::Invalid, "intensor0 has shape ", x.view.shape,
                ", at least two dimensions are needed");
  Product product;
  product.x = x;
  product.terms = x.view.shape[transpose_x ? rank - 2 : rank - 1];
  product.options = {.transpose_x = transpose_x, .transpose_w = transpose_w, .jobs = one.jobs};
  ASSAY_TRY(product.weight, matrices_of_weight(operands, weight, transpose_w, product.terms,
                                               output_columns(operands)));
  ASSAY_TRY(product.shape,
            reference::matmul_shape(x.view, product.weight.view,
                                    {.transpose_x = transpose_x, .transpose_w = transpose_w}));
  if (transpose_x) product.traits += ", x transposed";
  product.blocked_weight = is_blocked_weight(operands, weight);
  if (product.blocked_weight) product.traits += ", NZ weight";
  return product;
}

Result<bool> weight_is_transposed(const Case& one, const Tensor& x, const Tensor& weight) {
  constexpr std::string_view kKeys = "transposeB|transB|trans_b";
  if (one.parameters.has(kKeys)) return one.parameters.boolean(kKeys, false);
  const Dims& shape = weight.view.shape;
  const Dims& left = x.view.shape;
  if (shape.size() < 2 || left.empty()) return false;
  const int64_t k = left[left.size() - 1];
  return shape[shape.size() - 2] != k && shape[shape.size() - 1] == k;
}

std::optional<DType> product_type_of(const Tensor* bias) {
  if (bias != nullptr && bias->view.dtype == DType::BFloat16) return DType::BFloat16;
  return std::nullopt;
}

}  // namespace assay::opcheck::products
