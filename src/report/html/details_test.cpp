// SPDX-License-Identifier: Apache-2.0
#include "report/html/details.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "base/text.hpp"

namespace assay::report::html {
namespace {

TensorView floats(const std::vector<float>& values, const Dims& shape) {
  return *make_view(DType::Float32, shape, std::as_bytes(std::span(values)));
}

TEST(DetailsJson, HoldsOneChannelThatDiffers) {
  std::vector<float> golden(4 * 64, 0.1f);
  std::vector<float> mine = golden;
  for (size_t row = 0; row < 4; ++row) mine[row * 64 + 3] += 0.25f;
  const auto picture = measure::picture_of(floats(golden, {1, 4, 64}), floats(mine, {1, 4, 64}));
  ASSERT_TRUE(picture);
  const Json json = details_json(*picture);
  EXPECT_EQ(json["axes"], Json({1, 2}));
  EXPECT_EQ(json["shape"], Json({4, 64}));
  EXPECT_EQ(json["bins"], Json({4, 64}));
  std::string codes(4 * 64, '\0');
  for (size_t row = 0; row < 4; ++row) codes[row * 64 + 3] = static_cast<char>(254);
  EXPECT_EQ(json["max"], base64(codes));
  EXPECT_EQ(json["rms"], base64(codes));
  // 254 is 0.25 = 2^-2, so base is -2 - 254 / 8.
  EXPECT_EQ(json["scale"]["base"], -33.75);
  EXPECT_EQ(json["shape_of_error"], "all in channel 3 of 64");
  EXPECT_EQ(json["values"], 256);
  EXPECT_EQ(json["sampled"], 256);
  const Json& worst = json["worst"];
  ASSERT_EQ(worst.size(), 4u);
  EXPECT_EQ(worst[1]["index"], Json({0, 1, 3}));
  EXPECT_EQ(worst[1]["golden"].dump(), "0.1");
  EXPECT_EQ(worst[1]["mine"].dump(), "0.35");
  EXPECT_EQ(worst[1]["around"]["first"], 0);
  EXPECT_EQ(worst[1]["around"]["golden"].size(), 7u);
  EXPECT_FALSE(worst[1].contains("part"));
}

TEST(DetailsJson, WritesWhatIsNotFiniteAsText) {
  const std::vector<float> golden = {1, 2, 3, INFINITY};
  const std::vector<float> mine = {1, NAN, 3, -INFINITY};
  const Json json = details_json(*measure::picture_of(floats(golden, {4}), floats(mine, {4})));
  EXPECT_EQ(json["max"], base64(std::string("\0\xff\0\xff", 4)));
  EXPECT_EQ(json["worst"][0]["mine"], "NaN");
  EXPECT_EQ(json["worst"][0]["error"], "NaN");
  EXPECT_EQ(json["worst"][0]["ulp"], nullptr);
  EXPECT_EQ(json["worst"][1]["golden"], "Infinity");
  EXPECT_EQ(json["worst"][1]["mine"], "-Infinity");
  EXPECT_EQ(json["mine_histogram"]["nan"], 1);
  EXPECT_EQ(json["mine_histogram"]["inf"], 1);
  EXPECT_EQ(json["shape_of_error"], "NaN or infinity all in 2 of 4 elements");
}

TEST(DetailsJson, OfALargeTensorIsSmall) {
  std::vector<float> golden(512 * 512), mine(golden.size());
  for (size_t i = 0; i < golden.size(); ++i) {
    golden[i] = std::sin(static_cast<float>(i));
    mine[i] = golden[i] + 1e-3f * std::cos(static_cast<float>(7 * i));
  }
  const auto size_of = [&](const Dims& shape) {
    return details_json(*measure::picture_of(floats(golden, shape), floats(mine, shape)))
        .dump()
        .size();
  };
  EXPECT_LE(size_of({512, 512}), 15000u);
  EXPECT_LE(size_of({64, 64, 64}), 25000u);
}

}  // namespace
}  // namespace assay::report::html
