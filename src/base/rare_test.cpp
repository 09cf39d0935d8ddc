// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/byte_archive.hpp"
#include "base/rare_text.hpp"
#include "base/rare_value.hpp"

namespace assay {
namespace {

TEST(RareText, ReadsAsATextAndIsCopiedWhole) {
  static_assert(sizeof(RareText) == sizeof(void*));
  RareText text;
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(text, "");
  text += "one";
  text += " two";
  const RareText copy = text;
  text = "other";
  EXPECT_EQ(copy, "one two");
  EXPECT_EQ("<" + copy + ">", "<one two>");
  EXPECT_EQ(text, std::string("other"));
  text = std::string();
  EXPECT_TRUE(text.empty());
  const RareText& same = copy;
  text = same;
  text = text;  // NOLINT: of itself
  EXPECT_EQ(text, copy);
}

TEST(RareValue, ReadsAsAnOptionalAndIsCopiedWhole) {
  static_assert(sizeof(RareValue<double>) == sizeof(void*));
  RareValue<int> value;
  EXPECT_FALSE(value);
  value.emplace() = 4;
  RareValue<int> copy = value;
  *copy = 5;
  EXPECT_EQ(*value, 4);
  value = copy;
  EXPECT_EQ(*value, 5);
  value.reset();
  EXPECT_FALSE(value.has_value());
}

TEST(RareVector, ReadsAsAVectorAndIsCopiedWhole) {
  static_assert(sizeof(RareVector<double>) == sizeof(void*));
  RareVector<int> values;
  EXPECT_TRUE(values.empty());
  EXPECT_EQ(values.begin(), values.end());
  values = {4, 5};
  const RareVector<int> copy = values;
  values.clear();
  EXPECT_EQ(values.size(), 0U);
  EXPECT_EQ(copy.size(), 2U);
  EXPECT_EQ(copy[1], 5);
  EXPECT_EQ(copy.values(), (std::vector<int>{4, 5}));
}

TEST(ByteArchive, TakesRareMembersAlong) {
  ByteWriter writer;
  writer(RareText("why"), RareText(), RareValue<int64_t>(7), RareValue<int64_t>(),
         RareVector<int64_t>{1, 2});
  const std::string bytes = writer.take();
  ArchiveReader reader(as_bytes(bytes));
  RareText text = "before", none = "before";
  RareValue<int64_t> value, nothing = 3;
  RareVector<int64_t> values;
  reader(text, none, value, nothing, values);
  EXPECT_TRUE(reader.status() && reader.is_at_end());
  EXPECT_EQ(text, "why");
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(*value, 7);
  EXPECT_FALSE(nothing);
  EXPECT_EQ(values.values(), (std::vector<int64_t>{1, 2}));
  // One byte short, the last value is not there, and the reader says so.
  ArchiveReader cut(as_bytes(bytes).first(bytes.size() - 1));
  cut(text, none, value, nothing, values);
  EXPECT_FALSE(cut.status());
}

}  // namespace
}  // namespace assay
