// SPDX-License-Identifier: Apache-2.0
// assay.reference: matrix products and sums over ranks.
#include "python/reference/operators.hpp"
#include "reference/products/all_reduce.hpp"
#include "reference/products/grouped_matmul.hpp"
#include "reference/products/linear.hpp"
#include "reference/products/matmul.hpp"
#include "reference/products/strided_batch_matmul.hpp"

namespace assay::python {
namespace {

using namespace reference;
using Sizes = std::vector<int64_t>;

Result<Wide> dynamic_quantised_linear_of(const TensorView& x, const TensorView& w,
                                         const TensorView& scale, const TensorView* bias,
                                         bool float32_scales, bool transpose_w, int jobs) {
  return dynamic_quantised_linear(x, w, scale, bias,
                                  float32_scales ? RowScale::Float32 : RowScale::Exact,
                                  {.transpose_w = transpose_w, .jobs = jobs});
}

Result<Wide> strided_batch_matmul_of(const TensorView& a, const TensorView& b, int64_t c_count,
                                     int64_t heads, const Sizes& m, const Sizes& n, const Sizes& k,
                                     const Sizes& lda, const Sizes& ldb, const Sizes& ldc,
                                     const Sizes& stride_a, const Sizes& stride_b,
                                     const Sizes& stride_c, bool transpose_a, bool transpose_b) {
  const StridedBatches batches{transpose_a, transpose_b, heads, m,        n,        k,
                               lda,         ldb,         ldc,   stride_a, stride_b, stride_c};
  return strided_batch_matmul(a, b, batches, c_count);
}

Result<Wide> grouped_matmul_with_routing_of(const TensorView& x, const TensorView& w,
                                            const TensorView& group_ends, const TensorView& tokens,
                                            bool down, int64_t token_count,
                                            const TensorView* column_scale,
                                            const TensorView* row_scale, bool transpose_w,
                                            int jobs) {
  const ExpertRows rows{.group_ends = &group_ends,
                        .tokens = &tokens,
                        .down = down,
                        .transpose_w = transpose_w,
                        .token_count = token_count,
                        .jobs = jobs};
  return grouped_matmul_with_routing(x, w, rows, column_scale, row_scale);
}

}  // namespace

void add_products(Operators& operators) {
  using Matmul = MatmulOptions;
  using Linear = LinearOptions;
  operators.add("matmul",
                with_options<&Matmul::transpose_x, &Matmul::transpose_w, &Matmul::jobs>(matmul));
  operators.add("linear",
                with_options<&Linear::transpose_x, &Linear::transpose_w, &Linear::jobs>(linear));
  operators.add("linear_per_batch",
                with_options<&Linear::transpose_w, &Linear::jobs>(linear_per_batch));
  operators.add("quantized_linear",
                with_options<&Linear::transpose_w, &Linear::jobs>(quantised_linear));
  operators.add("weight_quantized_linear",
                with_options<&Linear::transpose_w, &Linear::jobs>(weight_quantised_linear));
  operators.add("dynamic_quantized_linear", dynamic_quantised_linear_of);
  operators.add("strided_batch_matmul", strided_batch_matmul_of);
  operators.add("grouped_matmul_with_routing", grouped_matmul_with_routing_of);
  operators.add("grouped_matmul_add", grouped_matmul_add);
  operators.add("all_reduce", all_reduce);
  operators.add("quantized_all_reduce", quantised_all_reduce);
}

}  // namespace assay::python
