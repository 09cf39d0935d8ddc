// SPDX-License-Identifier: Apache-2.0
// Calls out of damaged or hostile captures: errors, never a crash; and results that do not depend
// on threads.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "reference/aten/registry.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

Tensor random_tensor(DType dtype, const Dims& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> value(0, 1);
  Wide wide(shape);
  for (double& each : wide.values) each = value(random);
  return narrow(to_tensor(std::move(wide)).view, dtype).value();
}

std::vector<Overload> all_rows() {
  std::vector<Overload> rows;
  for (const auto family : {reduction_overloads(), selection_overloads(), product_overloads(),
                            softmax_overloads(), norm_overloads(), attention_overloads()})
    for (const Overloads& row : family)
      for (const std::string_view name : words_of(row.names))
        rows.push_back({"aten." + std::string(name), row.kind, row.evaluate, row.view});
  return rows;
}

/// Every name that an argument of these families has.
constexpr const char* kNames[] = {
    "self",
    "input",
    "mat1",
    "mat2",
    "batch1",
    "batch2",
    "vec",
    "vec1",
    "vec2",
    "mat",
    "tensor",
    "other",
    "weight",
    "bias",
    "query",
    "key",
    "value",
    "dim",
    "k",
    "eps",
    "stride",
    "normalized_shape",
    "padding",
    "dilation",
    "groups",
    "scale",
    "attn_mask",
    "attn_bias",
    "running_mean",
    "running_var",
    "offs",
    "scale_a",
    "scale_b",
    "scales",
    "x1",
    "x2",
    "boundaries",
    "sorted_sequence",
    "size",
    "n",
    "bins",
    "min",
    "max",
    "dims_self",
    "dims_other",
    "tensors",
    "equation",
    "num_groups",
    "group",
    "minlength",
    "transposed",
    "output_padding",
    "training",
    "keepdim",
    "dtype",
    "p",
    "ord",
    "correction",
    "sorter",
    "prepend",
    "append",
    "weights",
    "is_causal",
    "window_size_left",
    "return_inverse",
    "return_counts",
};

Argument random_argument(std::mt19937& random) {
  const auto draw = [&](int64_t count) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(count));
  };
  constexpr int64_t kIntegers[] = {0, 1, 2, -1, 3, -3, 7, INT64_MAX, INT64_MIN, int64_t{1} << 40};
  const auto integer = [&] { return kIntegers[draw(std::size(kIntegers))]; };
  switch (draw(12)) {
    case 0:
      return {integer()};
    case 1: {
      ArgumentList list;
      for (int64_t i = draw(4); i > 0; --i) list.push_back({integer()});
      return {list};
    }
    case 2:
      return {draw(2) == 0};
    case 3:
      return {draw(2) == 0 ? 1e-5 : std::numeric_limits<double>::quiet_NaN()};
    case 4:
      return {std::string("ij,jk->ik")};
    case 5:
      return {DTypeArgument{DType::Int8, "int8"}};
    case 6: {
      ArgumentList list;
      for (int64_t i = draw(3); i > 0; --i)
        list.push_back({random_tensor(DType::Float32, {2, 2}, static_cast<uint32_t>(i))});
      return {list};
    }
    default: {
      constexpr DType kTypes[] = {DType::Float32, DType::BFloat16, DType::Float64,     DType::Int64,
                                  DType::Bool,    DType::Int8,     DType::Float8E4M3FN};
      Dims shape;
      for (int64_t i = draw(5); i > 0; --i) shape.push_back(1 + draw(3));
      if (draw(8) == 0) shape.push_back(0);
      Tensor tensor =
          random_tensor(kTypes[draw(std::size(kTypes))], shape, static_cast<uint32_t>(random()));
      if (draw(4) == 0 && shape.size() > 1) {
        std::swap(tensor.view.shape[0], tensor.view.shape[1]);
        std::swap(tensor.view.strides[0], tensor.view.strides[1]);
      }
      if (draw(8) == 0 && !shape.empty()) tensor.view.strides[0] = 0;
      return {tensor};
    }
  }
}

TEST(ArithmeticCalls, WithAnyArgumentsGiveResultsOrErrors) {
  std::mt19937 random(7);
  size_t refused = 0, computed = 0;
  for (const Overload& row : all_rows()) {
    for (int round = 0; round < 50; ++round) {
      Call call;
      call.name = row.name;
      for (const char* name : kNames)
        if (random() % 4 != 0) call.arguments[name] = random_argument(random);
      const auto results = evaluate(call);
      if (!results) {
        ++refused;
        EXPECT_FALSE(results.error().message.empty()) << row.name;
        continue;
      }
      ++computed;
      for (const Tensor& result : *results) {
        if (!is_predictable(result) || result.view.element_count() > 1000) continue;
        EXPECT_TRUE(widen(result.view).has_value()) << row.name;
      }
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(computed, 200u);
}

TEST(ArithmeticCalls, HaveTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = random_tensor(DType::BFloat16, {2, 4, 33, 64}, 1);
  const Tensor w = random_tensor(DType::BFloat16, {700, 64}, 2);
  const std::vector<Call> calls = {
      {"aten.linear.default", {{"input", {x}}, {"weight", {w}}}},
      {"aten.scaled_dot_product_attention.default",
       {{"query", {x}}, {"key", {x}}, {"value", {x}}, {"is_causal", {true}}}},
      {"aten.conv2d.default",
       {{"input", {x}}, {"weight", {random_tensor(DType::Float32, {6, 4, 3, 3}, 3)}}}},
  };
  for (const Call& call : calls) {
    const Tensor alone = evaluate(call).value()[0];
    const Tensor together = evaluate(call, {.jobs = 3}).value()[0];
    ASSERT_EQ(alone.view.storage.size(), together.view.storage.size());
    EXPECT_EQ(std::memcmp(alone.view.storage.data(), together.view.storage.data(),
                          alone.view.storage.size()),
              0)
        << call.name;
  }
}

}  // namespace
}  // namespace assay::reference::aten
