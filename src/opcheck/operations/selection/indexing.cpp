// SPDX-License-Identifier: Apache-2.0
// Sort, Nonzero, Onehot, IndexAdd and Gating. Indices whose order is the device's own are judged by
// the values that they point at.   docs/opcheck/selection.md
#include "reference/selection/indexing.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "opcheck/operations/elementwise/expect.hpp"
#include "opcheck/operations/selection/evaluate.hpp"
#include "opcheck/operations/selection/picked.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using reference::Whole;
using reference::Wide;

constexpr Accuracy kInteger{.precision = Precision::Integer};

/// The only value of an integer tensor.
Result<int64_t> single_integer(const Tensor& tensor, std::string_view what) {
  if (tensor.view.element_count() != 1)
    return fail(Errc::Invalid, what, " has shape ", tensor.view.shape, ", one value expected");
  ASSAY_TRY(const Whole value, reference::whole(tensor.view));
  return value.values[0];
}

/// Times that the most frequent index occurs.
int64_t most_frequent(const Tensor& indices) {
  Result<Whole> list = reference::whole(indices.view);
  if (!list) return 0;  // the golden fails with the reason
  std::sort(list->values.begin(), list->values.end());
  int64_t most = 0;
  int64_t run = 0;
  for (size_t i = 0; i < list->values.size(); ++i) {
    run = i > 0 && list->values[i] == list->values[i - 1] ? run + 1 : 1;
    most = std::max(most, run);
  }
  return most;
}

}  // namespace

