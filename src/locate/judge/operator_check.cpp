// SPDX-License-Identifier: Apache-2.0
// Finds out which of the two a path holds, and turns the own errors of a run's operators into the
// report that opcheck makes of ATB operations: a case an operator, a row an output.
#include "locate/judge/operator_check.hpp"

#include <algorithm>
#include <chrono>

#include "base/ascii.hpp"
#include "locate/judge/own_error.hpp"
#include "locate/judge/strict_kernels.hpp"
#include "run/open.hpp"

namespace assay::locate {
namespace {

using opcheck::CaseResult;
using opcheck::CheckOutcome;
using opcheck::OutputRow;
using opcheck::Report;
using opcheck::RoundingMeasures;

/// Options that decide nothing here are refused, not ignored.
Status check_options(const opcheck::CaseOptions& cases, const opcheck::CheckOptions& options) {
  const char* what = !cases.ids.empty()                           ? "ids"
                     : !cases.csv_path.empty()                    ? "a list of operations"
                     : options.standard != measure::Standard::Atb ? "another standard"
                     : options.precision_mode != opcheck::PrecisionMode::KeepOrigin
                         ? "a precision mode"
                     : options.kl_divergence   ? "the metric kl"
                     : !options.custom.empty() ? "algorithms of your own"
                                               : nullptr;
  if (what == nullptr) return {};
  return fail(Errc::Usage, std::string(what) +
                               ": only for dumps of ATB; captured operators are judged by "
                               "what rounding explains");
}

CheckOutcome outcome_of(const OwnError& error) {
  switch (error.state) {
    case OwnError::State::Judged:
    case OwnError::State::Exact:
      return error.wrong ? CheckOutcome::Failed : CheckOutcome::Pass;
    case OwnError::State::Failed:
      return CheckOutcome::Error;
    case OwnError::State::NoReference:
    case OwnError::State::NotCaptured:
    case OwnError::State::NotPredictable:
      break;
  }
  return CheckOutcome::NotSupported;
}

std::vector<int64_t> index_of(int64_t flat, const Dims& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] <= 0) return {};
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

RoundingMeasures measures_of(const Operator& one, const OwnError& error, const OutputRow& row) {
  RoundingMeasures measures;
  measures.module = one.module;
  measures.call = one.module_call;
  measures.judged = error.state == OwnError::State::Judged || error.state == OwnError::State::Exact;
  if (!measures.judged) return measures;
  measures.z = error.z;
  measures.e = error.e;
  measures.worst_ulp = error.worst_ulp;
  measures.allowed_ulp = error.allowed_ulp;
  measures.relative_l2 = error.relative_l2;
  measures.noise_floor = error.floor_l2;
  if (error.worst >= 0) measures.worst_index = index_of(error.worst, row.shape);
  measures.extent = error.sampled ? "sample" : error.by_sums ? "sums" : "all";
  return measures;
}

OutputRow row_of(const Program& program, const Operator& one, const OwnError& error) {
  OutputRow row;
  row.index = error.output;
  row.name = "output " + std::to_string(error.output);
  row.outcome = outcome_of(error);
  if (row.outcome != CheckOutcome::Pass)
    row.reason = row.outcome == CheckOutcome::Failed ? describe_own_error(error) : error.reason;
  if (error.output < one.outputs.size()) {
    const run::TensorRecord& record = program.run->records[one.outputs[error.output].record];
    if (record.dtype) row.dtype = std::string(name(*record.dtype));
    if (record.shape) row.shape = *record.shape;
    if (record.bytes) row.file = record.bytes->file;
  }
  row.rounding = measures_of(one, error, row);
  return row;
}

CaseResult case_of(const Operator& one) {
  CaseResult result;
  result.description.id = one.node;
  result.description.op_type = one.name;
  result.description.node = one.node;
  result.description.rank = one.rank;
  result.description.step = std::to_string(one.step);
  result.outcome = CheckOutcome::Pass;
  return result;
}

bool is_wanted(const Operator& one, const std::vector<std::string>& names) {
  const std::string type = lower_case(one.name);
  return names.empty() || std::ranges::any_of(names, [&](const std::string& name) {
           return type.find(lower_case(name)) != std::string::npos;
         });
}

std::string coverage_of(const OwnErrors& errors) {
  std::string text = std::to_string(errors.judged) + " of " + std::to_string(errors.judgeable) +
                     " operators that produce floats were judged";
  if (errors.unjudged.empty()) return text;
  const auto most = std::ranges::max_element(errors.unjudged, {},
                                             [](const auto& reason) { return reason.second; });
  return text + ", most of the others not because of " + most->first + " (" +
         std::to_string(most->second) + ")";
}

Report report_of(const Program& program, const OwnErrors& errors,
                 const std::vector<std::string>& names) {
  Report report;
  report.path = program.run->path;
  report.by_rounding = true;
  report.interrupted = errors.interrupted;
  report.warnings = program.run->warnings;
  report.coverage = coverage_of(errors);
  opcheck::KnownOperations known;
  size_t last = kNone;
  for (const OwnError& error : errors.outputs) {
    const Operator& one = program.operators[error.op];
    known.add(one.name, {});
    if (!is_wanted(one, names)) continue;
    if (error.op != last) report.cases.push_back(case_of(one));
    last = error.op;
    CaseResult& result = report.cases.back();
    result.rows.push_back(row_of(program, one, error));
    result.outcome = opcheck::worse(result.outcome, result.rows.back().outcome);
  }
  if (!names.empty() && report.cases.empty())
    report.nothing_matched = opcheck::no_operation_text({}, opcheck::comma_list(names), known);
  return report;
}

Result<Report> check_operators(const run::Run& run, const std::vector<std::string>& names,
                               const opcheck::CheckOptions& options, Engines engines) {
  const auto start = std::chrono::steady_clock::now();
  const Program program = make_program(run, engines);
  OwnErrorOptions judging;
  judging.jobs = options.jobs;
  judging.max_memory = options.max_memory;
  judging.progress = options.progress;
  judging.interrupted = options.interrupted;
  judging.parts = options.parts;
  judging.keeps_what_is_done = true;
  ASSAY_TRY(const OwnErrors errors, own_errors(program, judging));
  Report report = report_of(program, errors, names);
  for (const CaseResult& one : report.cases) {
    if (options.finished) options.finished(one);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

bool holds_operators(const run::Run& run, Engines engines) {
  return make_program(run, engines).level == CaptureLevel::Operators;
}

}  // namespace

Result<CheckSubject> find_check_subject(const std::string& path, const opcheck::CaseOptions& cases,
                                        const opcheck::CheckOptions& options, Engines engines) {
  CheckSubject subject;
  Result<opcheck::CaseList> listed = opcheck::list_cases(path, cases);
  if (listed) {
    subject.operations = *std::move(listed);
    return subject;
  }
  Result<run::Run> run = run::open_run(path);
  if (!run || !run->has(run::Trait::Hooks)) return fail(listed.error());
  if (!holds_operators(*run, engines))
    return fail(Error{Errc::NotCaptured, path, std::nullopt,
                      "holds no operators with their inputs and outputs"});
  ASSAY_TRY_STATUS(check_options(cases, options));
  subject.operators = std::make_shared<const run::Run>(*std::move(run));
  return subject;
}

Result<Report> check_subject(const CheckSubject& subject, const std::vector<std::string>& names,
                             const opcheck::CheckOptions& options, Engines engines) {
  if (subject.operations) return opcheck::check_cases(*subject.operations, options);
  return check_operators(*subject.operators, names, options, engines);
}

}  // namespace assay::locate
