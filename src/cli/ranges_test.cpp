// SPDX-License-Identifier: Apache-2.0
#include "cli/ranges.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace assay::cli {
namespace {

TEST(WholeNumberProblem, NamesTheRange) {
  EXPECT_EQ(whole_number_problem("0", 0, 4), "");
  EXPECT_EQ(whole_number_problem("4", 0, 4), "");
  EXPECT_EQ(whole_number_problem("-3", 0, 4), "expected a whole number from 0 to 4, not '-3'");
  for (const char* wrong : {"5", "", "1.0", "nan", "+1", " 1", "99999999999999999999"})
    EXPECT_NE(whole_number_problem(wrong, 0, 4), "") << wrong;
}

TEST(NumberProblem, RefusesWhatIsNoNumber) {
  EXPECT_EQ(number_problem("-1", -1, 1), "");
  EXPECT_EQ(number_problem("1e-3", 0, HUGE_VAL), "");
  EXPECT_EQ(number_problem("2", -1, 1), "expected a number from -1 to 1, not '2'");
  EXPECT_EQ(number_problem("-0.5", 0, HUGE_VAL), "expected a number of at least 0, not '-0.5'");
  for (const char* wrong : {"nan", "-nan", "", "0x", "1,5"})
    EXPECT_NE(number_problem(wrong, 0, HUGE_VAL), "") << wrong;
}

TEST(NumberProblem, ShowsOnlyTheBeginningOfLongWords) {
  EXPECT_LT(number_problem(std::string(100000, '7'), 0, 1).size(), 120U);
}

}  // namespace
}  // namespace assay::cli
