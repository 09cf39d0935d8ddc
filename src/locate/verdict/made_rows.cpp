// SPDX-License-Identifier: Apache-2.0
// Golden's tensor is seen as [outer, rows, inner]; the rows that mine has are copied over it, and
// the whole is rounded to the type of the run under test.
#include "locate/verdict/made_rows.hpp"

#include <algorithm>

#include "reference/wide.hpp"
#include "run/load.hpp"

namespace assay::locate {

MadeRows::MadeRows(const run::Run& run, pair::Recipe recipe) : recipe_(std::move(recipe)) {
  for (size_t& record : recipe_.records) {
    parts_.records.push_back(run.records[record]);
    record = parts_.records.size() - 1;
  }
}

void MadeRows::fill_from(const run::TensorRecord& golden, std::vector<int64_t> rows,
                         int64_t row_count) {
  golden_ = golden;
  rows_ = std::move(rows);
  row_count_ = row_count;
}

Result<Tensor> MadeRows::make() const {
  ASSAY_TRY(Tensor tensor, pair::load_operand(parts_, recipe_));
  if (!golden_) return tensor;
  ASSAY_TRY(const Tensor whole, run::load_tensor(*golden_));
  ASSAY_TRY(reference::Wide values, reference::widen(whole.view));
  ASSAY_TRY(const reference::Wide mine, reference::widen(tensor.view));
  // [outer, rows, inner]
  const Dims& shape = whole.view.shape;
  if (shape.size() < 2) return fail(Errc::Invalid, "a tensor without rows");
  const int64_t inner = shape[shape.size() - 1];
  const int64_t outer = values.size() / std::max<int64_t>(row_count_ * inner, 1);
  const auto some = static_cast<int64_t>(rows_.size());
  const bool fits = shape[shape.size() - 2] == row_count_ || outer == 1;
  if (!fits || mine.size() != outer * some * inner || values.size() != outer * row_count_ * inner)
    return fail(Errc::Invalid, "the rows of mine are not some of golden's");
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t row = 0; row < some; ++row) {
      std::copy_n(
          mine.values.data() + (i * some + row) * inner, inner,
          values.values.data() + (i * row_count_ + rows_[static_cast<size_t>(row)]) * inner);
    }
  }
  return reference::narrow(reference::to_tensor(std::move(values)).view, tensor.view.dtype);
}

}  // namespace assay::locate
