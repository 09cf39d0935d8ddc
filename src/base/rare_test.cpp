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

TEST(ByteArchive, TakesRareMembersAlong) {
  ByteWriter writer;
  writer(RareText("why"), RareText(), RareValue<int64_t>(7), RareValue<int64_t>());
  const std::string bytes = writer.take();
  ArchiveReader reader(as_bytes(bytes));
  RareText text = "before", none = "before";
  RareValue<int64_t> value, nothing = 3;
  reader(text, none, value, nothing);
  EXPECT_TRUE(reader.status() && reader.is_at_end());
  EXPECT_EQ(text, "why");
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(*value, 7);
  EXPECT_FALSE(nothing);
  // One byte short, the last value is not there, and the reader says so.
  ArchiveReader cut(as_bytes(bytes).first(bytes.size() - 1));
  cut(text, none, value, nothing);
  EXPECT_FALSE(cut.status());
}

}  // namespace
}  // namespace assay
