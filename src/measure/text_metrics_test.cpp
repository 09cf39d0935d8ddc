// SPDX-License-Identifier: Apache-2.0
// Scores worked out by hand; tests/python/test_badcase.py has more of them.
#include "measure/text_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace assay::measure {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

double score(std::string_view metric, std::string_view output, std::string_view expected) {
  return case_score(parse_case_metric(metric).value(), output, expected).value();
}

TEST(WordsOf, KeepsLettersAndDigitsTogether) {
  EXPECT_THAT(words_of("top1 is 3.14%, ok."),
              ElementsAre("top1", " ", "is", " ", "3.14%", ",", " ", "ok", "."));
  EXPECT_THAT(words_of("a.b 1.x"), ElementsAre("a", ".", "b", " ", "1", ".", "x"));
  EXPECT_THAT(words_of("\xE4\xBD\xA0\xE5\xA5\xBDz"),
              ElementsAre("\xE4\xBD\xA0", "\xE5\xA5\xBD", "z"));
  EXPECT_THAT(words_of("\xFF"), ElementsAre("\xEF\xBF\xBD"));
  EXPECT_THAT(words_of(""), IsEmpty());
}

TEST(CaseScore, CountsWordsByHand) {
  EXPECT_EQ(score("accuracy", "4", "4"), 1);
  EXPECT_EQ(score("edit_distance", "kitten", "sitting"), 3);
  EXPECT_EQ(score("edit_distance", "", "\xE4\xBD\xA0\xE5\xA5\xBD"), 2);
  EXPECT_DOUBLE_EQ(score("relative_abnormal", "$ $ a", "$ a"), (2.0 / 3) / (1.0 / 2));
  EXPECT_DOUBLE_EQ(score("relative_abnormal", "a", "b"), 1);
  EXPECT_DOUBLE_EQ(score("bleu", "the the cat", "the cat sat down"), std::exp(1 - 4.0 / 3) * 2 / 3);
  EXPECT_DOUBLE_EQ(score("bleu_2", "the cat sat", "the cat ran"), 0.5);
  EXPECT_EQ(score("bleu", "x", "y"), 0);
  EXPECT_DOUBLE_EQ(score("rouge_1", "the the cat", "the cat sat"), 0.8);
  EXPECT_DOUBLE_EQ(score("rouge_l", "a b c d", "a c d"), 6.0 / 7);
  EXPECT_DOUBLE_EQ(score("relative_distinct", "a a a", "a b c"), 0.5);
  EXPECT_FALSE(case_score(parse_case_metric("rouge").value(), "", "a"));
}

TEST(ParseCaseMetric, TakesALimitOfOnesOwn) {
  EXPECT_EQ(parse_case_metric("edit_distance")->threshold, 5);
  EXPECT_EQ(parse_case_metric("edit_distance=0")->threshold, 0);
  EXPECT_TRUE(parse_case_metric("edit_distance=2")->passes(2));
  EXPECT_FALSE(parse_case_metric("edit_distance=2")->passes(3));
  EXPECT_FALSE(parse_case_metric("bleu_4=0.5")->passes(0.4));
  for (const char* wrong : {"bleu=1.5", "accuracy=nan", "rouge=x", "rouge="})
    EXPECT_THAT(parse_case_metric(wrong).error().message, HasSubstr("is not a number")) << wrong;
  EXPECT_THAT(parse_case_metric("perplexity").error().message, HasSubstr("is not supported"));
}

}  // namespace
}  // namespace assay::measure
