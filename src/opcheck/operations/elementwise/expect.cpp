// SPDX-License-Identifier: Apache-2.0
// Counts, layouts and empty tensors are refused before anything is computed. Rows without a finite
// scale are cut out of output and golden alike, so that the rest is judged as one matrix.
#include "opcheck/operations/elementwise/expect.hpp"

#include <cmath>
#include <cstring>
#include <string>

#include "reference/elementwise/quantise.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

std::string range_text(size_t least, size_t most) {
  if (least == most) return std::to_string(least);
  return std::to_string(least) + (most == least + 1 ? " or " : " to ") + std::to_string(most);
}

Status check_count(size_t count, size_t least, size_t most, std::string_view what) {
  if (count >= least && count <= most) return {};
  return fail(Errc::Invalid, count, " ", what, (count == 1 ? "" : "s"), " in the dump, ",
              range_text(least, most), " expected");
}

/// The rows (last dimension) that are kept, as one matrix.
Result<Tensor> kept_rows(const Tensor& tensor, const std::vector<bool>& keep) {
  ASSAY_TRY(const Tensor whole, reference::contiguous(tensor));
  const auto rows = static_cast<int64_t>(keep.size());
  const int64_t columns = rows == 0 ? 0 : whole.view.element_count() / rows;
  if (columns * rows != whole.view.element_count())
    return fail(Errc::Invalid, "a tensor of shape ", tensor.view.shape, " does not have ", rows,
                " rows");
  const size_t row_bytes = static_cast<size_t>(columns) * info(whole.view.dtype).element_bits / 8;
  int64_t kept = 0;
  for (const bool one : keep) kept += one ? 1 : 0;
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(kept) * row_bytes);
  const ByteSpan from = whole.view.contiguous_bytes();
  std::byte* to = bytes->data();
  for (size_t row = 0; row < keep.size() && row_bytes != 0; ++row) {
    if (!keep[row]) continue;
    std::memcpy(to, from.data() + row * row_bytes, row_bytes);
    to += row_bytes;
  }
  ASSAY_TRY(const TensorView view, make_view(whole.view.dtype, Dims{kept, columns},
                                             ByteSpan(bytes->data(), bytes->size())));
  return Tensor{view, std::move(bytes)};
}

}  // namespace

Status expect_counts(const Case& one, const TensorCounts& counts) {
  ASSAY_TRY_STATUS(
      check_count(one.operands->input_count(), counts.least_inputs, counts.most_inputs, "input"));
  return check_count(one.operands->output_count(), counts.least_outputs, counts.most_outputs,
                     "output");
}

Status refuse_nz(const Case& one) {
  for (size_t i = 0; i < one.operands->input_count(); ++i) {
    if (one.operands->has_input(i) && one.operands->is_nz_input(i))
      return fail(Errc::Unsupported, "intensor", i, " is in FRACTAL_NZ");
  }
  for (size_t i = 0; i < one.operands->output_count(); ++i) {
    if (one.operands->has_output(i) && one.operands->is_nz_output(i))
      return fail(Errc::Unsupported, "outtensor", i, " is in FRACTAL_NZ");
  }
  return {};
}

Status refuse_empty(const Tensor& tensor, size_t index) {
  if (tensor.view.element_count() != 0) return {};
  return fail(Errc::Unsupported, "intensor", index, " has no elements");
}

Result<std::optional<Tensor>> optional_input(const Case& one, size_t index) {
  if (index >= one.operands->input_count() || !one.operands->has_input(index))
    return std::optional<Tensor>();
  ASSAY_TRY(Tensor tensor, one.operands->input(index));
  if (tensor.view.element_count() == 0) return std::optional<Tensor>();
  return std::optional<Tensor>(std::move(tensor));
}

Result<double> single_value(const Tensor& tensor, std::string_view what) {
  if (tensor.view.element_count() != 1)
    return fail(Errc::Invalid, what, " has shape ", tensor.view.shape, ", one value expected");
  ASSAY_TRY(const reference::Wide value, reference::widen(tensor.view));
  return value.values[0];
}

Result<QuantisedRows> expect_dynamic_quantised(const Case& one, reference::Wide values,
                                               bool asymmetric, DType target, size_t index) {
  ASSAY_TRY(reference::DynamicQuantised done,
            reference::dynamic_quantise(std::move(values), asymmetric, target));
  std::vector<bool> keep;
  size_t dropped = 0;
  for (const double scale : done.scales.values) {
    keep.push_back(scale != 0 && std::isfinite(scale));
    dropped += keep.back() ? 0 : 1;
  }
  const Accuracy accuracy{.precision = Precision::Quant};
  const Tensor before_rounding = reference::to_tensor(std::move(done.values));
  QuantisedRows rows;
  rows.scales = expectation_of(index + 1, accuracy, std::move(done.scales));
  rows.values = Expectation{.index = index, .accuracy = accuracy};
  rows.values.before_rounding = before_rounding;
  if (asymmetric) rows.offsets = expectation_of(index + 2, accuracy, std::move(done.offsets));
  if (dropped != 0) {
    const std::string note = std::to_string(dropped) + " of " + std::to_string(keep.size()) +
                             " rows have no scale and were not judged";
    ASSAY_TRY(const Tensor mine, one.operands->output(index));
    ASSAY_TRY(rows.values.mine, kept_rows(mine, keep));
    ASSAY_TRY(rows.values.before_rounding, kept_rows(before_rounding, keep));
    rows.values.note = note;
    rows.values.partial = true;
    if (asymmetric) {
      ASSAY_TRY(const Tensor mine_offsets, one.operands->output(index + 2));
      ASSAY_TRY(rows.offsets->mine, kept_rows(mine_offsets, keep));
      ASSAY_TRY(const Tensor golden, rows.offsets->candidates[0].golden());
      ASSAY_TRY(Tensor kept, kept_rows(golden, keep));
      rows.offsets->candidates = {candidate({}, [kept] { return Result<Tensor>(kept); })};
      rows.offsets->note = note;
      rows.offsets->partial = true;
    }
  }
  rows.values.candidates.push_back(
      candidate({}, [values = *rows.values.before_rounding, target]() -> Result<reference::Wide> {
        ASSAY_TRY(reference::Wide wide, reference::widen(values.view));
        return reference::rounded_to(std::move(wide), target);
      }));
  // Ties are counted for int8 alone: a type with a fraction does not round at halves.
  if (target != DType::Int8) rows.values.before_rounding.reset();
  return rows;
}

}  // namespace assay::opcheck
