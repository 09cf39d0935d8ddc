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

TEST(ParseAtbProcessFolder, TakesDeviceAndProcess) {
  EXPECT_EQ(parse_atb_process_folder("0_39943"), (AtbProcessName{0, 39943}));
  EXPECT_EQ(parse_atb_process_folder("-1_7"), (AtbProcessName{-1, 7})) << "no device was set";
  for (const char* name : {"npu0_7", "0_", "_7", "0_7_1", "0", "-2_7", "0_-7", "root.x_1", ""})
    EXPECT_FALSE(parse_atb_process_folder(name).has_value()) << name;
}

TEST(ParseAtbNodeFolder, TakesIdAndType) {
  const auto layer = parse_atb_node_folder("12_Decoder_layer");
  ASSERT_TRUE(layer.has_value());
  EXPECT_EQ(layer->id, 12u);
  EXPECT_EQ(layer->type, "Decoder_layer");
  for (const char* name : {"before", "Decoder_layer", "1_", "_x", "x_1", "99999999999999999999_x"})
    EXPECT_FALSE(parse_atb_node_folder(name).has_value()) << name;
}

TEST(ParseAtbFileName, FollowsAllVersions) {
  const auto text = [](const char* name) -> std::string {
    const auto parsed = parse_atb_file_name(name);
    if (!parsed) return "-";
    return std::string(role_name(parsed->role)) + ":" + std::string(parsed->index) + ":" +
           std::string(parsed->parameter);
  };
  EXPECT_EQ(text("intensor0.bin"), "input:0:");
  EXPECT_EQ(text("outtensor12.bin"), "output:12:");
  EXPECT_EQ(text("inTensor3.bin"), "input:3:");
  EXPECT_EQ(text("outtensor0_y_out.bin"), "output:0:y_out");
  for (const char* name : {"intensor.bin", "intensor0", "intensor0.bin.tmp", "intensor0x.bin",
                           "intensor0_.bin", "kernel_tilingdata.bin", "x_intensor0.bin"})
    EXPECT_EQ(text(name), "-") << name;
}

TEST(AtbIdsOfNode, JoinsTheIdsOfThePath) {
  EXPECT_EQ(atb_ids_of_node("1_Decoder_layer/0_Attention/10_LinearOperation"), "1_0_10");
  EXPECT_EQ(atb_ids_of_node("LinearOperation_1"), "");
}

}  // namespace
}  // namespace assay::run
