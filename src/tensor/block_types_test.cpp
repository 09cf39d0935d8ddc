// SPDX-License-Identifier: Apache-2.0
// Blocks by hand; tests/cli/test_gguf.py holds every type against the gguf package and engines.
#include "tensor/block_types.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace assay {
namespace {

constexpr uint16_t kHalf = 0x3800;   // 0.5 as a half
constexpr uint16_t kThree = 0x4200;  // 3

std::vector<float> decoded(BlockType type, const std::string& blocks) {
  std::vector<float> out(blocks.size() / info(type).block_bytes * info(type).block_values);
  EXPECT_TRUE(decode_blocks(type, as_bytes(blocks), out).has_value());
  return out;
}

std::vector<CodeReach> reaches(BlockType type, const std::string& blocks) {
  std::vector<CodeReach> out(blocks.size() / info(type).block_bytes * info(type).block_values);
  EXPECT_TRUE(code_reaches(type, as_bytes(blocks), out).has_value());
  return out;
}

TEST(BlockTypes, NamesAndNumbersAreUniqueAndFindTheirType) {
  for (int i = 0; i < kBlockTypeCount; ++i) {
    const auto type = static_cast<BlockType>(i);
    EXPECT_EQ(block_type_from_name(name(type)), type);
    EXPECT_EQ(block_type_from_ggml(info(type).ggml_type), type);
  }
  EXPECT_EQ(block_type_from_name("f32"), std::nullopt);
  EXPECT_EQ(block_type_from_ggml(4), std::nullopt);  // q4_2, taken out of ggml in 2023
}

TEST(BlockTypes, Q8_0IsScaleTimesSignedByte) {
  std::string block;
  append(block, kHalf);
  for (int i = 0; i < 32; ++i) append(block, static_cast<int8_t>(i == 0 ? -127 : i));
  const std::vector<float> values = decoded(BlockType::Q8_0, block);
  EXPECT_EQ(values[0], -63.5F);
  EXPECT_EQ(values[3], 1.5F);
  EXPECT_EQ(values[31], 15.5F);
}

// No engine has a converter of this type, which only ever holds activations, and the gguf package a
// wrong size.
TEST(BlockTypes, Q8_1HasASumBehindTheScale) {
  std::string block;
  append(block, kHalf);
  append(block, kThree);  // half of the codes' sum, which is 6
  for (int i = 0; i < 32; ++i) append(block, static_cast<int8_t>(i == 5 ? 127 : i == 6 ? -121 : 0));
  const std::vector<float> values = decoded(BlockType::Q8_1, block);
  EXPECT_EQ(values[5], 63.5F);
  EXPECT_EQ(values[6], -60.5F);
  EXPECT_EQ(values[31], 0.0F);
}

TEST(BlockTypes, Q4_0KeepsTheSecondHalfOfABlockInTheHighHalves) {
  std::string block;
  append(block, kHalf);
  append(block, uint8_t{0x1F});  // value 0: 15 - 8 = 7; value 16: 1 - 8 = -7
  block.append(15, '\x88');
  const std::vector<float> values = decoded(BlockType::Q4_0, block);
  EXPECT_EQ(values[0], 3.5F);
  EXPECT_EQ(values[16], -3.5F);
  EXPECT_EQ(values[1], 0.0F);
}

TEST(BlockTypes, Q4_KTakesScalesAndMinimumsApart) {
  std::string block;
  append(block, kHalf);   // d
  append(block, kThree);  // dmin
  std::string scales(12, '\0');
  scales[0] = static_cast<char>(0xC0 | 2);  // group 0: scale 2; group 4: high bits 3
  scales[4] = static_cast<char>(0x40 | 1);  // group 0: minimum 1; group 4: high bits 1
  scales[8] = static_cast<char>(0x51);      // group 4: scale 3 * 16 + 1 = 49, minimum 16 + 5 = 21
  block += scales;
  block.append(128, '\x73');  // low 3, high 7
  const std::vector<float> values = decoded(BlockType::Q4_K, block);
  EXPECT_EQ(values[0], 0.5F * 2 * 3 - 3.0F * 1);
  EXPECT_EQ(values[128], 0.5F * 49 * 3 - 3.0F * 21);  // group 4: low halves
  EXPECT_EQ(values[32], 0.0F);                        // group 1: scale and minimum 0
}

TEST(BlockTypes, ANumberRoundedToACodeIsWithinItsReach) {
  std::string block;
  append(block, kHalf);
  block += '\xF9';  // value 0: code 9, inside; value 16: code 15, the last
  block.append(15, '\x88');
  const std::vector<CodeReach> reach = reaches(BlockType::Q4_0, block);
  EXPECT_EQ(reach[0].step, 0.5F);
  // Rounding d = 0.5 to a half costs up to 2^-12, 1.5 times for a number up to 1.5 codes from 0.
  EXPECT_NEAR(reach[0].half_step, 0.25F + 1.5F * 0x1p-12F, 1e-5F);
  EXPECT_EQ(reach[0].bound, reach[0].half_step);
  // -8 * 0.5 = -4 was the largest magnitude; +4 has code 16, which was clipped to 15.
  EXPECT_GE(reach[16].bound, 0.5F);
}

TEST(BlockTypes, BytesOfAShapeNeedWholeBlocksInARow) {
  EXPECT_EQ(blocked_bytes(BlockType::Q8_0, Dims{3, 64}), 3U * 2 * 34);
  EXPECT_EQ(blocked_bytes(BlockType::Q4_K, Dims{0, 256}), 0U);
  EXPECT_EQ(blocked_bytes(BlockType::Q8_0, Dims{64, 3}), std::nullopt);
  EXPECT_EQ(blocked_bytes(BlockType::Q8_0, Dims{}), std::nullopt);
  EXPECT_EQ(blocked_bytes(BlockType::Q8_0, Dims{int64_t{1} << 40, int64_t{1} << 40}), std::nullopt);
}

TEST(BlockTypes, Iq2_XxsTakesAPointItsSignsAndTheScale) {
  std::string block;
  append(block, kHalf);  // d
  block += '\x01';       // point 1: digits 2 0 0 ..., so 43 8 8 8 8 8 8 8
  block.append(3, '\0');
  append(block,
         uint32_t{0x30000000U | 2});  // scale 3, sign 1 of point 0 set, and with it the eighth
  block.append(56, '\0');
  const std::vector<float> values = decoded(BlockType::IQ2_XXS, block);
  EXPECT_EQ(values[0], 0.5F * 3.5F / 4 * 43);
  EXPECT_EQ(values[1], 0.5F * 3.5F / 4 * -8);
  EXPECT_EQ(values[7], 0.5F * 3.5F / 4 * -8);
  EXPECT_EQ(values[8], 0.5F * 3.5F / 4 * 8);
  EXPECT_EQ(values[32], 0.5F * 0.5F / 4 * 8);
}

TEST(BlockTypes, RefusesBytesThatAreNoBlocks) {
  std::vector<float> out(256);
  const auto short_of = decode_blocks(BlockType::Q8_0, as_bytes(std::string(33, '\0')), out);
  ASSERT_FALSE(short_of.has_value());
  EXPECT_EQ(short_of.error().code, Errc::Usage);
}

}  // namespace
}  // namespace assay
