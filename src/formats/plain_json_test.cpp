// SPDX-License-Identifier: Apache-2.0
#include "formats/plain_json.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace assay::formats {
namespace {

using Kind = PlainObject::Kind;

TEST(PlainObject, HasTheMembersInAnyOrder) {
  const auto object = PlainObject::parse(
      R"( {"n": 12,"mean":-1.5e-3, "slot":"0", "shape":[1,[2]], "stats":{"a":{}}, "x":null} )");
  ASSERT_TRUE(object);
  EXPECT_EQ(object->find("stats")->text, R"({"a":{}})");
  EXPECT_EQ(object->find("n")->text, "12");
  EXPECT_EQ(object->find("n")->kind, Kind::Integer);
  EXPECT_EQ(object->find("mean")->kind, Kind::Real);
  EXPECT_EQ(object->find("mean")->text, "-1.5e-3");
  EXPECT_EQ(object->find("slot")->kind, Kind::Text);
  EXPECT_EQ(object->find("slot")->text, "0");
  EXPECT_EQ(object->find("shape")->text, "[1,[2]]");
  EXPECT_EQ(object->find("x")->kind, Kind::Literal);
  EXPECT_EQ(object->find("y"), nullptr);
}

TEST(PlainObject, LeavesToOthersWhatItMayMisread) {
  for (const char* text : {R"({"a":"\u0041"})", "{\"a\":\"\xc3\xa4\"}", R"({"a":1,"a":2})",
                           R"({"a":-0})", R"({"a":1e999})", R"({"a":[{"b":1.5E+100}]})"})
    EXPECT_FALSE(PlainObject::parse(text)) << text;
  // 400 digits are more than a double can be: the general parser refuses the text.
  EXPECT_FALSE(PlainObject::parse("{\"a\":" + std::string(400, '9') + "}"));
  EXPECT_TRUE(PlainObject::parse("{\"a\":" + std::string(100, '9') + ".5e99}"));
  std::string many = "{\"m0\":0";
  for (int i = 1; i < 33; ++i) many += ",\"m" + std::to_string(i) + "\":0";
  EXPECT_FALSE(PlainObject::parse(many + "}"));
  EXPECT_FALSE(PlainObject::parse("{\"a\":" + std::string(20, '[') + std::string(20, ']') + "}"));
}

// Texts are passed eight characters at a time: any byte at any place in and behind eight of them.
TEST(PlainObject, HasTextsOfPrintableAsciiOnly) {
  for (size_t place = 0; place < 19; ++place) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string inner = "abcdefghijklmnopqrs";
      inner[place] = static_cast<char>(byte);
      const std::string text = "{\"a\":\"" + inner + "\"}";
      const auto object = PlainObject::parse(text);
      const bool is_plain = byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
      ASSERT_EQ(object.has_value(), is_plain) << place << " " << byte;
      if (is_plain) {
        ASSERT_EQ(object->find("a")->text, inner);
      }
    }
  }
}

TEST(PlainObject, FindsEachOfManyAndNothingElse) {
  std::string text = "{";
  for (int i = 0; i < 32; ++i)
    text += (i == 0 ? "\"" : ",\"") + std::string(i % 5 + 1, static_cast<char>('a' + i % 26)) +
            std::to_string(i) + "\":" + std::to_string(i);
  text += '}';
  const auto object = PlainObject::parse(text);
  ASSERT_TRUE(object);
  const nlohmann::json any = nlohmann::json::parse(text);
  for (int letter = 0; letter < 26; ++letter) {
    for (int i = 0; i < 32; ++i) {
      const std::string name =
          std::string(i % 5 + 1, static_cast<char>('a' + letter)) + std::to_string(i);
      const PlainObject::Value* const found = object->find(name);
      ASSERT_EQ(found != nullptr, any.contains(name)) << name;
      if (found != nullptr) {
        ASSERT_EQ(found->text, any[name].dump());
      }
    }
  }
  EXPECT_EQ(object->find(""), nullptr);
}

// nlohmann::json is the oracle: what is taken for an object is one there, with the same members.
TEST(PlainObject, TakesNothingThatIsNoJson) {
  const std::vector<std::string> texts = {"",
                                          "{",
                                          "{}",
                                          "{}x",
                                          "[]",
                                          "{\"a\"}",
                                          "{\"a\":}",
                                          "{\"a\":1,}",
                                          "{,}",
                                          "{\"a\":01}",
                                          "{\"a\":1.}",
                                          "{\"a\":.5}",
                                          "{\"a\":1e}",
                                          "{\"a\":+1}",
                                          "{\"a\":tru}",
                                          "{\"a\":nul}",
                                          "{a:1}",
                                          "{\"a\":[1,]}",
                                          "{\"a\":[}",
                                          "{\"a\":{1}}",
                                          "{\"a\" : 1 , \"b\":[ ] }",
                                          "{\"a\":1e5,\"b\":-0.0,\"c\":[1,2]}"};
  for (const std::string& text : texts) {
    const auto plain = PlainObject::parse(text);
    const nlohmann::json any = nlohmann::json::parse(text, nullptr, false);
    EXPECT_EQ(plain.has_value(), any.is_object()) << text;
    if (!plain || !any.is_object()) continue;
    for (const auto& [name, value] : any.items()) {
      ASSERT_NE(plain->find(name), nullptr) << text;
      EXPECT_EQ(nlohmann::json::parse(plain->find(name)->text, nullptr, false), value) << text;
    }
  }
}

TEST(PlainIntegers, AreThoseOfTheArrayOrNone) {
  const auto all = [](std::string_view array) {
    PlainIntegers numbers(array);
    std::vector<int64_t> found;
    while (const auto number = numbers.next()) found.push_back(*number);
    return std::pair(found, numbers.is_whole());
  };
  EXPECT_EQ(all("[]"), std::pair(std::vector<int64_t>{}, true));
  EXPECT_EQ(all("[ 1, -2 ,3]"), std::pair((std::vector<int64_t>{1, -2, 3}), true));
  EXPECT_FALSE(all("[1.5]").second);
  EXPECT_FALSE(all("[\"1\"]").second);
  EXPECT_FALSE(all("[1,99999999999999999999]").second);
  EXPECT_FALSE(all("[[1]]").second);
}

}  // namespace
}  // namespace assay::formats
