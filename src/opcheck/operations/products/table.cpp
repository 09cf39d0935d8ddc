// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "opcheck/operations/products/evaluate.hpp"
#include "opcheck/registry.hpp"

namespace assay::opcheck {
namespace {

constexpr std::array<Operator, 11> kOperators = {{
    {.name = "AllReduceOperation",
     .variants = "sum, max, min, prod; sum of int8 per tensor or channel",
     .parameters = "rank rankSize rankRoot backend hcclComm commMode rankTableFile commDomain "
                   "allReduceType quantType outDataType",
     .outputs = "y",
     .precision = "FLOAT, INTEGER, QUANT",
     .evaluate = evaluate_all_reduce},
    {.name = "GroupedMatmulInplaceAddOperation",
     .variants = "groups of k, added to float32; x transposed",
     .parameters = "transposeA transposeB",
     .outputs = "accum in place",
     .precision = "VECTOR_FUSION",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_grouped_matmul_inplace_add},
    {.name = "GroupedMatmulWithRoutingOperation",
     .variants = "up, down; float, int8 dequantised",
     .parameters = "transposeB topK groupedMatmulType outDataType",
     .outputs = "y",
     .precision = "FLOAT",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_grouped_matmul_with_routing},
    {.name = "LinearActivationOperation",
     .variants = "float, bias; relu, gelu tanh, fast gelu, swish, log",
     .parameters = "transposeA transposeB|transB|trans_b hasBias "
                   "activationFuncType|activationType|activationFunc",
     .outputs = "y",
     .precision = "FLOAT",
     .origin = Operator::Origin::Older,
     .evaluate = evaluate_linear_activation},
    {.name = "LinearActivationQuantOperation",
     .variants = "int8 dequantised, bias; relu, gelu tanh, fast gelu, swish, log",
     .parameters = "transposeA transposeB|transB|trans_b hasBias "
                   "activationFuncType|activationType|activationFunc",
     .outputs = "y",
     .precision = "FLOAT",
     .origin = Operator::Origin::Older,
     .evaluate = evaluate_linear_activation_quant},
    {.name = "LinearOperation",
     .variants =
         "float, bias, accumulating, EIN_SUM; int8 dequantised, bias, per token; batches, NZ "
         "weight",
     .parameters =
         "transposeA|transA|trans_a transposeB|transB|trans_b hasBias outDataType enAccum "
         "matmulType quantMode linearType",
     .outputs = "y, with enAccum in place",
     .precision = "FLOAT",
     .evaluate = evaluate_linear},
    {.name = "LinearParallelOperation",
     .variants =
         "all reduce, reduce scatter, all gather, pure linear; residual; scales per tensor, "
         "channel, group, token",
     .parameters = "transWeight|transposeB rank rankSize rankRoot hasResidual backend hcclComm "
                   "commMode rankTableFile type keepIntermediate quantType quantGroupSize "
                   "outDataType commDomain local_expert_nums epSize tpSize twoDimTPInfo",
     .outputs = "y [, gathered x]",
     .precision = "FLOAT, MOVE",
     .evaluate = evaluate_linear_parallel},
    {.name = "LinearQuantOperation",
     .variants = "int8 dequantised, bias; dynamic per-token quantised activation",
     .parameters = "transposeA transposeB|transB|trans_b hasBias outDataType",
     .outputs = "y",
     .precision = "FLOAT",
     .origin = Operator::Origin::Older,
     .evaluate = evaluate_linear_quant},
    {.name = "LinearSparseOperation",
     .variants = "int8 dequantised, weight not compressed",
     .parameters = "transposeA transposeB tilingK tilingN",
     .outputs = "y",
     .precision = "QUANT",
     .evaluate = evaluate_linear_sparse},
    {.name = "MatmulOperation",
     .variants = "float",
     .parameters = "transposeA|transA|trans_a transposeB|transB|trans_b",
     .outputs = "y",
     .precision = "FLOAT",
     .origin = Operator::Origin::Older,
     .evaluate = evaluate_matmul},
    {.name = "StridedBatchMatmulOperation",
     .variants = "A or B transposed",
     .parameters =
         "transposeA|transA|trans_a transposeB|transB|trans_b batch headNum|head_num m n k "
         "lda ldb ldc strideA|stride_a strideB|stride_b strideC|stride_c",
     .outputs = "C",
     .precision = "FLOAT",
     .evaluate = evaluate_strided_batch_matmul},
}};

}  // namespace

std::span<const Operator> product_operators() { return kOperators; }

}  // namespace assay::opcheck
