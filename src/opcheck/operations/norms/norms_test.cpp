// SPDX-License-Identifier: Apache-2.0
// Every operation of this folder with tensors and parameters that make no sense: an error with a
// sentence, or goldens of the size that the inputs allow. (What the right numbers are:
// tests/cli/test_opcheck_norms.py.)
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "opcheck/registry.hpp"
#include "reference/wide.hpp"

namespace assay::opcheck {
namespace {

class InMemory : public Operands {
 public:
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  bool before = false;

  [[nodiscard]] size_t input_count() const override { return inputs.size(); }
  [[nodiscard]] size_t output_count() const override { return outputs.size(); }
  [[nodiscard]] bool has_input(size_t index) const override { return index < inputs.size(); }
  [[nodiscard]] bool has_output(size_t index) const override { return index < outputs.size(); }
  [[nodiscard]] Result<Tensor> input(size_t index) const override { return at(inputs, index); }
  [[nodiscard]] Result<Tensor> output(size_t index) const override { return at(outputs, index); }
  [[nodiscard]] Result<Tensor> input_after(size_t index) const override {
    return at(inputs, index);
  }
  [[nodiscard]] bool has_before() const override { return before; }
  [[nodiscard]] bool is_nz_input(size_t) const override { return false; }
  [[nodiscard]] bool is_nz_output(size_t) const override { return false; }

 private:
  static Result<Tensor> at(const std::vector<Tensor>& tensors, size_t index) {
    if (index >= tensors.size()) return fail(Errc::NotFound, "not in the dump");
    return tensors[index];
  }
};

class Chaos {
 public:
  explicit Chaos(unsigned seed) : generator_(seed), base_(any_shape()) {}

  int64_t below(int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(generator_);
  }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int64_t>(choices.size()))];
  }
  Tensor tensor() {
    Dims shape = base_;
    if (below(20) == 0) {  // no elements, and sizes whose product overflows
      shape = Dims{int64_t{1} << 40, int64_t{1} << 40, 0};
    } else if (below(3) == 0) {
      shape = any_shape();
    } else if (below(3) == 0 && !base_.empty()) {
      shape = Dims{base_[base_.size() - 1]};
    }
    const auto dtype = one_of({DType::Float16, DType::Float32, DType::BFloat16, DType::Int8,
                               DType::Int32, DType::Int64, DType::Float64, DType::Complex64});
    const int64_t count = element_count(shape).value_or(0);
    auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(count) *
                                                          info(dtype).element_bits / 8);
    for (std::byte& byte : *bytes) byte = static_cast<std::byte>(below(4) == 0 ? below(256) : 0);
    Result<TensorView> view = make_view(dtype, shape, ByteSpan(bytes->data(), bytes->size()));
    if (!view) return tensor();  // a reader refuses such a shape, too
    return {*view, bytes};
  }
  std::string parameters() {
    const auto number = [&] {
      return std::to_string(one_of<int64_t>({0, 1, 1, 2, 2, 2, 3, 4, -1, int64_t{1} << 62}));
    };
    const auto list = [&] {
      std::string result = "[";
      for (int64_t i = below(4); i > 0; --i) result += number() + (i > 1 ? "," : "");
      return result + "]";
    };
    std::string section = "{\"quantType\":" + one_of<std::string>({"0", "0", "2", "3"});
    if (below(3) == 0) section += ",\"dynamicQuantType\":" + number();
    if (below(3) == 0) section += ",\"quantInputScale\":" + number();
    if (below(3) == 0) section += ",\"rstd\":true";
    if (below(3) == 0) section += ",\"hasBias\":true";
    section += ",\"beginNormAxis\":" + number() + ",\"epsilon\":1e-5}";
    return "{\"layerType\":" + one_of<std::string>({"1", "1", "2", "3", "9"}) +
           ",\"normParam\":" + section + ",\"preNormParam\":" + section +
           ",\"postNormParam\":" + section + ",\"rotaryCoeff\":" + number() +
           ",\"headNum\":" + number() + ",\"qSeqLen\":" + list() + "}";
  }

 private:
  Dims any_shape() {
    Dims shape;
    for (int64_t i = below(5); i > 0; --i)
      shape.push_back(one_of<int64_t>({0, 1, 2, 2, 4, 4, 4, 8}));
    return shape;
  }

  std::mt19937 generator_;
  Dims base_;  // most tensors of a case have it
};

TEST(NormOperations, AnswerEveryNonsenseWithASentence) {
  int goldens = 0;
  for (const OperationRow& operation : norm_operators()) {
    for (unsigned seed = 0; seed < 3000; ++seed) {
      Chaos chaos(seed);
      InMemory operands;
      const int64_t wanted = operation.name == "NormRopeReshapeOperation" ? 7 : 1 + chaos.below(6);
      for (int64_t i = 0; i < wanted; ++i) operands.inputs.push_back(chaos.tensor());
      for (int64_t i = chaos.below(4); i > 0; --i) operands.outputs.push_back(chaos.tensor());
      operands.before = chaos.below(2) == 0;
      Case one;
      one.op_type = operation.name;
      one.parameters = Parameters::parse(chaos.parameters()).value();
      one.operands = &operands;
      const Result<Evaluation> evaluation = operation.evaluate(one);
      if (!evaluation) {
        ASSERT_GT(evaluation.error().message.size(), 10u) << operation.name << seed;
        continue;
      }
      ASSERT_FALSE(evaluation->outputs.empty());
      for (const Expectation& expectation : evaluation->outputs) {
        for (const Candidate& candidate : expectation.candidates) {
          const Result<Tensor> golden = candidate.golden();
          if (!golden) {
            ASSERT_GT(golden.error().message.size(), 10u) << operation.name << seed;
          } else {
            ++goldens;
          }
        }
      }
    }
  }
  EXPECT_GT(goldens, 200);  // some nonsense makes sense, so the goldens' own loops are reached
}

TEST(NormOperations, AreListedByNameWithAllThatAListNeeds) {
  std::string_view last;
  for (const OperationRow& operation : norm_operators()) {
    EXPECT_LT(last, operation.name);
    last = operation.name;
    EXPECT_TRUE(operation.name.ends_with("Operation"));
    EXPECT_FALSE(operation.variants.empty());
    EXPECT_FALSE(operation.outputs.empty());
    EXPECT_FALSE(operation.precision.empty());
    const OperationRow* found = find_operator(operation.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->evaluate, operation.evaluate);
  }
}

}  // namespace
}  // namespace assay::opcheck