Result<Evaluation> evaluate_sort(const Case& one) {
  ASSAY_TRY_STATUS(expect_counts(one, {.least_outputs = 2, .most_outputs = 2}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const std::vector<int64_t> num, one.parameters.integers("num"));
  if (num.size() != 1)
    return fail(Errc::Invalid, "parameter num lists ", num.size(), " numbers, one expected");
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  ASSAY_TRY(reference::TopK top, reference::top_k(x.view, num[0]));
  const Tensor values = reference::to_tensor(std::move(top.values));

  Evaluation result{.variant = "largest " + std::to_string(num[0]), .outputs = {}};
  result.outputs.push_back(expectation_of(0, {.precision = Precision::Float}, values));
  // The order of equal values is the device's own: its indices are judged by what they point at.
  ASSAY_TRY(const Tensor indices, one.operands->output(1));
  ASSAY_TRY(Picked picked, pick_by_row(x.view, indices.view));
  Expectation places = expectation_of(1, {.precision = Precision::Move}, values);
  places.mine = std::move(picked.values);
  places.note = "values at the indices" + (picked.note.empty() ? "" : "; " + picked.note);
  result.outputs.push_back(std::move(places));
  return result;
}

Result<Evaluation> evaluate_nonzero(const Case& one) {
  ASSAY_TRY_STATUS(expect_counts(one, {.least_outputs = 2, .most_outputs = 2}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  ASSAY_TRY(reference::Nonzero found, reference::nonzero(x.view));
  return evaluation("coordinates and count", expectation_of(0, kInteger, std::move(found.indices)),
                    expectation_of(1, kInteger, Whole(Dims{1}, found.count)));
}

Result<Evaluation> evaluate_onehot(const Case& one) {
  ASSAY_TRY_STATUS(expect_counts(one, {.least_inputs = 3, .most_inputs = 3}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const int64_t axis, one.parameters.integer("axis", 0));
  ASSAY_TRY(const int64_t depth, one.parameters.integer("depth", 0));
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  ASSAY_TRY(const Tensor on, one.operands->input(1));
  ASSAY_TRY(const Tensor off, one.operands->input(2));
  ASSAY_TRY(const int64_t hot, single_integer(on, "intensor1 (one)"));
  ASSAY_TRY(const int64_t cold, single_integer(off, "intensor2 (zero)"));
  ASSAY_TRY(const Tensor mine, one.operands->output(0));
  const int64_t count = x.view.element_count();
  if (depth < 0 || (count != 0 && mine.view.element_count() / count != depth))
    return fail(Errc::Invalid, "outtensor0 has shape ", mine.view.shape, ", intensor0 has ",
                x.view.shape, " and depth is ", depth);
  Expectation output{.index = 0, .accuracy = kInteger};
  const auto with_axis = [&](std::string label, int64_t place) {
    output.candidates.push_back(candidate(
        std::move(label), [=] { return reference::one_hot(x.view, depth, hot, cold, place); }));
  };
  const bool is_last = axis == -1 || axis == static_cast<int64_t>(x.view.shape.size());
  with_axis(is_last ? "" : "axis " + std::to_string(axis), axis);
  // The library's own kernels put the depth last whatever the parameter says.
  if (!is_last) with_axis("axis -1", -1);
  return evaluation("depth " + std::to_string(depth), std::move(output));
}

Result<Evaluation> evaluate_index_add(const Case& one) {
  ASSAY_TRY(const int64_t type, one.parameters.integer("indexType", 0));
  if (type != 1 && type != 2) return fail(Errc::Unsupported, "indexType ", type, " is unknown");
  ASSAY_TRY_STATUS(expect_counts(
      one, {.least_inputs = 4, .most_inputs = 4, .least_outputs = 0, .most_outputs = 1}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  if (!one.operands->has_before())
    return fail(Errc::Unsupported,
                "needs before data: the operation adds to intensor0, which was dumped after it");
  ASSAY_TRY(const int64_t axis, one.parameters.integer("axis", 0));
  ASSAY_TRY(const Tensor var, one.operands->input(0));
  ASSAY_TRY(const Tensor indices, one.operands->input(1));
  ASSAY_TRY(const Tensor updates, one.operands->input(2));
  ASSAY_TRY(const Tensor last, one.operands->input(3));
  double alpha = 1;
  int64_t count = -1;
  if (type == 1) {
    ASSAY_TRY(alpha, single_value(last, "intensor3 (alpha)"));
  } else {
    ASSAY_TRY(count, single_integer(last, "intensor3 (valid indices)"));
    if (count < 0) return fail(Errc::Invalid, "intensor3 says that ", count, " indices are valid");
  }
  const bool listed = one.operands->has_output(0);
  Expectation output =
      expectation(0, {.precision = Precision::Float, .terms = most_frequent(indices) + 1}, [=] {
        return reference::index_add(var.view, axis, indices.view, updates.view, alpha, count);
      });
  output.in_place = !listed;
  return evaluation(type == 1 ? "index add" : "index add, valid indices", std::move(output));
}

Result<Evaluation> evaluate_gating(const Case& one) {
  ASSAY_TRY(const std::vector<int64_t> device, one.parameters.integers("deviceExpert"));
  const size_t outputs = device.empty() ? 3 : 4;
  ASSAY_TRY_STATUS(expect_counts(
      one,
      {.least_inputs = 2, .most_inputs = 2, .least_outputs = outputs, .most_outputs = outputs}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  reference::GatingParameters parameters;
  ASSAY_TRY(parameters.topk_expert_num, one.parameters.integer("topkExpertNum", 0));
  ASSAY_TRY(parameters.expert_count, one.parameters.integer("cumSumNum", 0));
  parameters.device_experts = device;
  if (parameters.expert_count == 0 && !device.empty())
    return fail(Errc::Unsupported, "no public golden for deviceExpert with cumSumNum 0");
  ASSAY_TRY(const Tensor experts, one.operands->input(0));
  ASSAY_TRY(const Tensor numbers, one.operands->input(1));
  ASSAY_TRY(const Tensor sums, one.operands->output(1));
  ASSAY_TRY(reference::Gating gating, reference::gating(experts.view, numbers.view, parameters));
  // Without experts the sums are zeros, however many the host made room for.
  if (parameters.expert_count == 0) gating.cumulative = Whole(sums.view.shape, 0);
  Evaluation result{.variant = device.empty() ? "all experts" : "experts of the device",
                    .outputs = {}};
  if (parameters.expert_count == 0) result.variant = "without sums";
  const auto add = [&](size_t index, Whole golden) {
    result.outputs.push_back(expectation_of(index, kInteger, std::move(golden)));
  };
  add(0, std::move(gating.token_index));
  add(1, std::move(gating.cumulative));
  add(2, std::move(gating.original_index));
  if (!device.empty()) add(3, Whole(Dims{1}, gating.valid));
  return result;
}

}  // namespace assay::opcheck
