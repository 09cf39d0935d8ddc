// SPDX-License-Identifier: Apache-2.0
// Chooses how an output is judged: by its shape, as equal bytes, integers, moved values or rounded
// values, the first that applies. Of a sampled product only some rows are computed.
#include "locate/judge/judge_output.hpp"

#include <algorithm>
#include <cmath>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "locate/judge/judge_exact.hpp"
#include "locate/judge/judge_rounded.hpp"
#include "locate/noise/error_classes.hpp"
#include "reference/aten/magnitudes.hpp"
#include "reference/aten/selection.hpp"
#include "reference/elementwise/broadcast.hpp"
#include "tensor/convert.hpp"
#include "tensor/equal_bytes.hpp"

namespace assay::locate {
namespace {

using reference::kBlock;
using reference::Wide;
using reference::aten::Call;

/// Type and shape text of a result that is not the expected one.
std::string shape_difference(const TensorView& reference, const TensorView& mine) {
  return "shape " + list_text(mine.shape.span()) + ", expected " +
         list_text(reference.shape.span());
}

}  // namespace

Result<OwnError> judge_output(const Call& call, const std::vector<Tensor>& outputs, size_t output,
                              const TensorView& mine, int jobs, double probabilities) {
  OwnError result;
  result.output = output;
  result.dtype = mine.dtype;
  if (output >= outputs.size())
    return fail(Errc::Invalid, call.name + " has no output " + std::to_string(output));
  const Tensor& tensor = outputs[output];
  const TensorView& reference = tensor.view;
  if (!reference::aten::is_predictable(tensor)) {
    result.state = OwnError::State::NotPredictable;
    result.reason = "values that nobody can predict";
    return result;
  }
  if (!(reference.shape == mine.shape)) {
    set_wrong(-1, shape_difference(reference, mine), &result);
    return result;
  }
  if (has_equal_bytes(reference, mine)) {
    result.state = OwnError::State::Exact;
    return result;
  }
  if (is_integer(mine.dtype) || mine.dtype == DType::Bool) {
    ASSAY_TRY_STATUS(judge_integers(call, outputs, output, mine, &result));
    return result;
  }
  ErrorModel model = error_model(call, output, reference.dtype, mine.dtype);
  model.row.probabilities = probabilities;
  if (model.kind == ErrorModel::Kind::None) {
    result.state = OwnError::State::NoReference;
    result.reason = model.reason;
    return result;
  }
  if (model.kind == ErrorModel::Kind::Exact) {
    if (reference::aten::has_open_order(call.name)) {
      ASSAY_TRY(const bool right,
                reference::aten::indices_select_same_values(call, outputs, output, mine));
      if (right) {
        result.state = OwnError::State::Exact;
        return result;
      }
    }
    ASSAY_TRY_STATUS(judge_exact(reference, mine, &result));
    return result;
  }
  const std::optional<FloatGrid> grid = float_grid(mine.dtype);
  ASSAY_TRY_STATUS(judge_rounded({call, output, reference, mine, model.row, *grid}, jobs, &result));
  return result;
}

std::vector<int64_t> sample_rows(const TensorView& mine, int64_t count) {
  const int64_t last = mine.shape.empty() ? 1 : mine.shape[mine.shape.size() - 1];
  if (last == 0) return {};
  const int64_t rows = mine.element_count() / last;
  std::vector<int64_t> chosen;
  count = std::clamp<int64_t>(count, 1, std::max<int64_t>(rows, 1));
  for (int64_t i = 0; i < std::min(count, rows); ++i)
    chosen.push_back(count == 1 ? rows - 1 : i * (rows - 1) / (count - 1));
  std::vector<double> values(static_cast<size_t>(std::min(last, kBlock)));
  double largest = -1;
  int64_t row_of_largest = -1;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t done = 0; done < last; done += kBlock) {
      const auto part = std::span(values).first(static_cast<size_t>(std::min(kBlock, last - done)));
      read_values(mine, row * last + done, static_cast<int64_t>(part.size()), part);
      for (const double value : part) {
        const double size = std::isnan(value) ? kInfinity : std::fabs(value);
        if (size <= largest) continue;
        largest = size;
        row_of_largest = row;
      }
    }
  }
  if (row_of_largest >= 0) chosen.push_back(row_of_largest);
  std::ranges::sort(chosen);
  const auto [first, end] = std::ranges::unique(chosen);
  chosen.erase(first, end);
  return chosen;
}

Result<OwnError> judge_product_rows(const Call& call, const TensorView& mine,
                                    std::span<const int64_t> rows, int jobs) {
  if (mine.shape.empty() || mine.shape[mine.shape.size() - 1] < kShortestRow)
    return fail(Errc::Unsupported, "rows too short to stand for others");
  ASSAY_TRY(Wide reference, reference::aten::product_rows(call, rows, jobs));
  const int64_t last = mine.shape[mine.shape.size() - 1];
  const auto count = static_cast<int64_t>(rows.size());
  if (reference.size() != count * last)
    return fail(Errc::Unsupported, "rows of another length than the reference's");
  Wide found(Dims{count, last});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    if (row < 0 || row >= mine.element_count() / last)
      return fail(Errc::Invalid, "row " + std::to_string(row) + " of a result without it");
    read_values(mine, row * last, last,
                std::span(found.data() + i * last, static_cast<size_t>(last)));
  }
  const ErrorModel model = error_model(call, 0, DType::Float64, mine.dtype);
  const std::optional<FloatGrid> grid = float_grid(mine.dtype);
  if (model.kind != ErrorModel::Kind::Rounded || !grid)
    return fail(Errc::Unsupported, "not a product of floats");
  reference.shape = found.shape;
  const Tensor right = reference::to_tensor(std::move(reference));
  const Tensor wrong = reference::to_tensor(std::move(found));
  OwnError result;
  result.dtype = mine.dtype;
  result.sampled = true;
  ASSAY_TRY_STATUS(
      judge_rounded({call, 0, right.view, wrong.view, model.row, *grid, rows}, jobs, &result));
  if (result.worst >= 0)
    result.worst = rows[static_cast<size_t>(result.worst / last)] * last + result.worst % last;
  return result;
}

}  // namespace assay::locate
