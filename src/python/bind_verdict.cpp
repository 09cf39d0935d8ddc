// SPDX-License-Identifier: Apache-2.0
// assay.locate(): the first wrong operator of a run.
#include "app/fingerprint.hpp"
#include "app/judge_runs.hpp"
#include "base/text.hpp"
#include "pair/explicit_pairs.hpp"
#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "report/verdict_json.hpp"
#include "report/verdict_terminal.hpp"

namespace py = assay::binding;
using namespace py::literals;

namespace assay::python {
namespace {

struct Request {
  std::string golden;
  std::string mine;
  app::JudgeRequest judge;
  std::string map;  // JSON text of explicit pairs
  std::string parallel;
};

Result<locate::Verdict> find(Request request) {
  pair::UserRules& said = request.judge.said;
  if (!request.parallel.empty()) {
    ASSAY_TRY(said.parallel, run::parse_parallel(request.parallel));
  }
  if (!request.map.empty()) {
    ASSAY_TRY(said.explicit_pairs, pair::parse_explicit_pairs(request.map));
  }
  ASSAY_TRY(app::Judged judged, app::judge_runs(request.golden, request.mine, request.judge));
  locate::Verdict& verdict = judged.verdict;  // with what the command prints beside it
  verdict.notes.insert(verdict.notes.begin(), judged.notes.begin(), judged.notes.end());
  return std::move(verdict);
}

// (JSON, text of a screen of 100 columns)
std::pair<py::Str, py::Str> locate_runs(const Request& request) {
  const locate::Verdict verdict = read_without_gil([&] { return find(request); });
  report::TerminalOptions screen;
  screen.width = 100;
  return {to_message(report::verdict_json(verdict)),
          to_message(report::verdict_text(verdict, screen) + "next: " + printable(verdict.next) +
                     "\n")};
}

py::Dict fingerprint(const app::FingerprintRequest& request) {
  const run::FingerprintFile file =
      read_without_gil([&] { return app::write_fingerprint(request); }).file;
  py::Dict made;
  made["bytes"] = file.bytes.size();
  made["steps"] = file.steps;
  made["operators"] = file.operators;
  made["statistics"] = file.statistics;
  made["weights"] = file.weights;
  made["kept"] = file.kept;
  return made;
}

}  // namespace

void bind_verdict(py::Module& m) {
  m.def(
      "_fingerprint",
      [](const std::string& run, const std::string& path, const std::string& weights,
         const app::FloorRuns& floor_runs, const std::string& floor, bool statistics, bool program,
         uint64_t most, int jobs) {
        return fingerprint(
            {run, path, weights, floor_runs, floor, statistics, program, most, jobs, nullptr});
      },
      "run"_a, "path"_a, "weights"_a, "floor_runs"_a, "floor"_a, "statistics"_a, "program"_a,
      "most"_a, "jobs"_a);
  m.def(
      "_locate",
      [](const std::string& golden, const std::string& mine, bool own_error,
         const app::FloorRuns& floor_runs, const std::string& floor, const std::string& save_floor,
         const std::string& golden_weights, const std::string& slice, const std::string& map,
         const std::vector<std::pair<int64_t, int64_t>>& token_map, const std::vector<int>& ranks,
         const std::string& parallel, int jobs, uint64_t max_memory, const std::string& asked) {
        Request request{golden, mine, {}, map, parallel};
        request.judge.verdict = {.own_error = own_error ? "auto" : "off",
                                 .floor_runs = floor_runs,
                                 .floor_file = floor,
                                 .save_floor = save_floor,
                                 .golden_weights = golden_weights,
                                 .slice = slice,
                                 .jobs = jobs,
                                 .max_memory = max_memory};
        request.judge.verdict.asked.options = asked;
        request.judge.said.token_map = token_map;
        request.judge.said.ranks = ranks;
        return locate_runs(request);
      },
      "golden"_a, "mine"_a, "own_error"_a, "floor_runs"_a, "floor"_a, "save_floor"_a,
      "golden_weights"_a, "slice"_a, "map"_a, "token_map"_a, "ranks"_a, "parallel"_a, "jobs"_a,
      "max_memory"_a, "asked"_a);
}

}  // namespace assay::python
