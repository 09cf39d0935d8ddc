// SPDX-License-Identifier: Apache-2.0
#include "compare/limits.hpp"

#include <gtest/gtest.h>

#include "pair/explicit_pairs.hpp"
#include "pair/match.hpp"

namespace assay::compare {
namespace {

TEST(ParseLimitRules, ReadsTheExampleOfTheDocument) {
  const auto rules = parse_limit_rules(
      R"([{"match":"*/lm_head*","rel_l2":0.01,"cos":0.999},{"dtype":"bfloat16","rtol":0.016,"atol":1e-5}])");
  ASSERT_TRUE(rules);
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ((*rules)[0].limit.rel_l2, 0.01);
  EXPECT_EQ((*rules)[1].limit.atol, 1e-5);
  EXPECT_FALSE((*rules)[1].limit.cos.has_value());
}

TEST(ParseLimitRules, NamesTheUnknownKey) {
  const auto rules = parse_limit_rules(R"([{"rel_l3":0.01}])");
  ASSERT_FALSE(rules);
  EXPECT_EQ(rules.error().message, "entry 0: unknown key 'rel_l3'; did you mean 'rel_l2'?");
  EXPECT_EQ(parse_limit_rules(R"([{"tolerance":0.01}])").error().message,
            "entry 0: unknown key 'tolerance'; known are match, dtype, op_type, atol, rtol, cos, "
            "rel_l2");
  EXPECT_EQ(parse_limit_rules(R"([{}, {"dtype":"torch.bflaot16"}])").error().message,
            "entry 1: unknown dtype 'torch.bflaot16'; did you mean 'bfloat16'?");
  EXPECT_TRUE(parse_limit_rules(R"([{"dtype":"torch.bfloat16"}, {"dtype":"float8_e5m2"}])"));
}

TEST(ParseLimitRules, GivesTheByteWhereTheTextStopsBeingJson) {
  const auto rules = parse_limit_rules("[{]");
  ASSERT_FALSE(rules);
  EXPECT_EQ(rules.error().offset, 3u);
}

TEST(ParseLimitRules, ChecksRangesAsTheCommandLineDoes) {
  const auto message = [](const char* text) { return parse_limit_rules(text).error().message; };
  EXPECT_EQ(message(R"([{"cos":2}])"), "entry 0: cos must be a number from -1 to 1, not 2");
  EXPECT_EQ(message(R"([{"cos":-1.5}])"), "entry 0: cos must be a number from -1 to 1, not -1.5");
  for (const std::string key : {"atol", "rtol", "rel_l2"}) {
    const std::string text = "[{\"" + key + "\":-0.1}]";
    EXPECT_EQ(message(text.c_str()),
              "entry 0: " + key + " must be a number of at least 0, not -0.1");
  }
  const auto nan = parse_limit_rules(R"([{"cos": NaN}])");
  EXPECT_EQ(nan.error().message, "NaN is no limit");
  EXPECT_EQ(nan.error().offset, 9u);
  EXPECT_EQ(message(R"([{"atol": -Infinity}])"), "Infinity is no limit");
  EXPECT_TRUE(parse_limit_rules(R"([{"cos":-1,"atol":0,"rtol":0,"rel_l2":0}, {"cos":1}])"));
}

TEST(ParseLimitRules, RefusesAnObjectAndALimitThatIsText) {
  EXPECT_FALSE(parse_limit_rules(R"({"cos":1})"));
  EXPECT_FALSE(parse_limit_rules(R"([{"cos":"high"}])"));
}

TEST(LimitFor, TakesTheFirstRuleThatMatchesAndElseTheFallback) {
  Limits limits;
  limits.rules = {{"*/lm_head*", "", "", {.cos = 0.5}}, {"", "bfloat16", "", {.cos = 0.6}}};
  limits.fallback.cos = 0.7;
  const auto cos_of = [&](const LimitSubject& subject) { return limit_for(limits, subject).cos; };
  EXPECT_EQ(cos_of({"", "", "lm_head", "", "torch.bfloat16"}), 0.5);
  EXPECT_EQ(cos_of({"", "", "model.norm", "", "torch.bfloat16"}), 0.6);
  EXPECT_EQ(cos_of({"", "", "model.norm", "", "torch.float32"}), 0.7);
}

TEST(ParseExplicitPairs, ReadsSlicesAndMerges) {
  const auto pairs = pair::parse_explicit_pairs(
      R"([{"golden":"a","my":"b","slice":"[:, -1, 2:8]","reduce":"cat:1"}, {"golden":"c","my":"d"}])");
  ASSERT_TRUE(pairs);
  ASSERT_EQ(pairs->size(), 2u);
  const pair::ExplicitPair& first = pairs->front();
  EXPECT_EQ(first.merge, pair::Merge::Concat);
  EXPECT_EQ(first.axis, 1);
  ASSERT_EQ(first.golden_steps.size(), 2u);
  EXPECT_EQ(first.golden_steps[0].kind, pair::RecipeStep::Kind::Select);
  EXPECT_EQ(first.golden_steps[0].axis, 1);
  // The index took its axis away, so the third axis of the text is the second of what is left.
  EXPECT_EQ(first.golden_steps[1].axis, 1);
  const auto steps = pair::resolve_steps(first.golden_steps, Dims{3, 5, 7});
  ASSERT_TRUE(steps);
  EXPECT_EQ((*steps)[0].first, 4);
  EXPECT_EQ((*steps)[1].first, 2);
  EXPECT_EQ((*steps)[1].last, 7);
}

TEST(ParseExplicitPairs, NamesTheEntryThatIsWrong) {
  for (const char* text : {R"([{"golden":"a","my":"b"},{"golden":"a"}])",
                           R"([{"golden":"a","my":"b"},{"golden":"a","my":"b","slice":"x"}])",
                           R"([{"golden":"a","my":"b"},{"golden":"a","my":"b","reduce":"cat"}])",
                           R"([{"golden":"a","my":"b"},{"golden":"a","my":"b","other":"1"}])"}) {
    const auto pairs = pair::parse_explicit_pairs(text);
    ASSERT_FALSE(pairs) << text;
    EXPECT_EQ(pairs.error().code, Errc::Invalid);
    EXPECT_TRUE(pairs.error().message.starts_with("entry 1: ")) << pairs.error().message;
  }
}

}  // namespace
}  // namespace assay::compare
