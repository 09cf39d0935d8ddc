// SPDX-License-Identifier: Apache-2.0
// Products of batches and of experts.   docs/opcheck/products.md
#include <memory>
#include <utility>

#include "opcheck/operations/products/evaluate.hpp"
#include "reference/movement/bytes.hpp"
#include "reference/products/grouped_matmul.hpp"
#include "reference/products/strided_batch_matmul.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using namespace products;
using reference::Wide;

Result<reference::StridedBatches> read_batches(const Parameters& parameters) {
  reference::StridedBatches batches;
  ASSAY_TRY(batches.transpose_a, parameters.boolean("transposeA|transA|trans_a", false));
  ASSAY_TRY(batches.transpose_b, parameters.boolean("transposeB|transB|trans_b", false));
  ASSAY_TRY(batches.heads, parameters.integer("headNum|head_num", 1));
  ASSAY_TRY(batches.m, parameters.integers("m"));
  ASSAY_TRY(batches.n, parameters.integers("n"));
  ASSAY_TRY(batches.k, parameters.integers("k"));
  ASSAY_TRY(batches.lda, parameters.integers("lda"));
  ASSAY_TRY(batches.ldb, parameters.integers("ldb"));
  ASSAY_TRY(batches.ldc, parameters.integers("ldc"));
  ASSAY_TRY(batches.stride_a, parameters.integers("strideA|stride_a"));
  ASSAY_TRY(batches.stride_b, parameters.integers("strideB|stride_b"));
  ASSAY_TRY(batches.stride_c, parameters.integers("strideC|stride_c"));
  ASSAY_TRY(const int64_t count,
            parameters.integer("batch", static_cast<int64_t>(batches.m.size())));
  if (batches.m.empty() || count != static_cast<int64_t>(batches.m.size()))
    return fail(Errc::Invalid, "batch is ", count, ", m has ", batches.m.size(), " values");
  return batches;
}

/// The elements at ascending flat indices, as a vector of their type.
Result<Tensor> picked(const TensorView& view, const std::vector<int64_t>& indices) {
  ASSAY_TRY(const reference::NewTensor result,
            reference::new_tensor(view.dtype, {static_cast<int64_t>(indices.size())}));
  const int64_t bytes = result.element_bytes;
  // Runs of neighbours are copied at once: rows of C.
  for (size_t i = 0; i < indices.size();) {
    size_t end = i + 1;
    while (end < indices.size() && indices[end] == indices[end - 1] + 1) ++end;
    const auto count = static_cast<int64_t>(end - i);
    gather_bytes(
        view, indices[i], count,
        {result.data() + static_cast<int64_t>(i) * bytes, static_cast<size_t>(count * bytes)});
    i = end;
  }
  return result.tensor();
}

}  // namespace

Result<Evaluation> evaluate_strided_batch_matmul(const Case& one) {
  ASSAY_TRY(const reference::StridedBatches batches, read_batches(one.parameters));
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"A", "B"}));
  ASSAY_TRY(const Tensor output, one.operands->output(0));
  const Tensor a = inputs[0];
  const Tensor b = inputs[1];
  const int64_t size = output.view.element_count();
  ASSAY_TRY(
      std::vector<int64_t> written,
      reference::written_elements(batches, a.view.element_count(), b.view.element_count(), size));
  const auto indices = std::make_shared<const std::vector<int64_t>>(std::move(written));
  const bool all = static_cast<int64_t>(indices->size()) == size;
  int64_t terms = 0;
  for (const int64_t k : batches.k) terms = std::max(terms, k);
  Evaluation evaluation;
  evaluation.variant =
      std::to_string(batches.m.size()) + " batches, " + std::to_string(batches.heads) + " heads";
  if (batches.transpose_a) evaluation.variant += ", A transposed";
  if (batches.transpose_b) evaluation.variant += ", B transposed";
  Expectation expected = expectation(
      0, {Precision::Float, terms}, [a, b, batches, size, indices, all]() -> Result<Wide> {
        ASSAY_TRY(Wide c, reference::strided_batch_matmul(a.view, b.view, batches, size));
        if (all) return c;
        Wide values(Dims{static_cast<int64_t>(indices->size())});
        for (size_t i = 0; i < indices->size(); ++i)
          values.values[i] = c.values[static_cast<size_t>((*indices)[i])];
        return values;
      });
  if (!all) {
    ASSAY_TRY(expected.mine, picked(output.view, *indices));
    expected.note = std::to_string(size - static_cast<int64_t>(indices->size())) + " of " +
                    std::to_string(size) + " elements are written by no head: not judged";
  }
  evaluation.outputs.push_back(std::move(expected));
  return evaluation;
}

