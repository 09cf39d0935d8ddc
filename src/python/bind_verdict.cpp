// SPDX-License-Identifier: Apache-2.0
// assay.locate(): the first wrong operator of a run.
#include <deque>
#include <optional>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "engines/engines.hpp"
#include "locate/noise/fingerprint_floors.hpp"
#include "locate/verdict/locate.hpp"
#include "pair/explicit_pairs.hpp"
#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "report/verdict_json.hpp"
#include "report/verdict_terminal.hpp"
#include "run/fingerprint/fingerprint.hpp"
#include "run/lend.hpp"
#include "run/open.hpp"
#include "run/pair.hpp"
#include "run/program_command.hpp"

namespace py = assay::binding;
using namespace py::literals;

namespace assay::python {
namespace {

using PathPairs = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string golden;
  std::string mine;
  bool own_error = true;
  PathPairs floor_runs;
  std::string floor;
  std::string save_floor;
  std::string golden_weights;
  std::string slice;
  std::string map;  // JSON text of explicit pairs
  std::vector<std::pair<int64_t, int64_t>> token_map;
  std::vector<int> ranks;
  std::string parallel;
  int jobs = 0;
  uint64_t max_memory = 0;
  std::string asked;  // what decides the verdict, as options of `assay locate`
};

Result<locate::FloorProfile> measure(const PathPairs& paths, bool statistics, int jobs) {
  std::deque<run::Run> opened;  // addresses stay
  std::vector<std::pair<const run::Run*, const run::Run*>> pairs;
  for (const auto& [golden, mine] : paths) {
    ASSAY_TRY(run::RunPair pair, run::open_pair(golden, mine));
    opened.push_back(std::move(pair.golden));
    opened.push_back(std::move(pair.mine));
    pairs.emplace_back(&opened[opened.size() - 2], &opened.back());
  }
  return locate::measure_floors(pairs, statistics, jobs, nullptr);
}

Result<locate::Verdict> find(const Request& request) {
  pair::UserRules said;
  if (!request.parallel.empty()) {
    ASSAY_TRY(said.parallel, run::parse_parallel(request.parallel));
  }
  ASSAY_TRY(const run::RunPair pair,
            run::open_pair(request.golden, request.mine, request.golden_weights, said.parallel));
  const run::Run& golden = pair.golden;
  const run::Run& mine = pair.mine;
  said.token_map = request.token_map;
  said.ranks = request.ranks;
  if (!request.map.empty()) {
    ASSAY_TRY(said.explicit_pairs, pair::parse_explicit_pairs(request.map));
  }
  ASSAY_TRY(const pair::Correspondence pairs,
            pair::correspond(golden, mine, said, engines::for_pairing()));
  locate::LocateOptions options;
  options.engines = engines::all();
  options.own_error = request.own_error;
  options.slice = request.slice;
  options.jobs = request.jobs;
  if (request.max_memory > 0) options.max_memory = request.max_memory;
  std::optional<locate::FloorProfile> floors;
  if (!request.floor_runs.empty()) {
    ASSAY_TRY(floors,
              measure(request.floor_runs, locate::has_only_statistics(golden, mine), request.jobs));
    if (!request.save_floor.empty())
      ASSAY_TRY_STATUS(locate::write_profile(request.save_floor, *floors));
  } else if (!request.floor.empty()) {
    ASSAY_TRY(floors, locate::read_profile(request.floor));
  } else if (!golden.floors.empty()) {
    ASSAY_TRY(floors, in_file(golden.path, locate::parse_profile(golden.floors)));
  }
  if (floors) options.floors = &*floors;
  options.asked = {.golden_weights = !request.golden_weights.empty(),
                   .floors = floors.has_value(),
                   .options = request.asked};
  ASSAY_TRY(locate::Verdict verdict, locate::locate(golden, mine, pairs, options));
  // What the command prints beside it.
  std::vector<std::string> notes = pair.notes;
  for (const run::Run* side : {&golden, &mine})
    notes.insert(notes.end(), side->warnings.begin(), side->warnings.end());
  for (std::string& note : run::program_differences(golden, mine, /*commands=*/false))
    notes.push_back(std::move(note));
  verdict.notes.insert(verdict.notes.begin(), notes.begin(), notes.end());
  return verdict;
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

struct FingerprintRequest {
  std::string run;
  std::string path;
  std::string weights;
  PathPairs floor_runs;
  std::string floor;
  bool statistics = true;
  bool program = true;
  uint64_t most = 0;
  int jobs = 0;
};

Result<std::string> floors_of(const FingerprintRequest& request) {
  if (!request.floor.empty()) {
    ASSAY_TRY(const locate::FloorProfile profile, locate::read_profile(request.floor));
    return locate::profile_text(profile);
  }
  if (request.floor_runs.empty()) return std::string();
  return locate::measure_fingerprint_floors(request.floor_runs, request.jobs, nullptr);
}

Result<run::FingerprintFile> write_fingerprint(const FingerprintRequest& request) {
  ASSAY_TRY(const run::Run run, run::open_run(request.run));
  ASSAY_TRY(const std::string floors, floors_of(request));
  std::optional<run::Run> checkpoint;
  if (!request.weights.empty()) {
    ASSAY_TRY(checkpoint, run::open_weights(request.weights));
  }
  ASSAY_TRY(run::FingerprintFile file,
            run::make_fingerprint(run, {.floors = floors,
                                        .statistics = request.statistics,
                                        .program = request.program,
                                        .checkpoint = checkpoint ? &*checkpoint : nullptr}));
  if (request.most > 0 && file.bytes.size() > request.most)
    return fail(Error{Errc::TooLarge, request.path, std::nullopt,
                      "would have " + std::to_string(file.bytes.size()) + " bytes, more than " +
                          std::to_string(request.most)});
  ASSAY_TRY_STATUS(write_file_atomically(request.path, as_bytes(file.bytes)));
  return file;
}

py::Dict fingerprint(const FingerprintRequest& request) {
  const run::FingerprintFile file = read_without_gil([&] { return write_fingerprint(request); });
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
         const PathPairs& floor_runs, const std::string& floor, bool statistics, bool program,
         uint64_t most, int jobs) {
        return fingerprint(
            {run, path, weights, floor_runs, floor, statistics, program, most, jobs});
      },
      "run"_a, "path"_a, "weights"_a, "floor_runs"_a, "floor"_a, "statistics"_a, "program"_a,
      "most"_a, "jobs"_a);
  m.def(
      "_locate",
      [](const std::string& golden, const std::string& mine, bool own_error,
         const PathPairs& floor_runs, const std::string& floor, const std::string& save_floor,
         const std::string& golden_weights, const std::string& slice, const std::string& map,
         const std::vector<std::pair<int64_t, int64_t>>& token_map, const std::vector<int>& ranks,
         const std::string& parallel, int jobs, uint64_t max_memory, const std::string& asked) {
        return locate_runs({golden, mine, own_error, floor_runs, floor, save_floor, golden_weights,
                            slice, map, token_map, ranks, parallel, jobs, max_memory, asked});
      },
      "golden"_a, "mine"_a, "own_error"_a, "floor_runs"_a, "floor"_a, "save_floor"_a,
      "golden_weights"_a, "slice"_a, "map"_a, "token_map"_a, "ranks"_a, "parallel"_a, "jobs"_a,
      "max_memory"_a, "asked"_a);
}

}  // namespace assay::python
