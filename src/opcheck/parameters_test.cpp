// SPDX-License-Identifier: Apache-2.0
#include "opcheck/parameters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::opcheck {
namespace {

using ::testing::ElementsAre;

TEST(Parameters, ValuesByPathAndSpelling) {
  const auto p = Parameters::parse(
      R"({"trans_a":1,"normParam":{"epsilon":1e-5,"rstd":false},"axes":[1,-2],"num":3,"post":null})");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->boolean("transposeA|transA|trans_a", false).value(), true);
  EXPECT_EQ(p->number("normParam.epsilon", 0).value(), 1e-5);
  EXPECT_EQ(p->number("normParam.missing", 7).value(), 7);
  EXPECT_EQ(p->integer("post.layerType", 2).value(), 2);
  EXPECT_THAT(p->integers("axes").value(), ElementsAre(1, -2));
  EXPECT_THAT(p->integers("num").value(), ElementsAre(3));
  EXPECT_TRUE(p->integers("nothing").value().empty());
  EXPECT_FALSE(p->has("post"));
}

TEST(Parameters, AValueOfTheWrongKindIsNamed) {
  const auto p = Parameters::parse(R"({"headNum":"many","flag":"x","axes":[1,"y"]})");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->integer("headNum", 0).error().message,
            "parameter headNum is \"many\", not an integer");
  EXPECT_FALSE(p->boolean("flag", false));
  EXPECT_FALSE(p->integers("axes"));
}

TEST(Parameters, UnknownKeysKeepTheirOrder) {
  const auto p =
      Parameters::parse(R"({"z":1,"layerType":1,"normParam":{"epsilon":1,"new":2},"a":{"b":1}})");
  ASSERT_TRUE(p);
  EXPECT_THAT(p->unknown("layerType normParam.epsilon"), ElementsAre("z", "normParam.new", "a"));
  EXPECT_THAT(p->unknown("layerType normParam z|y a"), ElementsAre());
}

TEST(Parameters, TextIsWhatPythonWrites) {
  // json.dumps(json.loads(...)) of Python 3.11
  const auto p = Parameters::parse(
      R"({"transposeA":false,"eps":0.000009999999747378752,"v":[1,2.5],"s":"é","n":null,"o":{}})");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->python_text(),
            "{\"transposeA\": false, \"eps\": 9.999999747378752e-06, \"v\": [1, 2.5], \"s\": "
            "\"\\u00e9\", \"n\": null, \"o\": {}}");
  EXPECT_EQ(Parameters().python_text(), "{}");
}

TEST(Parameters, DamagedTextIsRefused) {
  EXPECT_EQ(Parameters::parse("{\"a\":").error().code, Errc::Invalid);
  EXPECT_EQ(Parameters::parse("[1]").error().message, "the parameters are array, not an object");
  EXPECT_FALSE(Parameters::parse(std::string(100000, '[')));
  EXPECT_TRUE(Parameters::parse("\"\"")->empty());
  EXPECT_TRUE(Parameters::parse("null")->empty());
}

}  // namespace
}  // namespace assay::opcheck
