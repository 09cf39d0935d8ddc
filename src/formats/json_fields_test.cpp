// SPDX-License-Identifier: Apache-2.0
#include "formats/json_fields.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace assay::formats {
namespace {

TEST(JsonNesting, DoesNotCountBracketsInStrings) {
  EXPECT_EQ(json_nesting(R"({"a":[1,"]]]\"[["]})"), 2u);
  EXPECT_EQ(json_nesting("]]]"), 0u);
}

TEST(ParseJsonObject, RefusesWhatIsNone) {
  EXPECT_EQ(parse_json_object("[1]").error().code, Errc::Invalid);
  EXPECT_EQ(parse_json_object("{\"a\":").error().code, Errc::Invalid);
  const std::string deep = "{\"a\":" + std::string(64, '[') + std::string(64, ']') + "}";
  EXPECT_EQ(parse_json_object(deep).error().code, Errc::TooLarge);
  EXPECT_TRUE(parse_json_object("{}"));
}

TEST(JsonMembers, TakeOnlyTheirType) {
  const nlohmann::json object =
      nlohmann::json::parse(R"({"n":3,"minus":-3,"t":"x","none":null,"list":[1,{},"y",{}]})");
  EXPECT_EQ(count_of(object, "n"), 3u);
  EXPECT_EQ(count_of(object, "minus"), 0u);
  EXPECT_EQ(count_of(object, "t"), 0u);
  EXPECT_EQ(text_of(object, "t"), "x");
  EXPECT_EQ(text_of(object, "n"), "");
  EXPECT_EQ(member(object, "none"), nullptr);
  EXPECT_EQ(member(object["list"], "n"), nullptr);
  EXPECT_EQ(objects_of(object, "list").size(), 2u);
  EXPECT_EQ(texts_of(object, "list"), std::vector<std::string>{"y"});
  EXPECT_TRUE(objects_of(object, "t").empty());
}

TEST(Flatten, NamesMembersByTheirPath) {
  std::map<std::string, std::string> out;
  flatten(nlohmann::json::parse(R"({"torch":"2.13","steps":[0,1],"deep":{"x":true}})"), "host",
          &out);
  const std::map<std::string, std::string> expected = {
      {"host.torch", "2.13"}, {"host.steps", "[0,1]"}, {"host.deep.x", "true"}};
  EXPECT_EQ(out, expected);
}

}  // namespace
}  // namespace assay::formats
