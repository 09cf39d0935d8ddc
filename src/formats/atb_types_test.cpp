// SPDX-License-Identifier: Apache-2.0
#include "formats/atb_types.hpp"

#include <gtest/gtest.h>

namespace assay::formats {
namespace {

TEST(AtbTypes, NumbersAndWordsAreThoseOfTheVendorsTables) {
  EXPECT_EQ(dtype_from_atb(27), DType::BFloat16);
  EXPECT_EQ(atb_dtype_text(27), "bf16");
  EXPECT_EQ(atb_dtype_text(0), "float");
  EXPECT_EQ(atb_format_text(29), "fractal_nz");
  EXPECT_EQ(atb_format_from_text("nd"), kAtbFormatNd);
}

TEST(AtbTypes, TorchWordsOfACsvAreUnderstoodToo) {
  EXPECT_EQ(atb_dtype_from_text("bfloat16"), 27);
  EXPECT_EQ(atb_dtype_from_text("float32"), 0);
  EXPECT_EQ(atb_dtype_from_text("tensor"), std::nullopt);
}

TEST(AtbTypes, ANumberWithoutATypeOfOursStillHasItsWord) {
  EXPECT_EQ(dtype_from_atb(13), std::nullopt);
  EXPECT_EQ(atb_dtype_text(13), "string");
  EXPECT_EQ(atb_dtype_text(5), "");  // the vendor left 5 out
}

TEST(AtbTypes, EveryTypeSurvivesTheWayThereAndBack) {
  for (int64_t number = -1; number < 64; ++number) {
    if (const auto dtype = dtype_from_atb(number)) {
      EXPECT_EQ(atb_from_dtype(*dtype), number);
    }
    if (const auto text = atb_dtype_text(number); !text.empty()) {
      EXPECT_EQ(atb_dtype_from_text(text), number);
    }
  }
}

}  // namespace
}  // namespace assay::formats
