// SPDX-License-Identifier: Apache-2.0
// Cumsum, Reduce and Softmax, each with one input and a list of axes. The sizes of the axes
// multiplied are the number of terms that the limits of a sum depend on.
//   docs/opcheck/selection.md
#include "reference/selection/reduce.hpp"

#include "opcheck/operations/elementwise/expect.hpp"
#include "opcheck/operations/selection/evaluate.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

/// The sizes of the axes multiplied. Axes that do not exist or are listed twice count as 1: the
/// reference operator refuses them.
int64_t terms_along(const Dims& shape, const std::vector<int64_t>& axes) {
  if (element_count(shape).value_or(0) == 0) return 0;  // otherwise no product exceeds the count
  std::vector<bool> used(shape.size(), false);
  int64_t terms = 1;
  for (const int64_t axis : axes) {
    const Result<size_t> at = reference::axis_of(axis, shape.size());
    if (!at || used[*at]) continue;
    used[*at] = true;
    terms *= shape[*at];
  }
  return terms;
}

/// The parameter, which must not be empty.
Result<std::vector<int64_t>> required_axes(const Case& one, std::string_view name) {
  ASSAY_TRY(std::vector<int64_t> axes, one.parameters.integers(name));
  if (axes.empty()) return fail(Errc::Invalid, "parameter ", name, " lists no axis");
  if (axes.size() > 64) return fail(Errc::Invalid, "parameter ", name, " is too long");
  return axes;
}

Result<Tensor> only_input(const Case& one) {
  ASSAY_TRY_STATUS(expect_counts(one, {}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  return one.operands->input(0);
}

}  // namespace

Result<Evaluation> evaluate_cumsum(const Case& one) {
  ASSAY_TRY(const Tensor x, only_input(one));
  ASSAY_TRY(const std::vector<int64_t> axes, required_axes(one, "axes"));
  if (axes.size() != 1) return fail(Errc::Unsupported, "sums along ", axes.size(), " axes");
  ASSAY_TRY(const bool exclusive, one.parameters.boolean("exclusive", false));
  ASSAY_TRY(const bool reverse, one.parameters.boolean("reverse", false));
  Evaluation result;
  result.variant =
      std::string(exclusive ? "exclusive" : "inclusive") + (reverse ? ", reverse" : "");
  result.outputs.push_back(
      expectation(0, {.precision = Precision::Float, .terms = terms_along(x.view.shape, axes)},
                  [x, axis = axes[0], exclusive, reverse] {
                    return reference::cumsum(x.view, axis, exclusive, reverse);
                  }));
  return result;
}

Result<Evaluation> evaluate_reduce(const Case& one) {
  ASSAY_TRY(const int64_t type, one.parameters.integer("reduceType", 0));
  if (type < 1 || type > 3) return fail(Errc::Unsupported, "reduceType ", type, " is unknown");
  ASSAY_TRY(const Tensor x, only_input(one));
  ASSAY_TRY(const std::vector<int64_t> axes, required_axes(one, "axis"));
  ASSAY_TRY_STATUS(refuse_empty(x, 0));
  const auto reduction = type == 1   ? reference::Reduction::Max
                         : type == 2 ? reference::Reduction::Min
                                     : reference::Reduction::Sum;
  // Extremes are values of the input, sums are computed.
  const Accuracy accuracy{.precision = type == 3 ? Precision::Float : Precision::Move,
                          .terms = terms_along(x.view.shape, axes)};
  return evaluation(type == 1   ? "max"
                    : type == 2 ? "min"
                                : "sum",
                    expectation(0, accuracy, [x, reduction, axes] {
                      return reference::reduce(x.view, reduction, axes);
                    }));
}

Result<Evaluation> evaluate_softmax(const Case& one) {
  ASSAY_TRY(const Tensor x, only_input(one));
  ASSAY_TRY(const std::vector<int64_t> axes, required_axes(one, "axes"));
  return evaluation(
      axes.size() == 1 ? "one axis" : "several axes",
      expectation(0, {.precision = Precision::Float, .terms = terms_along(x.view.shape, axes)},
                  [x, axes] { return reference::softmax(x.view, axes); }));
}

}  // namespace assay::opcheck
