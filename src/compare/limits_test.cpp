// SPDX-License-Identifier: Apache-2.0
#include "compare/limits.hpp"

#include <gtest/gtest.h>

#include "compare/match.hpp"

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
  EXPECT_EQ(
      rules.error().message,
      "entry 0: unknown key 'rel_l3'; known are match, dtype, op_type, atol, rtol, cos, rel_l2");
}

TEST(ParseLimitRules, GivesTheByteWhereTheTextStopsBeingJson) {
  const auto rules = parse_limit_rules("[{]");
  ASSERT_FALSE(rules);
  EXPECT_EQ(rules.error().offset, 3u);
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

TEST(ParseExplicitPairs, RefusesWhatIsNotAvailableYet) {
  const auto pairs = parse_explicit_pairs(R"([{"golden":"a","my":"b","slice":"0:1"}])");
  ASSERT_FALSE(pairs);
  EXPECT_EQ(pairs.error().code, Errc::Unsupported);
}

}  // namespace
}  // namespace assay::compare
