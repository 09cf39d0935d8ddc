// SPDX-License-Identifier: Apache-2.0
// GroupTopk and the routing of tokens. Chosen experts are judged by their scores, since of nearly
// equal ones a kernel may take either; weights are then those of the experts that it took.
//   docs/opcheck/selection.md, "Experts"
#include "reference/selection/experts.hpp"

#include <cmath>
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

constexpr int64_t kSigmoid = 8;  // activationType

/// Scores this close may change places in a kernel that computes them in float32.
constexpr double kScoreTolerance = 0x1p-20;

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (a.view.dtype != b.view.dtype || a.view.shape != b.view.shape) return false;
  const Result<Tensor> left = reference::contiguous(a);
  const Result<Tensor> right = reference::contiguous(b);
  if (!left || !right) return false;
  const ByteSpan x = left->view.contiguous_bytes();
  const ByteSpan y = right->view.contiguous_bytes();
  return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size()) == 0);
}

/// table[expert, token mod max(1, count[expert])]: the copy of an expert that serves a token.
Result<Whole> mapped(const Whole& experts, const Tensor& counts, const Tensor& table) {
  if (table.view.shape.size() != 2 || counts.view.shape.size() != 1 ||
      counts.view.shape[0] != table.view.shape[0])
    return fail(Errc::Invalid, "intensor2 (mapping_num) has shape ", counts.view.shape,
                ", intensor3 (mapping_table) ", table.view.shape);
  ASSAY_TRY(const Whole copies, reference::whole(counts.view));
  ASSAY_TRY(const Whole places, reference::whole(table.view));
  const int64_t rows = table.view.shape[0];
  const int64_t width = table.view.shape[1];
  const int64_t k = experts.shape[1];
  Whole result(experts.shape);
  for (int64_t i = 0; i < experts.size(); ++i) {
    const int64_t expert = experts.data()[i];
    if (expert >= rows) return fail(Errc::Invalid, "expert ", expert, " in a mapping of ", rows);
    const int64_t copy = i / k % std::max<int64_t>(1, copies.data()[expert]);
    if (copy >= width) return fail(Errc::Invalid, "copy ", copy, " of an expert with ", width);
    result.data()[i] = places.data()[expert * width + copy];
  }
  return result;
}

/// True when the device's experts are ours, or as good within the tolerance, in every place.
Result<bool> as_good(const Wide& picked, const Wide& golden) {
  for (size_t i = 0; i < picked.values.size(); ++i) {
    const double difference = std::fabs(picked.values[i] - golden.values[i]);
    if (!(difference <= kScoreTolerance * std::fmax(1, std::fabs(golden.values[i])))) return false;
  }
  return true;
}

}  // namespace

Result<Evaluation> evaluate_group_topk(const Case& one) {
  ASSAY_TRY_STATUS(expect_counts(
      one, {.least_inputs = 1, .most_inputs = 2, .least_outputs = 0, .most_outputs = 1}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const int64_t groups, one.parameters.integer("groupNum", 1));
  ASSAY_TRY(const int64_t keep, one.parameters.integer("k", 0));
  ASSAY_TRY(const int64_t flag, one.parameters.integer("groupMultiFlag", 0));
  ASSAY_TRY(const int64_t several, one.parameters.integer("n", 1));
  if (flag != 0 && flag != 1)
    return fail(Errc::Unsupported, "groupMultiFlag ", flag, " is unknown");
  const int64_t largest = flag == 0 ? 1 : several;
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  const bool listed = one.operands->has_output(0);
  // The host hands the input out as the output; afterwards it may hold what the kernel wrote.
  if (!one.operands->has_before()) {
    bool overwritten = !listed;
    if (listed) {
      ASSAY_TRY(const Tensor mine, one.operands->output(0));
      overwritten = same_bytes(x, mine);
    }
    if (overwritten && keep < groups)
      return fail(Errc::Unsupported,
                  "needs before data: the operation works in place and was dumped after it");
  }

  Expectation output = expectation(0, {.precision = Precision::Move}, [=] {
    return reference::group_top_k(x, groups, keep, largest);
  });
  output.in_place = !listed;
  return evaluation(
      flag == 0 ? "largest of a group" : "sum of the " + std::to_string(largest) + " largest",
      std::move(output));
}

Result<Evaluation> evaluate_fused_add_topk_div(const Case& one) {
  ASSAY_TRY(const int64_t activation, one.parameters.integer("activationType", kSigmoid));
  if (activation != kSigmoid)
    return fail(Errc::Unsupported, "activationType ", activation, " is unknown here");
  ASSAY_TRY(const bool mapping, one.parameters.boolean("enableExpertMapping", false));
  const size_t inputs = mapping ? 4 : 2;
  ASSAY_TRY_STATUS(expect_counts(
      one, {.least_inputs = inputs, .most_inputs = inputs, .least_outputs = 2, .most_outputs = 2}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  reference::RoutingParameters parameters;
  ASSAY_TRY(parameters.groups, one.parameters.integer("groupNum", 1));
  ASSAY_TRY(parameters.group_top_k, one.parameters.integer("groupTopk", 1));
  ASSAY_TRY(parameters.largest, one.parameters.integer("n", 1));
  ASSAY_TRY(parameters.top_k, one.parameters.integer("k", 1));
  ASSAY_TRY(parameters.normalise, one.parameters.boolean("isNorm", true));
  ASSAY_TRY(parameters.scale, one.parameters.number("scale", 1.0));
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  ASSAY_TRY(const Tensor bias, one.operands->input(1));
  ASSAY_TRY(const reference::Routing routing,
            reference::route_to_experts(x.view, bias.view, parameters));
  Evaluation result{.variant = parameters.normalise ? "normalised" : "not normalised",
                    .outputs = {}};
  if (mapping) result.variant += ", experts mapped";

  ASSAY_TRY(const Tensor mine, one.operands->output(1));
  Wide weights = routing.weights;
  Expectation experts;
  if (mapping) {
    ASSAY_TRY(const Tensor counts, one.operands->input(2));
    ASSAY_TRY(const Tensor table, one.operands->input(3));
    ASSAY_TRY(Whole physical, mapped(routing.experts, counts, table));
    experts = expectation_of(1, {.precision = Precision::Integer}, std::move(physical));
  } else {
    // Experts are judged by their scores: of nearly equal ones the kernel may take either.
    Wide scores = routing.scores;
    const Tensor table = reference::to_tensor(std::move(scores));
    ASSAY_TRY(const Picked golden,
              pick_by_row(table.view, reference::to_tensor(Whole(routing.experts)).view));
    ASSAY_TRY(Picked picked, pick_by_row(table.view, mine.view));
    ASSAY_TRY(const Wide picked_scores, reference::widen(picked.values.view));
    ASSAY_TRY(const Wide golden_scores, reference::widen(golden.values.view));
    experts = expectation_of(1, {.precision = Precision::VectorFusion}, golden.values);
    experts.mine = picked.values;
    experts.note = "scores of the chosen experts" + (picked.note.empty() ? "" : "; " + picked.note);
    if (picked_scores.shape == golden_scores.shape) {
      ASSAY_TRY(const bool good, as_good(picked_scores, golden_scores));
      if (good) {
        ASSAY_TRY(const Whole chosen, reference::whole(mine.view));
        weights = reference::routing_weights(routing.gates, chosen, parameters);
      }
    }
  }
  result.outputs.push_back(
      expectation_of(0, {.precision = Precision::VectorFusion}, std::move(weights)));
  result.outputs.push_back(std::move(experts));
  return result;
}

}  // namespace assay::opcheck
