// SPDX-License-Identifier: Apache-2.0
#include "topology/json_document.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

namespace assay::topology {
namespace {

JsonDocument parsed(std::string_view text) {
  Result<JsonDocument> document = JsonDocument::parse(text, 100);
  EXPECT_TRUE(document) << document.error().describe();
  return document ? *std::move(document) : *JsonDocument::parse("null", 1);
}

TEST(JsonDocument, GivesValuesAsTheyWereWritten) {
  const std::string text =
      R"( {"a": [1, 2.50, 1e-05], "b": "x\ty", "a": {"c": 18446744073709551616}} )";
  const JsonDocument json = parsed(text);
  const JsonDocument::Value last = json.find(0, "a");
  ASSERT_TRUE(json.is(last, JsonKind::Object));  // of two members with one name the last counts
  EXPECT_EQ(json.text(json.find(last, "c")), "18446744073709551616");
  EXPECT_EQ(json.integer(json.find(last, "c")), std::nullopt);
  EXPECT_EQ(json.number(json.find(last, "c")), 18446744073709551616.0);
  EXPECT_EQ(json.string(json.find(0, "b")), "x\ty");
  EXPECT_EQ(json.key(json.first(0)), "a");
  EXPECT_EQ(json.find(0, "none"), JsonDocument::kNone);
  std::string compact;
  json.append_compact(0, &compact);
  EXPECT_EQ(compact, R"({"a":[1,2.50,1e-05],"b":"x\ty","a":{"c":18446744073709551616}})");
}

TEST(JsonDocument, ResolvesEscapesAndRepairsWhatIsNoUtf8) {
  const JsonDocument json =
      parsed("[\"\\u00e4\\ud83d\\ude00\", \"\\ud800x\", \"\xff\", \"\\/\\b\"]");
  JsonDocument::Value item = json.first(0);
  EXPECT_EQ(json.string(item), "\u00e4\U0001F600");
  item = json.next(item);
  EXPECT_EQ(json.string(item), "\uFFFDx");
  item = json.next(item);
  EXPECT_EQ(json.string(item), "\uFFFD");
  item = json.next(item);
  EXPECT_EQ(json.string(item), "/\b");
}

TEST(JsonDocument, TakesWhatPythonWritesForNaNAsNull) {
  const JsonDocument json = parsed("[NaN, Infinity, -Infinity, -1]");
  std::string compact;
  json.append_compact(0, &compact);
  EXPECT_EQ(compact, "[null,null,null,-1]");
  EXPECT_TRUE(json.is(json.first(0), JsonKind::Null));
}

TEST(JsonDocument, SaysWhereAndWhy) {
  struct Case {
    std::string text;
    Errc code;
    size_t offset;
  };
  const Case cases[] = {{"", Errc::Truncated, 0},
                        {"  ", Errc::Truncated, 2},
                        {"{", Errc::Truncated, 1},
                        {"[1,", Errc::Truncated, 3},
                        {"[1 2]", Errc::Invalid, 3},
                        {"[1]]", Errc::Invalid, 3},
                        {"\"ab", Errc::Truncated, 0},
                        {"\"a\nb\"", Errc::Invalid, 2},
                        {"{\"a\" 1}", Errc::Invalid, 5},
                        {"{1:2}", Errc::Invalid, 1},
                        {"[01]", Errc::Invalid, 2},
                        {"[1.]", Errc::Invalid, 3},
                        {"[1e]", Errc::Invalid, 3},
                        {"[-]", Errc::Invalid, 2},
                        {"[\"\\u12g4\"]", Errc::Invalid, 6},
                        {"[\"\\x\"]", Errc::Invalid, 3},
                        {"[tru]", Errc::Invalid, 1},
                        {"[,]", Errc::Invalid, 1},
                        {"[1,]", Errc::Invalid, 3},
                        {"{\"a\":1,}", Errc::Invalid, 7}};
  for (const Case& c : cases) {
    const Result<JsonDocument> document = JsonDocument::parse(c.text, 100);
    ASSERT_FALSE(document) << c.text;
    EXPECT_EQ(document.error().code, c.code) << c.text;
    EXPECT_EQ(document.error().offset, c.offset) << c.text;
  }
  EXPECT_EQ(JsonDocument::parse("[[[1]]]", 2).error().code, Errc::TooLarge);
  EXPECT_TRUE(JsonDocument::parse("[[[1]]]", 3));
}

RC_GTEST_PROP(JsonDocument, ReadsWhatAnotherLibraryWrites,
              (const std::map<std::string, std::vector<int64_t>>& content, const std::string& text,
               double number)) {
  nlohmann::json json = content;
  json["the text"] = text;
  json["the number"] = number;
  const std::string written = json.dump(1, ' ', true, nlohmann::json::error_handler_t::replace);
  const Result<JsonDocument> document = JsonDocument::parse(written, 10);
  RC_ASSERT(document.has_value());
  std::string compact;
  document->append_compact(0, &compact);
  RC_ASSERT(nlohmann::json::parse(compact) == nlohmann::json::parse(written));
  for (const auto& [key, values] : content) {
    if (key == "the text" || key == "the number") continue;
    const std::string stored = nlohmann::json::parse(
        nlohmann::json(key).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    JsonDocument::Value item = document->find(0, stored);
    RC_ASSERT(item != JsonDocument::kNone);
    if (stored != key) continue;  // two broken keys may have become one
    item = document->first(item);
    for (const int64_t value : values) {
      RC_ASSERT(document->integer(item) == value);
      item = document->next(item);
    }
    RC_ASSERT(item == JsonDocument::kNone);
  }
}

}  // namespace
}  // namespace assay::topology
