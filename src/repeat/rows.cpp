// SPDX-License-Identifier: Apache-2.0
// Calls with n and n + 1 rows tell which axis of a tensor is the batch; the values tell whether the
// rows lie one after another or interleaved.
#include "repeat/rows.hpp"

#include <algorithm>
#include <cmath>

#include "repeat/spread.hpp"
#include "run/load.hpp"

namespace assay::repeat {
namespace {

using locate::kNone;
using locate::Use;

/// Cut in the right way all rows are equal but for rounding, and for what a leak between them does
/// to some elements; cut in the wrong way they have nothing in common, which is about 1.4.
constexpr double kSameRows = 0.7;

/// How far a row is from the first one, relative: the largest over all rows. Infinite for whole
/// numbers that differ.
double distance_of_rows(const TensorView& tensor, const Split& split, int64_t rows) {
  const TensorView first = row_of(tensor, split, 0, rows);
  double largest = 0;
  for (int64_t row = 1; row < rows; ++row) {
    const Spread spread = spread_of(first, row_of(tensor, split, row, rows));
    if (spread.different == 0) continue;
    if (!is_float(tensor.dtype)) return INFINITY;
    largest = std::max(largest, spread.relative_error());
  }
  return largest;
}

const std::vector<Use>* uses_of(const Execution& side, const locate::Operator& one, bool outputs) {
  const size_t op = side.find(one);
  if (op == kNone) return nullptr;
  const locate::Operator& there = side.program().operators[op];
  return outputs ? &there.outputs : &there.inputs;
}

const std::vector<Use>* uses_of(const Execution& side, const locate::ModuleCall& call,
                                bool outputs) {
  const size_t found = side.find(call);
  if (found == kNone) return nullptr;
  const locate::ModuleCall& there = side.program().calls[found];
  return outputs ? &there.outputs : &there.inputs;
}

}  // namespace

TensorView row_of(const TensorView& tensor, const Split& split, int64_t row, int64_t rows) {
  TensorView part = tensor;
  const int64_t stride = tensor.strides[split.axis];
  part.shape[split.axis] = split.per_row;
  part.offset_elements += row * stride * (split.interleaved ? 1 : split.per_row);
  if (split.interleaved) part.strides[split.axis] = stride * rows;
  return part;
}

Split Splits::of_use(const locate::Operator& one, bool is_output, size_t number,
                     InternedDims shape) const {
  const std::vector<Use>* few = uses_of(few_, one, is_output);
  const std::vector<Use>* more = uses_of(more_, one, is_output);
  if (few == nullptr || more == nullptr || number >= few->size() || number >= more->size())
    return {};
  return learn(one.step, (*few)[number], (*more)[number], shape);
}

Split Splits::of_boundary(const locate::ModuleCall& call, bool is_output, size_t number,
                          InternedDims shape) const {
  const std::vector<Use>* few = uses_of(few_, call, is_output);
  const std::vector<Use>* more = uses_of(more_, call, is_output);
  if (few == nullptr || more == nullptr || number >= few->size() || number >= more->size())
    return {};
  return learn(call.step, (*few)[number], (*more)[number], shape);
}

/// Whether the shape is that of the same tensor in a call with padded rows.
bool Splits::is_padded(int64_t step, const Dims& few, const Dims& shape,
                       std::optional<size_t> axis) const {
  if (step < 0 || static_cast<size_t>(step) >= lengths_.size()) return false;
  const Lengths& lengths = lengths_[static_cast<size_t>(step)];
  for (size_t i = 0; i < few.size(); ++i) {
    const int64_t rows = i == axis ? rows_ : 1;  // may be folded with positions
    const auto is_of = [&](int64_t plain, int64_t padded) {
      return few[i] == rows * plain && shape[i] == rows * padded;
    };
    if (few[i] != shape[i] && !is_of(lengths.tokens, lengths.padded_tokens) &&
        !is_of(lengths.keys, lengths.padded_keys))
      return false;
  }
  return true;
}

Split Splits::learn(int64_t step, const Use& few, const Use& more, InternedDims shape) const {
  const run::TensorRecord& a = few_.run().records[few.record];
  const run::TensorRecord& b = more_.run().records[more.record];
  if (!a.shape || !b.shape || !shape || a.shape->size() != b.shape->size() ||
      a.shape->size() != shape->size())
    return {};
  std::optional<size_t> axis;
  for (size_t i = 0; i < a.shape->size(); ++i) {
    if ((*a.shape)[i] == (*b.shape)[i]) continue;
    if (axis) return {};
    axis = i;
  }
  if (!(*a.shape == *shape) && !is_padded(step, *a.shape, *shape, axis)) return {};
  if (!axis) return {.state = Split::State::Shared};
  const int64_t per_row = (*a.shape)[*axis] / rows_;
  if ((*a.shape)[*axis] != per_row * rows_ || (*b.shape)[*axis] != per_row * (rows_ + 1)) return {};
  Split split = cut(a, *axis, per_row);
  split.per_row = (*shape)[*axis] / rows_;
  return split;
}

Split Splits::cut(const run::TensorRecord& record, size_t axis, int64_t per_row) const {
  const Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor) return {};
  Split blocks{.state = Split::State::Rows, .axis = axis, .per_row = per_row};
  Split interleaved = blocks;
  interleaved.interleaved = true;
  const double as_blocks = distance_of_rows(tensor->view, blocks, rows_);
  const double as_interleaved =
      per_row > 1 ? distance_of_rows(tensor->view, interleaved, rows_) : INFINITY;
  // Neither fits, or nobody can tell.
  if (!(std::min(as_blocks, as_interleaved) < kSameRows)) return {};
  if (as_blocks < 0.5 * as_interleaved) return blocks;
  return as_interleaved < 0.5 * as_blocks ? interleaved : Split();
}

}  // namespace assay::repeat
