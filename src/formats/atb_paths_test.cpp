// SPDX-License-Identifier: Apache-2.0
#include "formats/atb_paths.hpp"

#include <gtest/gtest.h>

#include "tensor/node.hpp"

namespace assay::formats {
namespace {

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

TEST(ParseAtbTensorPath, TakesTheNamesOfTheLibrary) {
  const auto path =
      parse_atb_tensor_path("0_77/12/1_Decoder_layer/0_Attention/before/intensor3_q.bin");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->process, "0_77");
  EXPECT_EQ(path->run_count, 12);
  EXPECT_EQ(path->node, "1_Decoder_layer/0_Attention");
  EXPECT_TRUE(path->before);
  EXPECT_EQ(path->file.role, Role::Input);
  EXPECT_EQ(path->file.index, "3");
  EXPECT_EQ(path->file.parameter, "q");
  EXPECT_FALSE(parse_atb_tensor_path("0_77/0/1_A/after/outtensor0.bin")->before);
}

TEST(ParseAtbTensorPath, RefusesEverythingElse) {
  for (const char* path :
       {"", "/", "0_77/0/before/intensor0.bin", "0_77/0/1_A/intensor0.bin",
        "0_77/0/1_A/during/intensor0.bin", "0_77/0/1_A/before/tensor0.bin",
        "0_77/00/1_A/before/intensor0.bin", "0_77/x/1_A/before/intensor0.bin",
        "77/0/1_A/before/intensor0.bin", "0_77/0/A/before/intensor0.bin",
        "0_77/0/1_A//before/intensor0.bin", "/0/1_A/before/intensor0.bin", "before/intensor0.bin"})
    EXPECT_FALSE(parse_atb_tensor_path(path)) << path;
}

TEST(ParseAtbNodePath, TakesTheFolderOfAnOperation) {
  const auto path = parse_atb_node_path("-1_77/0/1_A/0_B");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->process, "-1_77");
  EXPECT_EQ(path->node, "1_A/0_B");
  for (const char* other : {"0_77", "0_77/0", "0_77/0/", "0_77/0/1_A/before"})
    EXPECT_FALSE(parse_atb_node_path(other)) << other;
}

}  // namespace
}  // namespace assay::formats
