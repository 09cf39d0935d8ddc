// SPDX-License-Identifier: Apache-2.0
#include "cli/assignments.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace assay::cli {
namespace {

using CommandWords = std::vector<std::string>;

TEST(TakeAssignments, TakesThoseInFrontOnly) {
  CommandWords command = {"A=1", "B_2=x=y", "python", "run.py", "C=3"};
  const auto taken = take_assignments(&command);
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[1].first, "B_2");
  EXPECT_EQ(taken[1].second, "x=y");
  EXPECT_EQ(command, (CommandWords{"python", "run.py", "C=3"}));
}

TEST(TakeAssignments, LeavesWhatIsNoNameAlone) {
  for (const char* word : {"2A=1", "=1", "a-b=1", "./x=1", "python"}) {
    CommandWords command = {word};
    EXPECT_TRUE(take_assignments(&command).empty()) << word;
    EXPECT_EQ(command.size(), 1U);
  }
}

TEST(ScopedEnvironment, PutsBackWhatWasThere) {
  ::setenv("ASSAY_TEST_OLD", "before", 1);
  ::unsetenv("ASSAY_TEST_NEW");
  {
    const ScopedEnvironment scope(
        {{"ASSAY_TEST_OLD", "1"}, {"ASSAY_TEST_NEW", "2"}, {"ASSAY_TEST_OLD", "3"}});
    EXPECT_STREQ(std::getenv("ASSAY_TEST_OLD"), "3");
    EXPECT_STREQ(std::getenv("ASSAY_TEST_NEW"), "2");
  }
  EXPECT_STREQ(std::getenv("ASSAY_TEST_OLD"), "before");
  EXPECT_EQ(std::getenv("ASSAY_TEST_NEW"), nullptr);
}

}  // namespace
}  // namespace assay::cli
