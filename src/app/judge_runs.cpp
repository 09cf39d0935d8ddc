// SPDX-License-Identifier: Apache-2.0
// Opens both runs, finds what corresponds and has the verdict found. The page is written
// afterwards, since its comparison of all tensors is not needed for the verdict.
#include "app/judge_runs.hpp"

#include <algorithm>
#include <iterator>

#include "compare/dispatch.hpp"
#include "engines/engines.hpp"
#include "report/html/comparison_page.hpp"
#include "run/pair.hpp"
#include "run/program_command.hpp"

namespace assay::app {
namespace {

// The page shows what every tensor of the runs differs by, which the verdict alone does not need.
Status write_page(const run::RunPair& pair, const Judged& judged, const JudgeRequest& request) {
  compare::CompareOptions options;
  options.engines = engines::for_pairing();
  options.user = request.said;
  options.statistics = compare::have_only_statistics(pair.golden, pair.mine);
  options.jobs = request.verdict.jobs;
  options.interrupted = request.verdict.interrupted;
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

}  // namespace

Result<Judged> judge_runs(const std::string& golden_path, const std::string& my_path,
                          const JudgeRequest& request) {
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
  wanted.asked.page |= !request.html.empty();
  ASSAY_TRY(judged.verdict, find_verdict(golden, mine, pairs, wanted, &judged.notes));
  if (!request.html.empty()) ASSAY_TRY_STATUS(write_page(pair, judged, request));
  return judged;
}

Status write_verdict_page(const Judged& judged, const JudgeRequest& request) {
  ASSAY_TRY(const run::RunPair pair,
            run::open_pair(judged.golden_path, judged.my_path, request.verdict.golden_weights,
                           request.said.parallel));
  return write_page(pair, judged, request);
}

}  // namespace assay::app
