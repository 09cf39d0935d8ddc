// SPDX-License-Identifier: Apache-2.0
// Operations of ATB runs: opcheck recomputes them, its standard `atb` says what is a fault.
//   docs/opcheck.md, "atb"
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "base/numbers.hpp"
#include "locate/judge/own_error.hpp"
#include "locate/noise/error_classes.hpp"
#include "opcheck/check.hpp"

namespace assay::locate {
namespace {

using opcheck::CaseResult;
using opcheck::OutputRow;

/// Measures of one row. z is the relative L2 over that of one rounding, e the worst element over
/// the standard's limit.
OwnError error_of(const OutputRow& row) {
  OwnError error;
  error.output = row.index;
  if (!row.compared) {
    error.state = row.outcome == opcheck::CheckOutcome::NotSupported ? OwnError::State::NoReference
                                                                     : OwnError::State::Failed;
    error.reason = row.reason;
    // Outputs of another size, and outputs that should not be there, are judged without being
    // compared.
    if (row.outcome != opcheck::CheckOutcome::Failed) return error;
    error.state = OwnError::State::Judged;
    error.z = error.e = error.e2 = kInfinity;
    return error;
  }
  const measure::Measures& measures = row.measures;
  error.state = measures.worst_index < 0 ? OwnError::State::Exact : OwnError::State::Judged;
  error.dtype = measures.dtype;
  error.worst = measures.worst_index;
  error.relative_l2 = measures.relative_l2;
  const std::optional<FloatGrid> grid = float_grid(measures.dtype);
  if (grid) {
    error.floor_l2 = kRoundingL2 * grid->roundoff();
    error.z = error.relative_l2 / error.floor_l2;
  }
  if (measures.pattern_mismatches > 0) error.e = error.e2 = kInfinity;
  if (error.worst < 0 || measures.pattern_mismatches > 0) return error;
  const double limit = measure::atb_limits(row.accuracy, measures.dtype).error;
  const double golden = std::fabs(row.worst.golden);
  const double distance = std::fabs(row.worst.mine - row.worst.golden);
  const double allowed = limit * std::max(1.0, golden);
  error.e = error.e2 = allowed > 0 ? distance / allowed : kInfinity;
  const double size = std::max(golden, std::fabs(row.worst.mine));
  if (grid && size >= grid->smallest_normal()) {
    error.worst_ulp = distance / grid->ulp(size);
    error.allowed_ulp = allowed / grid->ulp(size);
  }
  return error;
}

/// The records of a run by what a row of a check tells of them. Their files may hold many.
class Records {
 public:
  explicit Records(const run::Run& run) {
    for (size_t i = 0; i < run.records.size(); ++i) {
      const run::TensorRecord& one = run.records[i];
      places_.emplace(Place{one.rank, one.step_name, one.node, one.role, one.slot}, i);
    }
  }
  [[nodiscard]] std::optional<size_t> find(const CaseResult& one, const OutputRow& row) const {
    if (row.file.empty()) return std::nullopt;
    const Role role = row.in_place ? Role::Input : Role::Output;
    const auto found = places_.find(
        {one.description.rank, one.description.step, one.description.node, role, row.slot});
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  using Place = std::tuple<int, std::string_view, std::string_view, Role, std::string_view>;
  std::map<Place, size_t> places_;
};

Finding finding_of(const run::Run& run, std::optional<size_t> record, const CaseResult& one,
                   const OutputRow& row, const OwnError& error) {
  Finding finding;
  finding.kind = FindingKind::OwnError;
  finding.confidence = Confidence::Medium;  // the limits are fixed ones
  finding.rank = one.description.rank;
  finding.step = parse_number<int64_t>(one.description.step).value_or(0);
  finding.node = one.description.node;
  finding.op_type = one.description.op_type;
  finding.slot = (row.in_place ? "intensor" : "outtensor") + std::to_string(row.index);
  if (record) {
    const run::TensorRecord& found = run.records[*record];
    finding.mine_record = *record;
    finding.time = found.order;
    finding.step = found.step;
    finding.node = found.node;
  }
  finding.module = finding.node.substr(0, std::min(finding.node.rfind('/'), finding.node.size()));
  finding.ratio = std::max(error.z, error.e);
  finding.err_own = error.relative_l2;
  finding.noise_floor = error.floor_l2;
  finding.worst_ulp = error.worst_ulp;
  finding.allowed_ulp = error.allowed_ulp;
  finding.detail = row.reason;
  return finding;
}

}  // namespace

Result<OwnErrors> own_errors_of_operations(const run::Run& run, const OwnErrorOptions& options) {
  ASSAY_TRY(const opcheck::CaseList cases, opcheck::list_cases(run.path, {}));
  opcheck::CheckOptions checking;
  checking.standard = measure::Standard::Atb;
  checking.jobs = options.jobs;
  checking.max_memory = options.max_memory;
  checking.progress = options.progress;
  checking.interrupted = options.interrupted;
  checking.parts = options.parts;
  ASSAY_TRY(const opcheck::Report report, opcheck::check_cases(cases, checking));
  if (report.interrupted) return fail(Errc::Interrupted, "interrupted");
  const Records records(run);
  OwnErrors result;
  for (const CaseResult& one : report.cases) {
    ++result.judgeable;
    const bool judged =
        one.outcome == opcheck::CheckOutcome::Pass || one.outcome == opcheck::CheckOutcome::Failed;
    if (judged) ++result.judged;
    std::string reason;
    for (const OutputRow& row : one.rows) {
      result.outputs.push_back(error_of(row));
      const std::optional<size_t> record = records.find(one, row);
      if (record) result.outputs.back().record = *record;
      if (row.outcome == opcheck::CheckOutcome::Failed)
        result.findings.push_back(finding_of(run, record, one, row, result.outputs.back()));
      if (reason.empty() && row.outcome != opcheck::CheckOutcome::Pass &&
          row.outcome != opcheck::CheckOutcome::Failed)
        reason = row.reason;
    }
    if (!judged) ++result.unjudged[one.description.op_type + ": " + reason];
  }
  std::ranges::stable_sort(result.findings, comes_before);
  return result;
}

}  // namespace assay::locate
