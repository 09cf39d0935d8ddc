// SPDX-License-Identifier: Apache-2.0
#include "opcheck/parts.hpp"

#include <gtest/gtest.h>

#include <bit>

#include "formats/atb_bin.hpp"
#include "run/test_folder.hpp"
#include "run/test_parts.hpp"

namespace assay::opcheck {
namespace {

Result<std::string> do_part(ByteSpan body) { return run_part(body, {}); }

std::string tensor_file(const std::vector<float>& values) {
  const std::string dims = std::to_string(values.size());
  const formats::AtbAttribute attributes[] = {{"format", "2"}, {"dtype", "0"}, {"dims", dims}};
  return formats::atb_bin_header(attributes, values.size() * 4) +
         std::string(as_text(std::as_bytes(std::span(values))));
}

/// Two ranks: a sum of two inputs, wrong on the second, a sum over both ranks, and something that
/// no table lists.
void fill(run::test::TestFolder* folder) {
  for (int rank = 0; rank < 2; ++rank) {
    const std::string place = "msit_dump/tensors/" + std::to_string(rank) + "_7/0/";
    const auto own = static_cast<float>(rank + 1);
    folder->put(place + "0_ElewiseOperation/op_param.json", R"({"elewiseType":8})");
    folder->put(place + "0_ElewiseOperation/after/intensor0.bin", tensor_file({1, 2}));
    folder->put(place + "0_ElewiseOperation/after/intensor1.bin", tensor_file({3, 4}));
    folder->put(place + "0_ElewiseOperation/after/outtensor0.bin",
                tensor_file({4, rank == 0 ? 6.0F : 7.0F}));
    folder->put(place + "1_AllReduceOperation/op_param.json",
                R"({"rank":)" + std::to_string(rank) + R"(,"rankSize":2,"allReduceType":"sum"})");
    folder->put(place + "1_AllReduceOperation/after/intensor0.bin", tensor_file({own, 0.1F}));
    folder->put(place + "1_AllReduceOperation/after/outtensor0.bin", tensor_file({3, 0.2F}));
    folder->put(place + "2_NoSuchOperation/after/outtensor0.bin", tensor_file({1}));
  }
}

TEST(CasesElsewhere, GiveTheResultsOfThisProcess) {
  run::test::TestFolder folder;
  fill(&folder);
  const CaseList cases = *list_cases(folder.path() + "/msit_dump", {});
  CheckOptions options;
  options.kl_divergence = true;
  const Report here = *check_cases(cases, options);
  run::test::PartsHere runner(do_part);
  options.parts = &runner;
  std::vector<std::string> finished;
  options.finished = [&](const CaseResult& one) { finished.push_back(one.description.node); };
  const Report there = *check_cases(cases, options);

  EXPECT_EQ(runner.bodies.size(), 3u);  // one a rank, one over both
  EXPECT_EQ(runner.crossing, 1u);
  ASSERT_EQ(here.cases.size(), 6u);
  ASSERT_EQ(there.cases.size(), 6u);
  for (size_t i = 0; i < here.cases.size(); ++i) {
    const CaseResult& a = here.cases[i];
    const CaseResult& b = there.cases[i];
    EXPECT_EQ(finished[i], a.description.node);
    EXPECT_EQ(b.description.folder, a.description.folder);
    EXPECT_EQ(b.variant, a.variant);
    EXPECT_EQ(b.outcome, a.outcome);
    ASSERT_EQ(b.rows.size(), a.rows.size());
    const OutputRow& x = a.rows.front();
    const OutputRow& y = b.rows.front();
    EXPECT_EQ(y.reason, x.reason);
    EXPECT_EQ(y.file, x.file);
    EXPECT_EQ(y.shape, x.shape);
    EXPECT_EQ(y.measures.ulp_histogram, x.measures.ulp_histogram);
    EXPECT_EQ(std::bit_cast<uint64_t>(y.measures.kl_divergence),
              std::bit_cast<uint64_t>(x.measures.kl_divergence));
    EXPECT_EQ(y.judgements[4].passed, x.judgements[4].passed);
    EXPECT_EQ(y.worst.golden_values, x.worst.golden_values);
  }
  EXPECT_EQ(here.counts().passed, 3u);
  EXPECT_EQ(here.counts().failed, 1u);
}

TEST(CasesElsewhere, SayWhyAPartFailedAndLeaveOutWhatWasStopped) {
  run::test::TestFolder folder;
  fill(&folder);
  const CaseList cases = *list_cases(folder.path() + "/msit_dump", {});
  int number = 0;
  run::test::PartsHere runner([&](ByteSpan body) -> Result<std::string> {
    ++number;
    if (number == 1) return fail(Errc::Io, "the disk is on fire");
    if (number == 2) return fail(Errc::Interrupted, "stopped by the user");
    return do_part(body);
  });
  CheckOptions options;
  options.parts = &runner;
  const Report report = *check_cases(cases, options);
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.cases.size(), 4u);
  EXPECT_EQ(report.counts().errors, 2u);
  for (const CaseResult& one : report.cases) {
    if (one.outcome != CheckOutcome::Error) continue;
    EXPECT_EQ(one.rows.front().reason, "not checked: the disk is on fire");
  }
}

TEST(CaseParts, TrustNothing) {
  run::test::TestFolder folder;
  fill(&folder);
  run::test::PartsHere runner(do_part);
  CheckOptions options;
  options.parts = &runner;
  ASSERT_TRUE(check_cases(*list_cases(folder.path() + "/msit_dump", {}), options));
  for (const std::string& body : runner.bodies) run::test::expect_trusts_nothing(body, do_part);
}

}  // namespace
}  // namespace assay::opcheck
