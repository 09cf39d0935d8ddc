// SPDX-License-Identifier: Apache-2.0
// The matrix products and sums over ranks: what each accepts and returns, as `assay opcheck
// --ops-list` prints it, and the function that evaluates it.   docs/opcheck/products.md
#include "opcheck/operations/products/evaluate.hpp"
#include "opcheck/registry.hpp"

namespace assay::opcheck {
namespace {}  // namespace

std::span<const OperationRow> product_operators() {
  using enum OperationRow::Origin;
  // Name, variants, parameters (other spellings after "|"), outputs, precision, origin, function.
  static constexpr OperationRow kOperators[] = {
      {"AllReduceOperation", "sum, max, min, prod; sum of int8 per tensor or channel",
       "rank rankSize rankRoot backend hcclComm commMode rankTableFile commDomain allReduceType "
       "quantType outDataType",
       "y", "FLOAT, INTEGER, QUANT", Original, evaluate_all_reduce},
      {"GroupedMatmulInplaceAddOperation", "groups of k, added to float32; x transposed",
       "transposeA transposeB", "accum in place", "VECTOR_FUSION", Ours,
       evaluate_grouped_matmul_inplace_add},
      {"GroupedMatmulWithRoutingOperation", "up, down; float, int8 dequantised",
       "transposeB topK groupedMatmulType outDataType", "y", "FLOAT", Ours,
       evaluate_grouped_matmul_with_routing},
      {"LinearActivationOperation", "float, bias; relu, gelu tanh, fast gelu, swish, log",
       "transposeA transposeB|transB|trans_b hasBias "
       "activationFuncType|activationType|activationFunc",
       "y", "FLOAT", Older, evaluate_linear_activation},
      {"LinearActivationQuantOperation",
       "int8 dequantised, bias; relu, gelu tanh, fast gelu, swish, log",
       "transposeA transposeB|transB|trans_b hasBias "
       "activationFuncType|activationType|activationFunc",
       "y", "FLOAT", Older, evaluate_linear_activation_quant},
      {"LinearOperation",
       "float, bias, accumulating, EIN_SUM; int8 dequantised, bias, per token; batches, NZ weight",
       "transposeA|transA|trans_a transposeB|transB|trans_b hasBias outDataType enAccum matmulType "
       "quantMode linearType",
       "y, with enAccum in place", "FLOAT", Original, evaluate_linear},
      {"LinearParallelOperation",
       "all reduce, reduce scatter, all gather, pure linear; residual; scales per tensor, channel, "
       "group, token",
       "transWeight|transposeB rank rankSize rankRoot hasResidual backend hcclComm commMode "
       "rankTableFile type keepIntermediate quantType quantGroupSize outDataType commDomain "
       "local_expert_nums epSize tpSize twoDimTPInfo",
       "y [, gathered x]", "FLOAT, MOVE", Original, evaluate_linear_parallel},
      {"LinearQuantOperation", "int8 dequantised, bias; dynamic per-token quantised activation",
       "transposeA transposeB|transB|trans_b hasBias outDataType", "y", "FLOAT", Older,
       evaluate_linear_quant},
      {"LinearSparseOperation", "int8 dequantised, weight not compressed",
       "transposeA transposeB tilingK tilingN", "y", "QUANT", Original, evaluate_linear_sparse},
      {"MatmulOperation", "float", "transposeA|transA|trans_a transposeB|transB|trans_b", "y",
       "FLOAT", Older, evaluate_matmul},
      {"StridedBatchMatmulOperation", "A or B transposed",
       "transposeA|transA|trans_a transposeB|transB|trans_b batch headNum|head_num m n k lda ldb "
       "ldc strideA|stride_a strideB|stride_b strideC|stride_c",
       "C", "FLOAT", Original, evaluate_strided_batch_matmul},
  };
  return kOperators;
}

}  // namespace assay::opcheck
