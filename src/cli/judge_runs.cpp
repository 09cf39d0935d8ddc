// SPDX-License-Identifier: Apache-2.0
// Opens both runs, pairs them, asks for the verdict, and compares all tensors once more only where
// a page is wanted.
#include "cli/judge_runs.hpp"

#include <algorithm>
#include <iterator>

#include "cli/interrupt.hpp"
#include "cli/part_pipe.hpp"
#include "cli/progress_bar.hpp"
#include "engines/engines.hpp"
#include "report/html/comparison_page.hpp"
#include "run/pair.hpp"
#include "run/program_command.hpp"

namespace assay::cli {
namespace {

// The page shows what every tensor of the runs differs by, which the verdict alone does not need.
Status write_page(const run::RunPair& pair, const Judged& judged, const JudgeRequest& request) {
  compare::CompareOptions options;
  options.engines = engines::for_pairing();
  options.user = request.said;
  options.jobs = request.verdict.jobs;
  options.interrupted = &interrupted();
  options.pictures.worst = report::html::kPagePictures;
  ASSAY_TRY(compare::Comparison comparison, compare::compare_runs(pair.golden, pair.mine, options));
  return report::html::write_page(report::html::comparison_page({.comparison = comparison,
                                                                 .golden = pair.golden,
                                                                 .mine = pair.mine,
                                                                 .verdict = &judged.verdict,
                                                                 .notes = judged.notes,
                                                                 .options = &options}),
                                  request.html);
}

Result<Judged> judge(const std::string& golden_path, const std::string& my_path,
                     const JudgeRequest& request) {
  ProgressBar bar;
  ASSAY_TRY(const std::unique_ptr<run::PartRunner> parts, part_runner({.compat = "none"}));
  ASSAY_TRY(
      const run::RunPair pair,
      run::open_pair(golden_path, my_path, request.verdict.golden_weights, request.said.parallel));
  const auto& [golden, mine, notes] = pair;
  ASSAY_TRY(const pair::Correspondence pairs,
            pair::correspond(golden, mine, request.said, engines::for_pairing()));
  Judged judged;
  judged.golden_path = golden_path;
  judged.my_path = my_path;
  judged.golden_properties = {golden.properties.begin(), golden.properties.end()};
  judged.my_properties = {mine.properties.begin(), mine.properties.end()};
  judged.notes = notes;
  for (const run::Run* side : {&golden, &mine}) {
    for (const std::string& warning : side->warnings) judged.notes.push_back(warning);
  }
  std::ranges::move(run::program_differences(golden, mine, request.verdict.why),
                    std::back_inserter(judged.notes));
  VerdictRequest wanted = request.verdict;
  wanted.parts = parts.get();
  wanted.asked.page |= !request.html.empty();
  ASSAY_TRY(judged.verdict,
            find_verdict(
                golden, mine, pairs, wanted,
                [&](size_t done, size_t total) { bar.update(done, total); }, &judged.notes));
  if (!request.html.empty()) ASSAY_TRY_STATUS(write_page(pair, judged, request));
  return judged;
}

}  // namespace

Result<Judged> judge_runs(const std::string& golden_path, const std::string& my_path,
                          const JudgeRequest& request) {
  const InterruptGuard interrupt_guard;
  return until_interrupted([&] { return judge(golden_path, my_path, request); });
}

Status write_verdict_page(const Judged& judged, const JudgeRequest& request) {
  const InterruptGuard interrupt_guard;
  return until_interrupted([&]() -> Status {
    ASSAY_TRY(const run::RunPair pair,
              run::open_pair(judged.golden_path, judged.my_path, request.verdict.golden_weights,
                             request.said.parallel));
    return write_page(pair, judged, request);
  });
}

}  // namespace assay::cli