Result<Evaluation> evaluate_grouped_matmul_with_routing(const Case& one) {
  const Parameters& parameters = one.parameters;
  ASSAY_TRY(const int64_t type, parameters.integer("groupedMatmulType", 0));
  if (type != 0 && type != 1)
    return fail(unknown_value("groupedMatmulType", type, "0 (up), 1 (down)"));
  ASSAY_TRY(const bool transpose_w, parameters.boolean("transposeB", true));
  ASSAY_TRY(const int64_t top_k, parameters.integer("topK", 0));
  ASSAY_TRY(const int64_t output_type, parameters.integer("outDataType", -1));
  if (output_type != -1 && output_type != 1 && output_type != 27)
    return fail(unknown_value("outDataType", output_type, "-1 (none), 1 (float16), 27 (bfloat16)"));
  const bool quantised = output_type != -1;
  const bool down = type == 1;
  std::vector<std::string_view> names = {"x", "weight", "group ends", "tokens"};
  if (quantised) {
    names.emplace_back("scales of columns");
    names.emplace_back("scales of rows");
  }
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, names));
  const Tensor& x = inputs[0];
  if (one.operands->is_nz_input(0) || one.operands->is_nz_input(1) ||
      inputs[1].view.shape.size() != 3 || x.view.shape.size() != 2)
    return fail(not_supported("x of shape " + list_text(x.view.shape.span()) +
                              " and a weight of shape " + list_text(inputs[1].view.shape.span()) +
                              ": only ND [rows, k] and [experts, n, k] are known"));
  if (quantised != (is_int8(x) && is_int8(inputs[1])))
    return fail(Errc::Invalid, "outDataType is ", output_type, ", x ", x.view.dtype);
  if (down && (top_k < 1 || x.view.shape[0] % top_k != 0))
    return fail(Errc::Invalid, "topK ", top_k, " does not divide the ", x.view.shape[0],
                " rows of x");
  const int64_t rows = down ? x.view.shape[0] / top_k : inputs[3].view.element_count();
  ASSAY_TRY_STATUS(
      check_output(*one.operands, 0, {rows, inputs[1].view.shape[transpose_w ? 1 : 2]}));
  return evaluation(std::string(down ? "down" : "up") + (quantised ? ", int8" : ", float"),
                    expectation(0, {Precision::Float, x.view.shape[1]},
                                [inputs, quantised, down, transpose_w, rows, jobs = one.jobs] {
                                  return reference::grouped_matmul_with_routing(
                                      inputs[0].view, inputs[1].view,
                                      {.group_ends = &inputs[2].view,
                                       .tokens = &inputs[3].view,
                                       .down = down,
                                       .transpose_w = transpose_w,
                                       .token_count = down ? rows : 0,
                                       .jobs = jobs},
                                      quantised ? &inputs[4].view : nullptr,
                                      quantised ? &inputs[5].view : nullptr);
                                }));
}

Result<Evaluation> evaluate_grouped_matmul_inplace_add(const Case& one) {
  ASSAY_TRY(const bool transpose_x, one.parameters.boolean("transposeA", false));
  ASSAY_TRY(const bool transpose_w, one.parameters.boolean("transposeB", false));
  if (transpose_w) return fail(not_supported("transposeB"));
  ASSAY_TRY(const std::vector<Tensor> inputs,
            read_inputs(one, {"x", "weight", "group ends", "accum"}));
  if (!one.operands->has_before()) return fail(not_supported("needs before data"));
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, inputs[3].view.shape));
  const Dims& shape = inputs[1].view.shape;

  Expectation expected = expectation(0, {Precision::VectorFusion, shape.empty() ? 0 : shape[0]},
                                     [inputs, transpose_x, jobs = one.jobs] {
                                       return reference::grouped_matmul_add(
                                           inputs[0].view, inputs[1].view, inputs[2].view,
                                           inputs[3].view, transpose_x, jobs);
                                     });
  if (!one.operands->has_output(0)) {
    expected.in_place = true;
    expected.index = 3;
  }
  return evaluation(transpose_x ? "x transposed" : "x as it is", std::move(expected));
}

}  // namespace assay::opcheck
