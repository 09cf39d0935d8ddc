// SPDX-License-Identifier: Apache-2.0
// Values worked out by hand; tests/cli/test_logitscmp.py holds the whole tool against torch.
#include "vendor/msit/logits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace assay::vendor::msit {
namespace {

std::string text_of(std::string_view file_name) {
  const Result<LogitsName> name = parse_logits_name(file_name);
  return name ? name->key_text() + ":" + std::to_string(name->token) : name.error().message;
}

TensorView view_of(const std::vector<float>& values) {
  return make_view(DType::Float32, Dims{static_cast<int64_t>(values.size())},
                   std::as_bytes(std::span(values)))
      .value();
}

TEST(ParseLogitsName, TakesKeyAndTokenFromTheEnd) {
  EXPECT_EQ(text_of("logits_dev.jsonl_1352_0.pth"), "1352:0");
  EXPECT_EQ(text_of("5_6.pth"), "5:6");
  EXPECT_EQ(text_of("test_python_123_456.pth"), "python/123:456");
  // Of several languages the last one counts, and digits are taken wherever they stand.
  EXPECT_EQ(text_of("cpp_js_7_x_2.pth"), "js/7:2");
  EXPECT_EQ(text_of("a_-3_+4.pth"), "-3:4");
}

TEST(ParseLogitsName, SaysWhatIsWrong) {
  EXPECT_EQ(text_of("invalid_file.pth"), "invalid_format_invalid_file");
  EXPECT_EQ(text_of("logits_go_5.pth"), "missing_digits_after_go");
  EXPECT_EQ(text_of("lonely.pth"), "invalid logits file name");
  EXPECT_EQ(text_of("a_99999999999999999999_1.pth"), "invalid_format_99999999999999999999_1");
}

TEST(CompareLogits, GivesTheOriginalsNumbers) {
  const std::vector<float> golden = {3, 0, 4};
  const std::vector<float> mine = {3, 0, 5};
  const Result<LogitsMetrics> metrics = compare_logits(view_of(golden), view_of(mine), 0x1p-10);
  ASSERT_TRUE(metrics) << metrics.error().describe();
  // 29 / (5 sqrt(34)), to ten decimals
  EXPECT_EQ(metrics->cosine_similarity, 0.9946917938);
  EXPECT_DOUBLE_EQ(metrics->l1_norm, 8.0 / 7.0 - 1);
  EXPECT_EQ(metrics->ulp_max_diff, 1);
  EXPECT_EQ(metrics->ulp, 4 * 0x1p-10);
  const double p[] = {std::exp(-1) / (std::exp(-1) + std::exp(-4) + 1),
                      std::exp(-4) / (std::exp(-1) + std::exp(-4) + 1),
                      1 / (std::exp(-1) + std::exp(-4) + 1)};
  const double q[] = {std::exp(-2) / (std::exp(-2) + std::exp(-5) + 1),
                      std::exp(-5) / (std::exp(-2) + std::exp(-5) + 1),
                      1 / (std::exp(-2) + std::exp(-5) + 1)};
  double divergence = 0;
  for (int i = 0; i < 3; ++i) divergence += p[i] * std::log(p[i] / q[i]);
  EXPECT_NEAR(metrics->kl_divergence, divergence, 1e-7);
}

TEST(CompareLogits, RoundsEveryStepOfAHalfType) {
  const auto halves = [](const std::array<uint16_t, 2>& bits) {
    return make_view(DType::Float16, Dims{2}, std::as_bytes(std::span(bits))).value();
  };
  // p = 1/2 twice; log p = -1420/2048, p log p = -710/2048. Mine's exponentials 1 and 0.9070 add up
  // to 1953/1024 in fp16, whose logarithm is 1322/2048: log q = -1322/2048, and 100/1024 less,
  // -1522/2048. The differences are 51/2048 and -49/2048. In fp64 the divergence is 0.00119.
  const std::array<uint16_t, 2> golden = {0x3C00, 0x3C00};  // 1, 1
  const std::array<uint16_t, 2> mine = {0x3C00, 0x3C64};    // 1, 1 + 100/1024
  EXPECT_EQ(kl_divergence_in_own_dtype(halves(golden), halves(mine)), 2.0 / 2048);
  // 1 + 1/1024: 1/4096 and -1/4096.
  const std::array<uint16_t, 2> near = {0x3C00, 0x3C01};
  EXPECT_EQ(kl_divergence_in_own_dtype(halves(golden), halves(near)), 0);
}

TEST(CompareLogits, RefusesWhatHasNoNumbers) {
  const std::vector<float> ok = {1, 2};
  const std::vector<float> longer = {1, 2, 3};
  const std::vector<float> broken = {NAN, HUGE_VALF};
  const std::vector<float> zero = {0, -1};
  const auto reason = [](const std::vector<float>& a, const std::vector<float>& b) {
    return compare_logits(view_of(a), view_of(b), 1).error().message;
  };
  EXPECT_EQ(reason(ok, longer), "data shape doesn't match.");
  EXPECT_EQ(reason(broken, broken),
            "golden_data includes NAN or inf. my_data includes NAN or inf.");
  EXPECT_EQ(reason(ok, zero), "max value is 0, cannot compute ulp");
  EXPECT_EQ(reason({}, {}), "data is empty.");
}

TEST(CompareLogits, DropsALeadingAxisOfOne) {
  const std::vector<float> values = {1, 2};
  const TensorView flat = view_of(values);
  const TensorView batch =
      make_view(DType::Float32, Dims{1, 2}, std::as_bytes(std::span(values))).value();
  const TensorView column =
      make_view(DType::Float32, Dims{2, 1}, std::as_bytes(std::span(values))).value();
  EXPECT_TRUE(compare_logits(batch, flat, 1));
  EXPECT_EQ(compare_logits(flat, batch, 1)->cosine_similarity, 1.0);
  EXPECT_FALSE(compare_logits(flat, column, 1));
}

}  // namespace
}  // namespace assay::vendor::msit
