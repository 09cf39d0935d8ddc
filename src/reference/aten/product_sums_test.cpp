// SPDX-License-Identifier: Apache-2.0
#include "reference/aten/product_sums.hpp"

#include <gtest/gtest.h>

#include <random>

#include "reference/aten/magnitudes.hpp"

namespace assay::reference::aten {
namespace {

class Operands {
 public:
  Tensor tensor(const Dims& shape) {
    std::normal_distribution<double> normal;
    Wide wide(shape);
    for (double& value : wide.values) value = normal(random_);
    return narrow(to_tensor(std::move(wide)).view, DType::Float32).value();
  }

 private:
  std::mt19937 random_{7};
};

/// Sums of elements that were computed one by one.
void expect_sums_of_elements(const Call& call) {
  const std::vector<Tensor> whole = evaluate(call).value();
  const Wide y = widen(whole[0].view).value();
  const Wide c = magnitudes(call).value().c;
  const Result<ProductSums> found = product_sums(call);
  ASSERT_TRUE(found) << found.error().describe();
  const int64_t n = whole[0].view.shape[whole[0].view.shape.size() - 1];
  const int64_t rows = y.size() / n;
  const int64_t blocks = column_blocks(n);
  ASSERT_EQ(found->columns, n);
  ASSERT_EQ(found->sums.shape, (Dims{rows, kColumnDraws, blocks}));
  ASSERT_EQ(found->sizes.shape, (Dims{rows, blocks}));
  Wide sums(found->sums.shape, 0.0);
  Wide sizes(found->sizes.shape, 0.0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t block = j / kColumnBlock;
      for (int draw = 0; draw < kColumnDraws; ++draw)
        sums.data()[(i * kColumnDraws + draw) * blocks + block] +=
            column_factor(draw, j) * y.data()[i * n + j];
      sizes.data()[i * blocks + block] += c.data()[i * n + j];
    }
  }
  for (size_t i = 0; i < sums.values.size(); ++i)
    ASSERT_NEAR(found->sums.values[i], sums.values[i], 1e-10);
  for (size_t i = 0; i < sizes.values.size(); ++i)
    ASSERT_NEAR(found->sizes.values[i], sizes.values[i], 1e-9);
}

TEST(ProductSums, AreThoseOfTheElements) {
  Operands made;
  const Tensor x = made.tensor({9, 70});
  const Tensor w = made.tensor({70, 130});
  const Tensor turned = made.tensor({130, 70});
  const Tensor bias = made.tensor({130});
  const auto call = [](std::string name) {
    Call made_call;
    made_call.name = std::move(name);
    return made_call;
  };
  Call mm = call("aten.mm.default");
  mm.arguments["self"] = Argument{x};
  mm.arguments["mat2"] = Argument{w};
  expect_sums_of_elements(mm);

  Call addmm = call("aten.addmm.default");
  addmm.arguments["self"] = Argument{bias};
  addmm.arguments["mat1"] = Argument{x};
  addmm.arguments["mat2"] = Argument{w};
  addmm.arguments["alpha"] = Argument{-0.5};
  addmm.arguments["beta"] = Argument{3.0};
  expect_sums_of_elements(addmm);

  Call linear = call("aten.linear.default");
  linear.arguments["input"] = Argument{made.tensor({2, 5, 70})};
  linear.arguments["weight"] = Argument{turned};
  linear.arguments["bias"] = Argument{bias};
  expect_sums_of_elements(linear);
}

TEST(ProductSums, OfBatchesAreNotKnown) {
  Operands made;
  Call bmm;
  bmm.name = "aten.bmm.default";
  bmm.arguments["self"] = Argument{made.tensor({2, 3, 4})};
  bmm.arguments["mat2"] = Argument{made.tensor({2, 4, 5})};
  EXPECT_EQ(product_sums(bmm).error().code, Errc::Unsupported);
}

}  // namespace
}  // namespace assay::reference::aten
