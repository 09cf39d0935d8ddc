// SPDX-License-Identifier: Apache-2.0
// Naming the first wrong operator.
#include <memory>

#include "engines/engines.hpp"
#include "locate/judge/own_error.hpp"
#include "locate/replay/walk.hpp"
#include "locate/verdict/locate.hpp"
#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "run/open.hpp"
#include "run/run.hpp"

namespace py = assay::binding;
using namespace py::literals;

namespace assay::python {
namespace {

std::string_view state_name(locate::OwnError::State state) {
  using State = locate::OwnError::State;
  switch (state) {
    case State::Judged:
      return "judged";
    case State::Exact:
      return "exact";
    case State::NoReference:
      return "no_reference";
    case State::NotCaptured:
      return "not_captured";
    case State::NotPredictable:
      return "not_predictable";
    case State::Failed:
      break;
  }
  return "failed";
}

py::Dict output_dict(const locate::Program& program, const locate::OwnError& error) {
  py::Dict row;
  if (error.op < program.operators.size()) {
    const locate::Operator& one = program.operators[error.op];
    row["operator"] = to_str(one.name.str());
    row["node"] = to_str(one.node.str());
    row["module"] = to_str(one.module.str());
    row["rank"] = one.rank;
    row["step"] = one.step;
  }
  row["output"] = error.output;
  const std::string_view state = state_name(error.state);
  row["state"] = state;
  const std::string_view dtype = name(error.dtype);
  row["dtype"] = dtype;
  row["z"] = error.z;
  row["e"] = error.e;
  row["e2"] = error.e2;
  row["zr"] = error.zr;
  row["worst"] = error.worst;
  row["worst_ulp"] = error.worst_ulp;
  row["allowed_ulp"] = error.allowed_ulp;
  row["relative_l2"] = error.relative_l2;
  row["floor_l2"] = error.floor_l2;
  row["sampled"] = error.sampled;
  row["by_sums"] = error.by_sums;
  row["reason"] = error.reason;
  return row;
}

py::Dict finding_dict(const locate::Finding& finding) {
  py::Dict row;
  row["module"] = finding.module;
  row["operator"] = finding.op_type;
  row["node"] = finding.node;
  row["step"] = finding.step;
  row["ratio"] = finding.ratio;
  row["confidence"] = std::string(locate::confidence_name(finding.confidence));
  row["detail"] = finding.detail;
  return row;
}

struct JudgedRun {
  run::Run run;
  locate::Program program;  // of `run`, which must not move
  locate::OwnErrors errors;
};

Result<std::unique_ptr<JudgedRun>> judge(const std::string& path,
                                         const locate::OwnErrorOptions& options) {
  auto judged = std::make_unique<JudgedRun>();
  ASSAY_TRY(judged->run, run::open_run(path));
  judged->program = locate::make_program(judged->run, engines::all());
  const bool is_atb = judged->run.has(run::Trait::AtbOperations);
  ASSAY_TRY(judged->errors, is_atb ? locate::own_errors_of_operations(judged->run, options)
                                   : locate::own_errors(judged->program, options));
  return judged;
}

/// "outputs": one dict an output of an operator; "findings", "coarse", "strict", "unjudged": what
/// they say together.
/// errors  of open_run()
py::Dict own_errors(const std::string& path, int jobs, uint64_t max_memory, uint64_t sample_above,
                    bool by_sums) {
  locate::OwnErrorOptions options;
  options.jobs = jobs;
  options.max_memory = max_memory;
  options.sample_above = sample_above;
  options.by_sums = by_sums;
  const std::unique_ptr<JudgedRun> all = read_without_gil([&] { return judge(path, options); });
  const locate::Program& program = all->program;
  const locate::OwnErrors& errors = all->errors;
  py::Dict result;
  py::List outputs;
  for (const locate::OwnError& error : errors.outputs) outputs.append(output_dict(program, error));
  result["outputs"] = outputs;
  py::List findings;
  for (const locate::Finding& finding : errors.findings) findings.append(finding_dict(finding));
  result["findings"] = findings;
  py::Dict strict;
  for (const auto& [dtype, is_strict] : errors.strict)
    strict[std::string(name(dtype)).c_str()] = is_strict;
  result["strict"] = strict;
  py::List coarse;
  for (const locate::CoarseGroup& group : errors.coarse) {
    py::Dict row;
    row["pattern"] = group.pattern;
    row["members"] = group.members;
    row["median_z"] = group.median_z;
    row["median_e2"] = group.median_e2;
    coarse.append(row);
  }
  result["coarse"] = coarse;
  result["judged"] = errors.judged;
  result["judgeable"] = errors.judgeable;
  py::Dict unjudged;
  for (const auto& [reason, count] : errors.unjudged) unjudged[reason.c_str()] = count;
  result["unjudged"] = unjudged;
  return result;
}

struct WalkedRuns {
  run::Run golden, mine;
  locate::Program golden_program, mine_program;  // of the runs, which must not move
  locate::Walk walk;
};

Result<std::unique_ptr<WalkedRuns>> walk_runs(const std::string& golden, const std::string& mine,
                                              const locate::WalkOptions& options) {
  auto walked = std::make_unique<WalkedRuns>();
  ASSAY_TRY(walked->golden, run::open_run(golden));
  ASSAY_TRY(walked->mine, run::open_run(mine));
  walked->golden_program = locate::make_program(walked->golden, engines::all());
  walked->mine_program = locate::make_program(walked->mine, engines::all());
  const locate::Pairing pairing =
      locate::pair_programs(walked->golden_program, walked->mine_program);
  ASSAY_TRY(walked->walk,
            locate::walk(walked->golden_program, walked->mine_program, pairing, options));
  return walked;
}

/// "steps": one dict a recorded value of mine; "findings" and how much was judged.
/// level   "L", "M" or "B"
/// errors  of open_run() and walk()
py::Dict walk(const std::string& golden, const std::string& mine, const std::string& level,
              int jobs, uint64_t max_memory) {
  locate::WalkOptions options;
  for (const auto one : {locate::CaptureLevel::Leaves, locate::CaptureLevel::Modules,
                         locate::CaptureLevel::Layers}) {
    if (level == std::string(1, locate::letter_of(locate::judged_by(one)))) options.level = one;
  }
  options.jobs = jobs;
  options.max_memory = max_memory;
  const std::unique_ptr<WalkedRuns> all =
      read_without_gil([&] { return walk_runs(golden, mine, options); });
  py::Dict result;
  py::List steps;
  for (const locate::WalkStep& step : all->walk.steps) {
    const locate::ModuleCall& call = all->mine_program.calls[step.call];
    py::Dict row;
    row["module"] = to_str(call.module.str());
    row["step"] = call.step;
    row["input"] = step.input;
    row["slot"] = to_str((step.input ? call.inputs : call.outputs)[step.use].slot.str());
    row["r"] = step.r;
    row["r_element"] = step.r_element;
    row["r_column"] = step.r_column;
    row["operators"] = step.operators;
    row["owner"] = step.owner;
    row["reason"] = step.reason;
    steps.append(row);
  }
  result["steps"] = steps;
  py::List findings;
  for (const locate::Finding& finding : all->walk.findings) {
    py::Dict row = finding_dict(finding);
    row["kind"] = std::string(locate::kind_name(finding.kind));
    row["also"] = finding.also;
    findings.append(row);
  }
  result["findings"] = findings;
  result["judged"] = all->walk.judged;
  result["judgeable"] = all->walk.judgeable;
  result["operators_covered"] = all->walk.operators_covered;
  result["operators"] = all->walk.operators;
  py::Dict unjudged;
  for (const auto& [reason, count] : all->walk.unjudged) unjudged[reason.c_str()] = count;
  result["unjudged"] = unjudged;
  return result;
}

}  // namespace

void bind_locate(py::Module& m) {
  m.def("_walk", &walk, "golden"_a, "mine"_a, "level"_a, "jobs"_a = 0,
        "max_memory"_a = uint64_t{2} << 30,
        "The golden run's operators replayed on the values of the run under test, and where it has "
        "others than they make.");
  m.def("_own_errors", &own_errors, "path"_a, "jobs"_a = 0, "max_memory"_a = uint64_t{1} << 30,
        "sample_above"_a = 0, "by_sums"_a = false,
        "Own errors of all operators of a run, and which of them are faults.");
}

}  // namespace assay::python
