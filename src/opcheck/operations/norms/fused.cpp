// SPDX-License-Identifier: Apache-2.0
// RMS norm fused with what stands before and after it.   docs/opcheck/norms.md
#include "opcheck/operations/movement/evaluate.hpp"
#include "opcheck/operations/norms/evaluate.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/movement/caches.hpp"
#include "reference/movement/gather.hpp"
#include "reference/norms/rms_norm.hpp"
#include "reference/norms/rope.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using norms::nd_inputs;
using reference::Wide;

/// Rows of a matrix by number; they have the shape of x.
Result<Tensor> rows_at(const Tensor& matrix, const Tensor& indices, const Dims& x_shape) {
  if (matrix.view.shape.size() != 2)
    return fail(Errc::Invalid, "res_in has shape ", matrix.view.shape, ", not [rows, hidden]");
  ASSAY_TRY(const Tensor numbers, reference::reshaped(indices, {indices.view.element_count()}));
  ASSAY_TRY(Tensor rows, reference::gather(matrix, numbers, 0, 0));
  if (rows.view.shape != x_shape)
    return fail(Errc::Invalid, "x has shape ", x_shape, ", the gathered rows ", rows.view.shape);
  return rows;
}

/// What tokens write into the cache: [rms_norm(x) | rope(key)] for each head, [tokens, heads, c + r].
Result<Tensor> rows_of_cache(const std::vector<Tensor>& inputs, double eps) {
  const Dims& x = inputs[0].view.shape;
  const Dims& cache = inputs[6].view.shape;
  if (x.size() != 3 || cache.size() != 4 || cache[2] != x[1])
    return fail(Errc::Invalid, "x has shape ", x, ", keycachein has shape ", cache);
  const reference::Term terms[] = {{inputs[0].view}};
  ASSAY_TRY(Wide normalised, reference::rms_norm(terms, inputs[1].view, {.eps = eps}));
  ASSAY_TRY(Wide rotated, reference::rope(inputs[2].view, inputs[3].view, inputs[4].view));
  const int64_t width = cache[3] - x[2];
  // A shape without elements may have any other sizes.
  ASSAY_TRY(const int64_t rows, reference::checked_count(Dims{x[0], x[1]}));
  ASSAY_TRY_STATUS(reference::checked_count(Dims{x[0], x[1], cache[3]}));
  if (width < 0 || rotated.size() != rows * width)
    return fail(Errc::Invalid, "x of shape ", x, " and keyRope of shape ", inputs[2].view.shape,
                " do not fill rows of keycachein, ", cache);
  rotated.shape = {x[0], x[1], width};
  const Tensor parts[] = {reference::to_tensor(std::move(normalised)),
                          reference::to_tensor(std::move(rotated))};
  return reference::concat(parts, 2);
}

/// Where they go.
Result<std::vector<reference::SlotWrite>> writes_of(const Tensor& slot_mapping, const Dims& x,
                                                    const Dims& cache) {
  ASSAY_TRY(const reference::Whole slots, reference::whole(slot_mapping.view));
  ASSAY_TRY(const int64_t places, reference::checked_count(Dims{cache[0], cache[1]}));
  if (slots.size() != x[0])
    return fail(Errc::Invalid, "slotMapping has ", slots.size(), " entries for ", x[0], " tokens");
  for (int64_t token = 0; token < slots.size(); ++token) {
    const int64_t slot = slots.values[static_cast<size_t>(token)];
    if (slot >= places)
      return fail(Errc::Invalid, "slot ", slot, " of token ", token, ", keycachein has ", places);
  }
  return reference::last_writes(reference::token_writes(slots.values));
}

}  // namespace

Result<Evaluation> evaluate_gather_pre_rms_norm(const Case& one) {
  ASSAY_TRY(const double eps, one.parameters.number("epsilon", norms::kEpsilon));
  ASSAY_TRY(auto inputs, nd_inputs(one, {"x", "res_in", "indices", "gamma"}));
  ASSAY_TRY(Tensor rows, rows_at(inputs[1], inputs[2], inputs[0].view.shape));
  const norms::Addends sum({inputs[0], std::move(rows)});
  const Accuracy accuracy{Precision::Float, norms::last_size(inputs[0])};
  return evaluation("gather, add, norm",
                    expectation(0, accuracy,
                                [sum, gamma = inputs[3], eps] {
                                  return reference::rms_norm(sum.terms(), gamma.view, {.eps = eps});
                                }),
                    expectation(1, accuracy, [sum] { return reference::sum_of(sum.terms()); }));
}

Result<Evaluation> evaluate_norm_rope_reshape(const Case& one) {
  ASSAY_TRY(const double eps, one.parameters.number("epsilon", norms::kEpsilon));
  ASSAY_TRY(const int64_t coefficient, one.parameters.integer("rotaryCoeff", 2));
  if (coefficient != 2)
    return fail(Errc::Unsupported, "rotaryCoeff ", coefficient, " has no public golden, only 2");
  ASSAY_TRY(auto inputs,
            nd_inputs(one, {"x", "gamma", "keyRope", "cos", "sin", "slotMapping", "keycachein"}));
  ASSAY_TRY(const Tensor rows, rows_of_cache(inputs, eps));
  ASSAY_TRY(const auto writes, writes_of(inputs[5], inputs[0].view.shape, inputs[6].view.shape));
  ASSAY_TRY(const reference::CacheLayout layout, reference::plain_cache(inputs[6].view));
  std::vector<int64_t> slots;
  for (const reference::SlotWrite& write : writes) slots.push_back(write.slot);
  ASSAY_TRY(
      Expectation expected,
      movement::expect_in_place(
          one,
          {.input = 6,
           .output = 0,
           .write = [=](const Tensor& before) -> Result<Tensor> {
             ASSAY_TRY(Wide cache, reference::widen(before.view));
             return reference::write_slots(reference::to_tensor(std::move(cache)), layout, rows,
                                           writes);
           },
           .pick = [=](const Tensor& after) { return reference::read_slots(after, layout, slots); },
           .written = [=] { return reference::pick_rows(rows, layout.row_elements, writes); },
           .accuracy = {Precision::Float, norms::last_size(inputs[0])}}));
  return evaluation("norm, rotated key, cache", std::move(expected));
}

}  // namespace assay::opcheck
