// SPDX-License-Identifier: Apache-2.0
#include "locate/noise/narrow_products.hpp"

#include <gtest/gtest.h>

#include "reference/wide.hpp"

namespace assay::locate {
namespace {

using reference::aten::Call;

Tensor single(Dims shape, std::vector<double> values) {
  reference::Wide wide(std::move(shape));
  wide.values.assign(values.begin(), values.end());
  return reference::narrow(reference::to_tensor(std::move(wide)).view, DType::Float32).value();
}

double narrow_value(double value, ProductType type) {
  const Tensor made = narrowed(single(Dims{1}, {value}), type).value();
  return reference::widen(made.view)->values.front();
}

TEST(NarrowProducts, RoundAsTheirNamesSay) {
  // bfloat16 has 7 bits of fraction: 1 + 2^-8 is a tie, to even 1; 1 + 3 2^-8 is one, to 1 + 2^-6.
  EXPECT_EQ(narrow_value(1 + 0x1p-8, ProductType::BFloat16), 1);
  EXPECT_EQ(narrow_value(1 + 3 * 0x1p-8, ProductType::BFloat16), 1 + 0x1p-6);
  // TF32 has 10: ties to even, away from zero, and cut.
  EXPECT_EQ(narrow_value(-1 - 0x1p-11, ProductType::TF32), -1);
  EXPECT_EQ(narrow_value(-1 - 0x1p-11, ProductType::TF32Ties), -1 - 0x1p-10);
  EXPECT_EQ(narrow_value(1 + 0x1p-11 + 0x1p-12, ProductType::TF32Cut), 1);
  // A pair has 8 bits of significand twice: 1 + 2^-7 and 2^-14 (1 + 2^-7); the bit behind is lost.
  EXPECT_EQ(narrow_value(1 + 0x1p-7 + 0x1p-14, ProductType::BFloat16Pairs), 1 + 0x1p-7 + 0x1p-14);
  EXPECT_EQ(narrow_value(1 + 0x1p-9 + 0x1p-20, ProductType::BFloat16Pairs), 1 + 0x1p-9);
}

TEST(NarrowProducts, RoundWhatIsMultipliedAndNoBias) {
  Call call{"aten.addmm.default", {}};
  const double off = 1 + 0x1p-9;  // 1 in bfloat16
  call.arguments["self"].value = single(Dims{1}, {off});
  call.arguments["mat1"].value = single(Dims{1, 1}, {off});
  call.arguments["mat2"].value = single(Dims{1, 1}, {3 * off});
  const auto value_in = [&](ProductType type) {
    return reference::widen(evaluate_narrow(call, type)->front().view)->values.front();
  };
  EXPECT_EQ(value_in(ProductType::BFloat16), off + 3);
  // (1 + r)(3 + 3 r) without r 3 r, the product of the rests
  EXPECT_EQ(value_in(ProductType::BFloat16Pairs), off + 3 + 6 * 0x1p-9);
  EXPECT_EQ(value_in(ProductType::Float32), off + 3 * off * off);
}

}  // namespace
}  // namespace assay::locate
