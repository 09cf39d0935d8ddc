// SPDX-License-Identifier: Apache-2.0
// RMS norm fused with what stands before and after it.   docs/opcheck/norms.md
#include <algorithm>
#include <map>
#include <string>

#include "opcheck/operations/norms/evaluate.hpp"
#include "reference/norms/rms_norm.hpp"
#include "reference/norms/rope.hpp"
#include "tensor/convert.hpp"

namespace assay::opcheck {
namespace {

using norms::expect;
using norms::read_inputs;
using reference::Wide;

/// Row i of the result is row indices[i] of a matrix; it has the shape of x.
Result<Wide> rows_at(const TensorView& matrix, const TensorView& indices, const Dims& x_shape) {
  if (matrix.shape.size() != 2)
    return fail(Errc::Invalid,
                "res_in has shape " + list_text(matrix.shape.span()) + ", not [rows, hidden]");
  ASSAY_TRY(const reference::Whole wanted, reference::whole(indices));
  const int64_t length = matrix.shape[1];
  const Dims shape{wanted.size(), length};
  if (shape != x_shape)
    return fail(Errc::Invalid, "x has shape " + list_text(x_shape.span()) + ", the gathered rows " +
                                   list_text(shape.span()));
  Wide result(shape);
  for (int64_t i = 0; i < wanted.size(); ++i) {
    const int64_t row = wanted.values[static_cast<size_t>(i)];
    if (row < 0 || row >= matrix.shape[0])
      return fail(Errc::Invalid, "index " + std::to_string(row) + " at " + std::to_string(i) +
                                     ", res_in has " + std::to_string(matrix.shape[0]) + " rows");
    read_values(matrix, row * length, length,
                std::span(result.data() + i * length, static_cast<size_t>(length)));
  }
  return result;
}

/// What a token writes into the cache: [rms_norm(x) | rope(key)] for each head.
struct CacheRows {
  Wide values;                      // [tokens, heads, c + r]
  std::map<int64_t, int64_t> last;  // slot -> the token that wrote it last
};

Result<CacheRows> cache_rows(const std::vector<Tensor>& inputs, double eps) {
  const TensorView& x = inputs[0].view;
  const TensorView& cache = inputs[6].view;
  if (x.shape.size() != 3 || cache.shape.size() != 4 || cache.shape[2] != x.shape[1])
    return fail(Errc::Invalid, "x has shape " + list_text(x.shape.span()) +
                                   ", keycachein has shape " + list_text(cache.shape.span()));
  const reference::Term terms[] = {{x}};
  ASSAY_TRY(Wide normalised, reference::rms_norm(terms, inputs[1].view, {.eps = eps}));
  ASSAY_TRY(Wide rotated, reference::rope(inputs[2].view, inputs[3].view, inputs[4].view));
  const int64_t heads = x.shape[1];
  const int64_t width = cache.shape[3];
  const int64_t front = x.shape[2];
  // A shape without elements may have any other sizes.
  ASSAY_TRY(const int64_t rows, reference::checked_count(Dims{x.shape[0], heads}));
  ASSAY_TRY_STATUS(reference::checked_count(Dims{x.shape[0], heads, width}));
  ASSAY_TRY(const int64_t places, reference::checked_count(Dims{cache.shape[0], cache.shape[1]}));
  if (width < front || rotated.size() != rows * (width - front))
    return fail(Errc::Invalid,
                "x of shape " + list_text(x.shape.span()) + " and keyRope of shape " +
                    list_text(inputs[2].view.shape.span()) + " do not fill rows of keycachein, " +
                    list_text(cache.shape.span()));
  CacheRows result{Wide(Dims{x.shape[0], heads, width}), {}};
  double* out = result.values.data();
  for (int64_t row = 0; row < rows; ++row) {
    out = std::copy_n(normalised.data() + row * front, front, out);
    out = std::copy_n(rotated.data() + row * (width - front), width - front, out);
  }
  ASSAY_TRY(const reference::Whole slots, reference::whole(inputs[5].view));
  if (slots.size() != x.shape[0])
    return fail(Errc::Invalid, "slotMapping has " + std::to_string(slots.size()) + " entries for " +
                                   std::to_string(x.shape[0]) + " tokens");
  for (int64_t token = 0; token < slots.size(); ++token) {
    const int64_t slot = slots.values[static_cast<size_t>(token)];
    if (slot < 0) continue;
    if (slot >= places)
      return fail(Errc::Invalid, "slot " + std::to_string(slot) + " of token " +
                                     std::to_string(token) + ", keycachein has " +
                                     std::to_string(places));
    result.last[slot] = token;
  }
  return result;
}

/// The rows of a cache that were written, in the order of their slots, in its own type.
Result<Tensor> written_rows(const Tensor& cache, const CacheRows& rows, int64_t row_elements) {
  ASSAY_TRY(const Tensor plain, reference::contiguous(cache));
  const auto row_bytes =
      static_cast<size_t>(row_elements) * (info(plain.view.dtype).element_bits / 8);
  auto bytes = std::make_shared<reference::Array<std::byte>>(
      Dims{static_cast<int64_t>(rows.last.size() * row_bytes)});
  std::byte* out = bytes->data();
  for (const auto& [slot, token] : rows.last) {
    const ByteSpan row =
        plain.view.contiguous_bytes().subspan(static_cast<size_t>(slot) * row_bytes, row_bytes);
    out = std::copy(row.begin(), row.end(), out);
  }
  ASSAY_TRY(const TensorView view,
            make_view(plain.view.dtype, Dims{static_cast<int64_t>(rows.last.size()), row_elements},
                      ByteSpan(bytes->data(), bytes->values.size())));
  return Tensor{view, std::move(bytes)};
}

}  // namespace

Result<Evaluation> evaluate_gather_pre_rms_norm(const Case& one) {
  ASSAY_TRY(const double eps, one.parameters.number("epsilon", norms::kEpsilon));
  ASSAY_TRY(auto inputs, read_inputs(one, {"x", "res_in", "indices", "gamma"}));
  ASSAY_TRY(Wide rows, rows_at(inputs[1].view, inputs[2].view, inputs[0].view.shape));
  norms::Addends sum;
  sum.add(inputs[0]);
  sum.add(reference::to_tensor(std::move(rows)));
  const Accuracy accuracy{Precision::Float, norms::last_size(inputs[0])};
  Evaluation evaluation{"gather, add, norm", {}};
  evaluation.outputs.push_back(expect(0, accuracy, [sum, gamma = inputs[3], eps] {
    return reference::rms_norm(sum.terms(), gamma.view, {.eps = eps});
  }));
  evaluation.outputs.push_back(
      expect(1, accuracy, [sum] { return reference::sum_of(sum.terms()); }));
  return evaluation;
}

Result<Evaluation> evaluate_norm_rope_reshape(const Case& one) {
  ASSAY_TRY(const double eps, one.parameters.number("epsilon", norms::kEpsilon));
  ASSAY_TRY(const int64_t coefficient, one.parameters.integer("rotaryCoeff", 2));
  if (coefficient != 2)
    return fail(Errc::Unsupported,
                "rotaryCoeff " + std::to_string(coefficient) + " has no public golden, only 2");
  ASSAY_TRY(auto inputs,
            read_inputs(one, {"x", "gamma", "keyRope", "cos", "sin", "slotMapping", "keycachein"}));
  ASSAY_TRY(const CacheRows rows, cache_rows(inputs, eps));
  const int64_t row_elements = rows.values.shape[1] * rows.values.shape[2];
  const auto row_of = [row_elements](const Wide& values, int64_t row) {
    return values.data() + row * row_elements;
  };
  const Accuracy accuracy{Precision::Float, norms::last_size(inputs[0])};
  Evaluation evaluation{"norm, rotated key, cache", {}};
  if (one.operands->has_before()) {
    evaluation.outputs.push_back(
        expect(0, accuracy, [rows, row_of, row_elements, cache = inputs[6]]() -> Result<Wide> {
          ASSAY_TRY(Wide golden, reference::widen(cache.view));
          for (const auto& [slot, token] : rows.last)
            std::copy_n(row_of(rows.values, token), row_elements,
                        golden.data() + slot * row_elements);
          return golden;
        }));
    return evaluation;
  }
  // The cache may hold the result already: what was not written cannot be told from what was there.
  Wide written(Dims{static_cast<int64_t>(rows.last.size()), row_elements});
  double* out = written.data();
  for (const auto& [slot, token] : rows.last)
    out = std::copy_n(row_of(rows.values, token), row_elements, out);
  Expectation expectation = norms::expect_values(0, accuracy, std::move(written));
  ASSAY_TRY(const Tensor cache, one.operands->output(0));
  if (cache.view.shape != inputs[6].view.shape)
    return fail(Errc::Invalid, "keycacheout has shape " + list_text(cache.view.shape.span()) +
                                   ", keycachein has shape " +
                                   list_text(inputs[6].view.shape.span()));
  ASSAY_TRY(expectation.mine, written_rows(cache, rows, row_elements));
  expectation.partial = true;
  expectation.note = "written part only";
  evaluation.outputs.push_back(std::move(expectation));
  return evaluation;
}

}  // namespace assay::opcheck
