// SPDX-License-Identifier: Apache-2.0
// Takes noise floors from healthy runs, a kept profile or golden itself, in this order, and calls
// locate() with them. What the user asked for is kept as words for commands that are suggested.
#include "app/verdict.hpp"

#include <deque>

#include "base/paths.hpp"
#include "base/shell_words.hpp"
#include "engines/engines.hpp"
#include "run/pair.hpp"

namespace assay::app {
namespace {

Status check_floors(const VerdictRequest& request) {
  if (!request.floor_file.empty() && !request.floor_runs.empty())
    return fail(Errc::Usage,
                "--floor and --floor-run exclude each other: one profile judges a run");
  if (!request.save_floor.empty() && request.floor_runs.empty())
    return fail(Errc::Usage, "--save-floor needs healthy pairs: --floor-run GOLDEN:MINE");
  return {};
}

Result<locate::FloorProfile> measure(const run::Run& golden, const run::Run& mine,
                                     const VerdictRequest& request) {
  std::deque<run::Run> opened;  // addresses stay
  std::vector<std::pair<const run::Run*, const run::Run*>> pairs;
  for (const auto& [first, second] : request.floor_runs) {
    ASSAY_TRY(run::RunPair pair, run::open_pair(first.empty() ? golden.path : first, second));
    opened.push_back(std::move(pair.golden));
    opened.push_back(std::move(pair.mine));
    pairs.emplace_back(&opened[opened.size() - 2], &opened.back());
  }
  ASSAY_TRY(locate::FloorProfile profile,
            locate::measure_floors(pairs, locate::has_only_statistics(golden, mine), request.jobs,
                                   request.interrupted));
  for (const run::Run& run : opened) {
    if (const std::string damage = run.first_damage(); !damage.empty())
      return fail(Errc::Invalid, "the --floor-run " + run.path + " is damaged: " + damage);
  }
  return profile;
}

}  // namespace

Result<std::pair<std::string, std::string>> parse_floor_run(std::string_view text) {
  const std::string path(text);
  if (exists(path)) return std::pair(std::string(), path);
  for (size_t colon = path.find(':'); colon != std::string::npos;
       colon = path.find(':', colon + 1)) {
    std::string first = path.substr(0, colon);
    std::string second = path.substr(colon + 1);
    if (exists(first) && exists(second)) return std::pair(std::move(first), std::move(second));
  }
  return fail(Errc::Usage,
              "--floor-run " + path +
                  ": no such run; expected GOLDEN:MINE, two runs of another prompt that are "
                  "known to be healthy");
}

locate::Asked asked_of(const VerdictRequest& request, bool floors) {
  locate::Asked asked = request.asked;
  asked.why = request.why;
  asked.golden_weights = !request.golden_weights.empty();
  asked.floors = floors;
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) asked.options += " " + std::string(option) + " " + shell_quote(value);
  };
  add("--own-error", request.own_error == "off" ? request.own_error : "");
  if (request.save_floor.empty()) {
    for (const auto& [golden, mine] : request.floor_runs)
      add("--floor-run", golden.empty() ? mine : golden + ":" + mine);
  }
  add("--floor", request.save_floor.empty() ? request.floor_file : request.save_floor);
  add("--golden-weights", request.golden_weights);
  add("--slice", request.slice);
  return asked;
}

Status check(const VerdictRequest& request) {
  ASSAY_TRY_STATUS(check_floors(request));
  if (request.floor_file.empty()) return {};
  ASSAY_TRY_STATUS(locate::read_profile(request.floor_file));
  return {};
}

Result<locate::Verdict> find_verdict(const run::Run& golden, const run::Run& mine,
                                     const pair::Correspondence& pairs,
                                     const VerdictRequest& request,
                                     std::vector<std::string>* notes) {
  ASSAY_TRY_STATUS(check_floors(request));
  locate::LocateOptions options;
  options.engines = engines::all();
  options.own_error = request.own_error == "auto" || request.own_error == "exact";
  if (request.own_error == "inferred") {
    notes->push_back(
        "--own-error inferred: an inferred own error is no ground for a verdict, so none is used "
        "(docs/localisation.md)");
  }
  if (pairs.map_of_tensors > 0) {
    notes->push_back(
        "--map: " + std::to_string(pairs.map_of_tensors) +
        " of its entries name a slice, a merge or no module of both sides; the verdict uses "
        "the others only, the table all");
  }
  options.slice = request.slice;
  options.parts = request.parts;
  options.jobs = request.jobs;
  if (request.max_memory > 0) options.max_memory = request.max_memory;
  options.interrupted = request.interrupted;
  if (request.progress) {
    options.progress = [&](std::string_view, size_t done, size_t total) {
      request.progress(done, total);
    };
  }
  std::optional<locate::FloorProfile> floors;
  if (!request.floor_runs.empty()) {
    ASSAY_TRY(floors, measure(golden, mine, request));
  } else if (!request.floor_file.empty()) {
    ASSAY_TRY(floors, locate::read_profile(request.floor_file));
  } else if (!golden.floors.empty()) {
    ASSAY_TRY(floors, in_file(golden.path, locate::parse_profile(golden.floors)));
  }
  if (!request.save_floor.empty())
    ASSAY_TRY_STATUS(locate::write_profile(request.save_floor, *floors));
  if (floors) options.floors = &*floors;
  options.asked = asked_of(request, floors.has_value());
  options.seen = request.seen;
  ASSAY_TRY(locate::Verdict verdict, locate::locate(golden, mine, pairs, options));
  notes->insert(notes->end(), verdict.failed_parts.begin(), verdict.failed_parts.end());
  if (verdict.floor == locate::Floor::Measured && !golden.floors.empty() &&
      request.floor_runs.empty() && request.floor_file.empty())
    notes->push_back("judged by the floors in " + golden.path);
  return verdict;
}

}  // namespace assay::app
