// SPDX-License-Identifier: Apache-2.0
#include "formats/atb_bin.hpp"

#include <gtest/gtest.h>

namespace assay::formats {
namespace {

constexpr AtbAttribute kHalf2x3[] = {{"format", "2"}, {"dtype", "1"}, {"dims", "2,3"}};

TEST(AtbBinHeader, IsTheHistoricalTextByteForByte) {
  // fp16 [2, 3]: 6 values of 2 bytes.
  const std::string header = atb_bin_header(kHalf2x3, 12);
  EXPECT_EQ(header,
            "$Version=1.0\n$Object.Count=1\n$Object.Length=12\nformat=2\ndtype=1\ndims=2,3\n"
            "$Object.data=0,12\n$End=1\n");
  EXPECT_EQ(header.size(), 98u);
}

TEST(AtbBinHeader, HasNoObjectWhenOnlyTheDescriptionIsKept) {
  EXPECT_EQ(
      atb_bin_header(kHalf2x3, std::nullopt),
      "$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=2,3\n$End=1\n");
}

TEST(AtbBinHeader, KeepsTheOrderOfAttributes) {
  const AtbAttribute attributes[] = {{"format", "2"},           {"dtype", "1"},
                                     {"dims", "2,3"},           {"max", "65504.000000"},
                                     {"min", "-2.000000"},      {"mean", "10917.791667"},
                                     {"l2norm", "65504.000121"}};
  EXPECT_EQ(atb_bin_header(attributes, std::nullopt),
            "$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=2,3\n"
            "max=65504.000000\nmin=-2.000000\nmean=10917.791667\nl2norm=65504.000121\n$End=1\n");
}

TEST(AtbBinHeader, TellsAnEmptyTensorFromADescription) {
  const AtbAttribute attributes[] = {{"format", "2"}, {"dtype", "1"}, {"dims", "0,3"}};
  EXPECT_EQ(atb_bin_header(attributes, 0),
            "$Version=1.0\n$Object.Count=1\n$Object.Length=0\nformat=2\ndtype=1\ndims=0,3\n"
            "$Object.data=0,0\n$End=1\n");
}

}  // namespace
}  // namespace assay::formats
