// SPDX-License-Identifier: Apache-2.0
#include "run/atb_names.hpp"

#include <gtest/gtest.h>

namespace assay::run {
namespace {

TEST(AtbOperandNumber, StandsInFrontOfTheMoment) {
  EXPECT_EQ(atb_operand_number("12"), 12u);
  EXPECT_EQ(atb_operand_number("3.before"), 3u);
  EXPECT_EQ(atb_operand_number("3.after"), 3u);
  for (const char* other : {"", "3.y", "3.after.y", ".after", "y"})
    EXPECT_EQ(atb_operand_number(other), std::nullopt) << other;
}

TEST(AtbOperationType, IsWhatAtbsTablesCallIt) {
  TensorRecord record;
  record.node = "0_layer/1_Decoder_LinearOperation";
  record.op_type = "Decoder_LinearOperation";
  EXPECT_EQ(atb_operation_type(record), "LinearOperation");
  record.op_type = "Add_F16Kernel";
  EXPECT_EQ(atb_operation_type(record), "Add_F16Kernel");
}

TEST(AtbIdsOfNode, JoinsTheIdsOfThePath) {
  EXPECT_EQ(atb_ids_of_node("1_Decoder_layer/0_Attention/10_LinearOperation"), "1_0_10");
  EXPECT_EQ(atb_ids_of_node("LinearOperation_1"), "");
}

}  // namespace
}  // namespace assay::run
