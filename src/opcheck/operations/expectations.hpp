// SPDX-License-Identifier: Apache-2.0
// Candidates, expectations and evaluations out of functions that compute goldens.
#pragma once
#include <utility>

#include "opcheck/operation.hpp"
#include "reference/wide.hpp"

namespace assay::opcheck {

inline Result<Tensor> as_tensor(Result<Tensor> result) { return result; }
template <typename T>
Result<Tensor> as_tensor(Result<reference::Array<T>> result) {
  if (!result) return fail(std::move(result).error());
  return reference::to_tensor(std::move(*result));
}

/// `compute` gives a Result of a Tensor, Wide or Whole.
template <typename F>
[[nodiscard]] Candidate candidate(std::string label, F compute) {
  return {std::move(label), [compute = std::move(compute)] { return as_tensor(compute()); }};
}
template <typename F>
[[nodiscard]] Expectation expectation(size_t index, Accuracy accuracy, F compute) {
  Expectation result{.index = index, .accuracy = accuracy};
  result.candidates.push_back(candidate({}, std::move(compute)));
  return result;
}
/// One that is computed already.
[[nodiscard]] inline Expectation expectation_of(size_t index, Accuracy accuracy, Tensor golden) {
  return expectation(index, accuracy,
                     [golden = std::move(golden)] { return Result<Tensor>(golden); });
}
template <typename T>
[[nodiscard]] Expectation expectation_of(size_t index, Accuracy accuracy,
                                         reference::Array<T> golden) {
  return expectation_of(index, accuracy, reference::to_tensor(std::move(golden)));
}

template <typename... Outputs>
[[nodiscard]] Evaluation evaluation(std::string variant, Outputs... outputs) {
  Evaluation made{std::move(variant), {}};
  (made.outputs.push_back(std::move(outputs)), ...);
  return made;
}

}  // namespace assay::opcheck
