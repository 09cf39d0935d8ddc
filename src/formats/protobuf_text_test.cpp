// SPDX-License-Identifier: Apache-2.0
#include "formats/protobuf_text.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace assay::formats {
namespace {

using Kind = TextDocument::Kind;

TextDocument parse(std::string_view text) {
  auto document = TextDocument::parse(text);
  EXPECT_TRUE(document.has_value()) << document.error().describe();
  return document ? *std::move(document) : TextDocument();
}

TEST(TextDocument, KeepsEveryFieldInItsOrder) {
  const TextDocument document = parse(R"(name: "a: {b}" # comment
      op { attr { key: "k" value { t { desc { dtype: DT_INT8 } data: "\000\377" "\n" } } } }
      dim: [1, -2]  op: < >)");
  const auto name = document.first(0);
  EXPECT_EQ(document.name(name), "name");
  EXPECT_EQ(document.kind(name), Kind::String);
  EXPECT_EQ(document.string(name), "a: {b}");
  EXPECT_EQ(document.offset(name), 6u);
  const auto op = document.next(name);
  EXPECT_EQ(document.name(op), "op");
  EXPECT_EQ(document.kind(op), Kind::Message);
  auto field = document.find(op, "attr");
  for (const char* inner : {"value", "t"}) field = document.find(field, inner);
  EXPECT_EQ(document.text(document.find(document.find(field, "desc"), "dtype")), "DT_INT8");
  EXPECT_EQ(document.string(document.find(field, "data")), std::string("\0\xff\n", 3));
  const auto one = document.next(op);
  const auto two = document.next(one);
  EXPECT_EQ(document.integer(one), 1);
  EXPECT_EQ(document.name(two), "dim");
  EXPECT_EQ(document.integer(two), -2);
  const auto last = document.next(two);
  EXPECT_EQ(document.first(last), TextDocument::kNone);
  EXPECT_EQ(document.next(last), TextDocument::kNone);
}

TEST(TextDocument, FindsTheLastFieldOfAName) {
  const TextDocument document = parse("a: 1 b: 2 a: 3");
  EXPECT_EQ(document.integer(document.find(0, "a")), 3);
  EXPECT_EQ(document.find(0, "c"), TextDocument::kNone);
}

TEST(TextDocument, SaysWhereTheTextIsWrong) {
  EXPECT_EQ(TextDocument::parse("a { b: 1").error().offset, 8u);
  EXPECT_EQ(TextDocument::parse("a 1").error().offset, 2u);
  EXPECT_EQ(TextDocument::parse("a: \"x").error().code, Errc::Invalid);
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "a{";
  EXPECT_EQ(TextDocument::parse(deep).error().code, Errc::TooLarge);
}

TEST(TextInteger, ReadsAllFormsAndAllSixtyFourBits) {
  EXPECT_EQ(text_integer("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(text_integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(text_integer("9223372036854775808"), std::nullopt);
  EXPECT_EQ(text_integer("0x1F"), 31);
  EXPECT_EQ(text_integer("017"), 15);
  EXPECT_EQ(text_integer("- 1"), -1);
  EXPECT_EQ(text_integer("1.5"), std::nullopt);
  EXPECT_EQ(text_integer(""), std::nullopt);
  EXPECT_EQ(text_integer("--1"), std::nullopt);
}

TEST(TextReal, ReadsAllForms) {
  EXPECT_EQ(text_real("1.5e-3f"), 1.5e-3);
  EXPECT_EQ(text_real("-3"), -3.0);
  EXPECT_EQ(text_real("-inf"), -INFINITY);
  EXPECT_TRUE(std::isnan(text_real("nan").value_or(0)));
  EXPECT_EQ(text_real("--1"), std::nullopt);
  EXPECT_EQ(text_real("f"), std::nullopt);
}

}  // namespace
}  // namespace assay::formats
