// SPDX-License-Identifier: Apache-2.0
#include "base/suggest.hpp"

#include <gtest/gtest.h>

namespace assay {
namespace {

const std::vector<std::string> kCommands = {"dump", "compare", "convert", "show", "locate"};

TEST(NearestWord, FindsSwappedLettersAndForgottenOnes) {
  EXPECT_EQ(nearest_word("comapre", kCommands), "compare");
  EXPECT_EQ(nearest_word("shw", kCommands), "show");
  EXPECT_EQ(nearest_word("--fromat", {"--force", "--format"}), "--format");
}

TEST(NearestWord, IsEmptyWhenNothingIsNear) {
  EXPECT_EQ(nearest_word("frobnicate", kCommands), "");
  EXPECT_EQ(nearest_word("", kCommands), "");
  EXPECT_EQ(nearest_word("--", kCommands), "");
  EXPECT_EQ(nearest_word("x", {"-o", "-w"}), "");
}

TEST(NearestWord, LeavesWordsOfHostileLengthAlone) {
  EXPECT_EQ(nearest_word(std::string(100000, 'a'), kCommands), "");
}

TEST(UnknownWordText, LeavesTheValueOut) {
  EXPECT_EQ(unknown_word_text("option", "--fromat=npy", {"--format"}),
            "unknown option --fromat; did you mean --format?");
  EXPECT_EQ(unknown_word_text("command", "frobnicate", kCommands), "unknown command frobnicate");
}

}  // namespace
}  // namespace assay
