// SPDX-License-Identifier: Apache-2.0
#include "repeat/rows.hpp"

#include "repeat/spread.hpp"

namespace assay::repeat {
namespace {

using locate::kNone;
using locate::Use;

/// Kernels may round rows differently by their place in the batch; other rows differ by far more.
constexpr double kEqualRows = 1e-3;

/// Every row has the values of the first.
bool has_equal_rows(const TensorView& tensor, const Split& split, int64_t rows) {
  const TensorView first = row_of(tensor, split, 0, rows);
  for (int64_t row = 1; row < rows; ++row) {
    const Spread spread = spread_of(first, row_of(tensor, split, row, rows));
    const bool is_close =
        is_float(tensor.dtype) && spread.largest_error <= kEqualRows * spread.largest_value;
    if (spread.different > 0 && !is_close) return false;
  }
  return true;
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
                     const std::optional<Dims>& shape) const {
  const std::vector<Use>* few = uses_of(few_, one, is_output);
  const std::vector<Use>* more = uses_of(more_, one, is_output);
  if (few == nullptr || more == nullptr || number >= few->size() || number >= more->size())
    return {};
  return learn((*few)[number], (*more)[number], shape);
}

Split Splits::of_boundary(const locate::ModuleCall& call, bool is_output, size_t number,
                          const std::optional<Dims>& shape) const {
  const std::vector<Use>* few = uses_of(few_, call, is_output);
  const std::vector<Use>* more = uses_of(more_, call, is_output);
  if (few == nullptr || more == nullptr || number >= few->size() || number >= more->size())
    return {};
  return learn((*few)[number], (*more)[number], shape);
}

Split Splits::learn(const Use& few, const Use& more, const std::optional<Dims>& shape) const {
  const run::TensorRecord& a = few_.run().records[few.record];
  const run::TensorRecord& b = more_.run().records[more.record];
  if (!a.shape || !b.shape || a.shape != shape || a.shape->size() != b.shape->size()) return {};
  std::optional<size_t> axis;
  for (size_t i = 0; i < a.shape->size(); ++i) {
    if ((*a.shape)[i] == (*b.shape)[i]) continue;
    if (axis) return {};
    axis = i;
  }
  if (!axis) return {.state = Split::State::Shared};
  const int64_t per_row = (*a.shape)[*axis] / rows_;
  if ((*a.shape)[*axis] != per_row * rows_ || (*b.shape)[*axis] != per_row * (rows_ + 1)) return {};
  return cut(a, *axis, per_row);
}

Split Splits::cut(const run::TensorRecord& record, size_t axis, int64_t per_row) const {
  const Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor) return {};
  Split blocks{.state = Split::State::Rows, .axis = axis, .per_row = per_row};
  Split interleaved = blocks;
  interleaved.interleaved = true;
  const bool fits_blocks = has_equal_rows(tensor->view, blocks, rows_);
  const bool fits_interleaved = per_row > 1 && has_equal_rows(tensor->view, interleaved, rows_);
  if (fits_blocks == fits_interleaved) return {};  // neither, or nobody can tell
  return fits_blocks ? blocks : interleaved;
}

}  // namespace assay::repeat
