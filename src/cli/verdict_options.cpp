// SPDX-License-Identifier: Apache-2.0
// Takes noise floors from healthy runs, a kept profile or golden itself, in this order, and calls
// locate() with them. What the user asked for is kept as words for commands that are suggested.
#include "cli/verdict_options.hpp"

#include <deque>

#include "base/paths.hpp"
#include "base/shell_words.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "engines/engines.hpp"
#include "locate/noise/floors.hpp"
#include "run/pair.hpp"

namespace assay::cli {
namespace {

Status check(const VerdictRequest& request) {
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
  for (const std::string& text : request.floor_runs) {
    ASSAY_TRY(const auto paths, parse_floor_run(text, golden.path));
    ASSAY_TRY(run::RunPair pair, run::open_pair(paths.first, paths.second));
    opened.push_back(std::move(pair.golden));
    opened.push_back(std::move(pair.mine));
    pairs.emplace_back(&opened[opened.size() - 2], &opened.back());
  }
  ASSAY_TRY(locate::FloorProfile profile,
            locate::measure_floors(pairs, locate::has_only_statistics(golden, mine), request.jobs,
                                   &interrupted()));
  for (const run::Run& run : opened) {
    if (const std::string damage = run.first_damage(); !damage.empty())
      return fail(Errc::Invalid, "the --floor-run " + run.path + " is damaged: " + damage);
  }
  return profile;
}

}  // namespace

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
    for (const std::string& runs : request.floor_runs) add("--floor-run", runs);
  }
  add("--floor", request.save_floor.empty() ? request.floor_file : request.save_floor);
  add("--golden-weights", request.golden_weights);
  add("--slice", request.slice);
  return asked;
}

Result<std::pair<std::string, std::string>> parse_floor_run(const std::string& text,
                                                            const std::string& golden_path) {
  if (exists(text)) return std::pair(golden_path, text);
  for (size_t colon = text.find(':'); colon != std::string::npos;
       colon = text.find(':', colon + 1)) {
    const std::string first = text.substr(0, colon);
    const std::string second = text.substr(colon + 1);
    if (exists(first) && exists(second)) return std::pair(first, second);
  }
  return fail(Errc::Usage,
              "--floor-run " + text +
                  ": no such run; expected GOLDEN:MINE, two runs of another prompt that are "
                  "known to be healthy");
}

Status check_verdict_request(const VerdictRequest& request) {
  ASSAY_TRY_STATUS(check(request));
  if (request.floor_file.empty()) return {};
  ASSAY_TRY_STATUS(locate::read_profile(request.floor_file));
  return {};
}

void add_verdict_options(Command& command, VerdictRequest& request) {
  command.in_group("Verdict");
  command.add("--floor-run RUNS",
              "GOLDEN:MINE, healthy runs of another prompt: noise is measured; repeatable",
              added_to(request.floor_runs));
  command.add("--save-floor FILE", "Keep what --floor-run measured in FILE", request.save_floor);
  command.add("--floor FILE", "Judge by a kept profile", request.floor_file);
  command.add("--golden-weights PATH",
              "Checkpoint of golden's weights, where golden is a fingerprint",
              request.golden_weights);
  command.add("--own-error {auto,exact,inferred,off}",
              "exact (the default): operators are recomputed in fp64; off: they are not",
              request.own_error);
  command.add("--slice NAME", "Only what this depends on: a module, MODULE:SLOT, or \"step N\"",
              request.slice);
  command.add("--why", "List what clean stands on, and which size of error would have been seen",
              request.why);
  command.add("--tokens",
              "List the tokens that the runs choose differently, and how far apart all are",
              request.tokens);
}

Result<locate::Verdict> find_verdict(const run::Run& golden, const run::Run& mine,
                                     const pair::Correspondence& pairs,
                                     const VerdictRequest& request,
                                     const std::function<void(size_t, size_t)>& progress,
                                     std::vector<std::string>* notes) {
  ASSAY_TRY_STATUS(check(request));
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
  options.interrupted = &interrupted();
  if (progress) {
    options.progress = [&progress](std::string_view, size_t done, size_t total) {
      progress(done, total);
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

int exit_status_of(const locate::Verdict& verdict) {
  switch (verdict.outcome) {
    case locate::VerdictOutcome::Clean:
      return kSame;
    case locate::VerdictOutcome::FirstWrong:
      return kDiffers;
    case locate::VerdictOutcome::CannotJudge:
      break;
  }
  return kCannotJudge;
}

}  // namespace assay::cli
