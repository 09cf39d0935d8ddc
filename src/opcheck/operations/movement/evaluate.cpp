// SPDX-License-Identifier: Apache-2.0
// A result that is written into an input is judged whole where the state before it was dumped;
// otherwise only what was written is picked out of the state after it.
#include "opcheck/operations/movement/evaluate.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck::movement {

Status require_integers(const Tensor& tensor, std::string_view what) {
  if (is_integer(tensor.view.dtype) || tensor.view.dtype == DType::Bool) return {};
  return fail(Errc::Invalid, what, " are ", tensor.view.dtype, ", no integers");
}

Result<std::vector<int64_t>> integers_of(const Tensor& tensor, std::string_view what) {
  ASSAY_TRY_STATUS(require_integers(tensor, what));
  Result<reference::Whole> values = reference::whole(tensor.view);
  if (!values) {
    values.error().message = std::string(what) + ": " + values.error().message;
    return fail(std::move(values).error());
  }
  return std::vector<int64_t>(values->values.begin(), values->values.end());
}

Result<Expectation> expect_in_place(const Case& one, InPlace place) {
  const Operands& operands = *one.operands;
  const bool is_listed = operands.has_output(place.output);
  Expectation expected{.index = is_listed ? place.output : place.input,
                       .in_place = !is_listed,
                       .accuracy = place.accuracy};
  if (operands.has_before()) {
    ASSAY_TRY(Tensor before, operands.input(place.input));
    expected.candidates.push_back(
        candidate({}, [before, write = std::move(place.write)] { return write(before); }));
    return expected;
  }
  ASSAY_TRY(const Tensor after,
            is_listed ? operands.output(place.output) : operands.input_after(place.input));
  ASSAY_TRY(expected.mine, place.pick(after));
  expected.candidates.push_back(candidate({}, std::move(place.written)));
  expected.partial = true;
  expected.note = "written part only";
  return expected;
}

}  // namespace assay::opcheck::movement
