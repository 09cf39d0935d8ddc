// SPDX-License-Identifier: Apache-2.0
// Gets the right tensor for each kind of finding, and lets explain() (hypotheses.hpp) say what
// makes the wrong one of it.
#include "locate/verdict/locate_hypotheses.hpp"

#include <algorithm>
#include <cmath>

#include "locate/judge/own_error.hpp"
#include "locate/noise/error_classes.hpp"
#include "locate/noise/narrow_products.hpp"
#include "locate/verdict/hypotheses.hpp"
#include "measure/metrics.hpp"
#include "run/load.hpp"

namespace assay::locate {
namespace {

constexpr size_t kCandidates = 4;  // that a screen shows
constexpr int64_t kMaxElements = int64_t{1} << 24;
constexpr double kOneRounding = kRoundingL2 / 256;  // relative L2 of a tensor rounded to bfloat16

std::optional<Tensor> tensor_of(const run::Run& run, size_t record) {
  if (record >= run.records.size()) return std::nullopt;
  Result<Tensor> tensor = run::load_tensor(run.records[record]);
  if (!tensor || tensor->view.element_count() > kMaxElements) return std::nullopt;
  return *std::move(tensor);
}

// What the operator should have given from its own captured inputs.
std::optional<Tensor> reference_of(const Program& mine, const Finding& finding) {
  if (finding.mine_operator >= mine.operators.size()) return std::nullopt;
  const Operator& one = mine.operators[finding.mine_operator];
  const auto output = std::ranges::find_if(
      one.outputs, [&](const Use& use) { return use.record == finding.mine_record; });
  if (output == one.outputs.end()) return std::nullopt;
  const Result<reference::aten::Call> call = load_call(mine, one);
  if (!call) return std::nullopt;
  Result<std::vector<Tensor>> outputs = is_product(one.name) ? evaluate_narrow(*call, mine.products)
                                                             : reference::aten::evaluate(*call);
  const size_t index = result_of(*output, static_cast<size_t>(output - one.outputs.begin()));
  if (!outputs || index >= outputs->size()) return std::nullopt;
  return std::move((*outputs)[index]);
}

std::optional<Tensor> right_of(const Program& golden, const Program& mine,
                               const std::map<size_t, Tensor>& references, const Finding& finding) {
  switch (finding.kind) {
    case FindingKind::OwnError:
      return reference_of(mine, finding);
    case FindingKind::Gap: {
      const auto found = references.find(finding.mine_record);
      return found == references.end() ? std::nullopt : std::optional(found->second);
    }
    case FindingKind::Weight:
      if (const auto found = references.find(finding.mine_record); found != references.end())
        return found->second;
      [[fallthrough]];
    case FindingKind::MeasuredFloor:
      return tensor_of(*golden.run, finding.golden_record);
    default:
      return std::nullopt;
  }
}

// What came with the inputs is in the difference from golden's value only: the other references are
// made of values of the run under test.
double floor_of(const Finding& finding) {
  const double inherited = finding.kind == FindingKind::MeasuredFloor ? finding.err_in : NAN;
  return std::fmax(kOneRounding, std::fmax(finding.noise_floor, inherited));
}

}  // namespace

void add_hypotheses(const Program& golden, const Program& mine,
                    const std::map<size_t, Tensor>& references, Verdict* verdict) {
  for (size_t i = 0; i < std::min(kCandidates, verdict->candidates.size()); ++i) {
    Finding& finding = verdict->candidates[i];
    const bool besides =
        finding.kind == FindingKind::Weight && references.contains(finding.mine_record);
    if (!finding.hypothesis.empty() && !besides) continue;
    const std::optional<Tensor> wrong = tensor_of(*mine.run, finding.mine_record);
    if (!wrong) continue;
    const std::optional<Tensor> right = right_of(golden, mine, references, finding);
    if (!right) continue;
    finding.hypothesis = explain(right->view, wrong->view, floor_of(finding)).sentence;
    if (!besides) continue;
    finding.err_own = measure::relative_l2(right->view, wrong->view);
    finding.hypothesis = "written otherwise, and " +
                         (finding.hypothesis.empty() ? "another one" : finding.hypothesis) +
                         " besides";
  }
}

}  // namespace assay::locate
