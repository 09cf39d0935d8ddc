// SPDX-License-Identifier: Apache-2.0
#include "opcheck/choice.hpp"

#include <gtest/gtest.h>

namespace assay::opcheck {
namespace {

KnownOperations known_of(const std::vector<std::pair<std::string, std::string>>& operations) {
  KnownOperations known;
  for (const auto& [type, id] : operations) known.add(type, id);
  return known;
}

TEST(OperationChoiceTest, NamesTheNearestTypeAndWhatRan) {
  const KnownOperations known =
      known_of({{"LinearOperation", "0_0"}, {"RmsNormOperation", "0_1"}, {"LinearOperation", "1"}});
  EXPECT_EQ(no_operation_text("", "Liner", known),
            "no operation matches -opname 'Liner'; did you mean -opname linear? these ran: "
            "LinearOperation, RmsNormOperation");
  EXPECT_EQ(no_operation_text("7", "", known),
            "no operation matches -ids '7'; these ids ran: 0_0, 0_1, 1");
  EXPECT_EQ(no_operation_text("7", "zzz", known),
            "no operation matches -ids '7' or -opname 'zzz'; these ran: LinearOperation, "
            "RmsNormOperation, ids 0_0, 0_1, 1");
}

TEST(OperationChoiceTest, PartsOfTorchNamesAreNear) {
  EXPECT_EQ(nearest_operation("mat,embeding", {"aten.linear.default", "aten.embedding.default"}),
            "embedding");
  EXPECT_EQ(nearest_operation("zzz", {"aten.linear.default"}), "");
}

TEST(OperationChoiceTest, LongListsAreCut) {
  KnownOperations known;
  for (int i = 0; i < 30; ++i) known.add("LinearOperation", std::to_string(i));
  const std::string text = no_operation_text("77", "", known);
  EXPECT_TRUE(text.ends_with(", 22, 23 and 6 more")) << text;
}

}  // namespace
}  // namespace assay::opcheck
