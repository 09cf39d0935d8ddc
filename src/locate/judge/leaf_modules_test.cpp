// SPDX-License-Identifier: Apache-2.0
#include "locate/judge/leaf_modules.hpp"

#include <cmath>

#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using reference::round_to;
using test::TestRun;

constexpr DType kBf16 = DType::BFloat16;

/// Values between -2 and 2 that no rule of rounding favours.
std::vector<double> values(size_t count, double seed) {
  std::vector<double> result;
  for (size_t i = 0; i < count; ++i)
    result.push_back(round_to(2 * std::sin(seed + 1.7 * static_cast<double>(i)), kBf16));
  return result;
}

/// A run of modules of one class, `layers.0` and so on: input [rows, width], parameters, output.
class Modules {
 public:
  static constexpr size_t kRows = 4;
  static constexpr size_t kWidth = 16;

  explicit Modules(std::string type) : type_(std::move(type)) {}

  void add(const std::vector<double>& input, const std::vector<double>& weight, const Dims& shape,
           const std::vector<double>& output) {
    const std::string module = "layers." + std::to_string(count_++);
    run_.module_input(module, "0", run_.value(kBf16, {kRows, kWidth}, input));
    run_.module_output(module, run_.value(kBf16, {kRows, kWidth}, output));
    if (!weight.empty()) run_.weight(module, "weight", run_.value(kBf16, shape, weight));
  }

  LeafErrors judge() {
    for (run::TensorRecord& record : run_.run().records) record.op_type = type_;
    const Program program = run_.program();
    OwnErrorOptions options;
    options.jobs = 2;
    return judge_leaf_modules(program, options).value();
  }

 private:
  TestRun run_;
  std::string type_;
  size_t count_ = 0;
};

/// y = x w^T in fp64.
std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& w) {
  std::vector<double> y;
  for (size_t row = 0; row < Modules::kRows; ++row) {
    for (size_t out = 0; out < Modules::kWidth; ++out) {
      double sum = 0;
      for (size_t k = 0; k < Modules::kWidth; ++k)
        sum += x[row * Modules::kWidth + k] * w[out * Modules::kWidth + k];
      y.push_back(sum);
    }
  }
  return y;
}

/// As Hugging Face has it: rounded, scaled and rounded again.
std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& w,
                             double eps) {
  std::vector<double> y;
  for (size_t row = 0; row < Modules::kRows; ++row) {
    double squares = 0;
    for (size_t k = 0; k < Modules::kWidth; ++k)
      squares += x[row * Modules::kWidth + k] * x[row * Modules::kWidth + k];
    const double scale = 1 / std::sqrt(squares / Modules::kWidth + eps);
    for (size_t k = 0; k < Modules::kWidth; ++k)
      y.push_back(round_to(x[row * Modules::kWidth + k] * scale, kBf16) * w[k]);
  }
  return y;
}

constexpr size_t kValues = Modules::kRows * Modules::kWidth;
const Dims kSquare = {Modules::kWidth, Modules::kWidth};

TEST(LeafModules, ALinearModuleIsJudgedByItsOwnInputs) {
  // Given twelve modules, of which the fourth has one element wrong by 3 %
  Modules modules("Linear");
  for (int i = 0; i < 12; ++i) {
    const std::vector<double> x = values(kValues, i);
    const std::vector<double> w = values(Modules::kWidth * Modules::kWidth, 10 + i);
    std::vector<double> y = linear(x, w);
    if (i == 3) y[5] *= 1.03;
    modules.add(x, w, kSquare, y);
  }
  // When
  const LeafErrors found = modules.judge();
  // Then
  EXPECT_EQ(found.judged, 12u);
  EXPECT_EQ(found.records.size(), 12u);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].kind, FindingKind::OwnError);
  EXPECT_EQ(found.findings[0].module, "layers.3");
  EXPECT_EQ(found.findings[0].module_type, "Linear");
  EXPECT_EQ(found.findings[0].confidence, Confidence::High);
  EXPECT_EQ(found.findings[0].mine_operator, kNone);
}

TEST(LeafModules, Conv1dHasItsWeightTurned) {
  Modules modules("Conv1D");
  const std::vector<double> x = values(kValues, 1);
  const std::vector<double> w = values(Modules::kWidth * Modules::kWidth, 2);
  std::vector<double> turned(w.size());
  for (size_t i = 0; i < Modules::kWidth; ++i)
    for (size_t j = 0; j < Modules::kWidth; ++j)
      turned[j * Modules::kWidth + i] = w[i * Modules::kWidth + j];
  modules.add(x, turned, kSquare, linear(x, w));
  const LeafErrors found = modules.judge();
  EXPECT_EQ(found.judged, 1u);
  EXPECT_TRUE(found.findings.empty());
}

TEST(LeafModules, TheEpsilonOfMostNormsIsTheOneThatIsRight) {
  // Given inputs so small that epsilon matters, and one norm that uses another
  Modules modules("LlamaRMSNorm");
  for (int i = 0; i < 7; ++i) {
    std::vector<double> x = values(kValues, i);
    for (double& value : x) value = round_to(value / 512, kBf16);
    const std::vector<double> w = values(Modules::kWidth, 20 + i);
    modules.add(x, w, {Modules::kWidth}, rms_norm(x, w, i == 5 ? 1e-6 : 1e-5));
  }
  // When
  const LeafErrors found = modules.judge();
  // Then
  EXPECT_EQ(found.judged, 7u);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "layers.5");
  EXPECT_EQ(found.findings[0].confidence, Confidence::Medium);
  // Two roundings leave room for faults: floors judge these outputs, too.
  EXPECT_TRUE(found.records.empty());
}

TEST(LeafModules, ANormThatNoUsualSettingExplainsIsNotJudged) {
  Modules modules("OddRMSNorm");
  for (int i = 0; i < 4; ++i) {
    const std::vector<double> x = values(kValues, i);
    const std::vector<double> w = values(Modules::kWidth, 20 + i);
    std::vector<double> y = rms_norm(x, w, 1e-6);
    for (double& value : y) value *= value;
    modules.add(x, w, {Modules::kWidth}, y);
  }
  const LeafErrors found = modules.judge();
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.judged, 0u);
  EXPECT_EQ(found.unjudged.at("OddRMSNorm: no usual setting explains its outputs"), 4u);
}

TEST(LeafModules, SiluHasNoWeight) {
  Modules modules("SiLU");
  for (int i = 0; i < 4; ++i) {
    const std::vector<double> x = values(kValues, i);
    std::vector<double> y;
    for (const double value : x) y.push_back(value / (1 + std::exp(-value)) * (i == 2 ? 1.02 : 1));
    modules.add(x, {}, {}, y);
  }
  const LeafErrors found = modules.judge();
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "layers.2");
}

TEST(LeafModules, WithoutWeightsNothingIsJudged) {
  Modules modules("Linear");
  modules.add(values(kValues, 1), {}, {}, values(kValues, 2));
  const LeafErrors found = modules.judge();
  EXPECT_EQ(found.judged, 0u);
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.unjudged.at("Linear: its weight was not captured"), 1u);
}

TEST(LeafModules, ClassesThatAreNotKnownAreLeftAlone) {
  Modules modules("Rotary");
  modules.add(values(kValues, 1), {}, {}, values(kValues, 2));
  const LeafErrors found = modules.judge();
  EXPECT_EQ(found.judged, 0u);
  EXPECT_TRUE(found.unjudged.empty());
}

}  // namespace
}  // namespace assay::locate
