// SPDX-License-Identifier: Apache-2.0
// assay.locate(): the first wrong operator of a run.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <optional>

#include "engines/engines.hpp"
#include "locate/verdict/locate.hpp"
#include "pair/explicit_pairs.hpp"
#include "python/module.hpp"
#include "report/verdict_json.hpp"
#include "report/verdict_terminal.hpp"
#include "run/pair.hpp"

namespace nb = nanobind;
using namespace nb::literals;

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
  std::string slice;
  std::string map;  // JSON text of explicit pairs
  std::vector<std::pair<int64_t, int64_t>> token_map;
  std::vector<int> ranks;
  int jobs = 0;
  uint64_t max_memory = 0;
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
  ASSAY_TRY(const run::RunPair pair, run::open_pair(request.golden, request.mine));
  const run::Run& golden = pair.golden;
  const run::Run& mine = pair.mine;
  pair::UserRules said;
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
  }
  if (floors) options.floors = &*floors;
  return locate::locate(golden, mine, pairs, options);
}

// (JSON, text of a screen of 100 columns)
std::pair<nb::str, nb::str> locate_runs(const Request& request) {
  const locate::Verdict verdict = read_without_gil([&] { return find(request); });
  report::TerminalOptions screen;
  screen.width = 100;
  return {to_message(report::verdict_json(verdict)),
          to_message(report::verdict_text(verdict, screen))};
}

}  // namespace

void bind_verdict(nb::module_& m) {
  m.def(
      "_locate",
      [](const std::string& golden, const std::string& mine, bool own_error,
         const PathPairs& floor_runs, const std::string& floor, const std::string& save_floor,
         const std::string& slice, const std::string& map,
         const std::vector<std::pair<int64_t, int64_t>>& token_map, const std::vector<int>& ranks,
         int jobs, uint64_t max_memory) {
        return locate_runs({golden, mine, own_error, floor_runs, floor, save_floor, slice, map,
                            token_map, ranks, jobs, max_memory});
      },
      "golden"_a, "mine"_a, "own_error"_a, "floor_runs"_a, "floor"_a, "save_floor"_a, "slice"_a,
      "map"_a, "token_map"_a, "ranks"_a, "jobs"_a, "max_memory"_a);
}

}  // namespace assay::python
