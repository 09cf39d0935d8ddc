// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "reference/products/all_reduce.hpp"
#include "reference/products/grouped_matmul.hpp"
#include "reference/products/strided_batch_matmul.hpp"

namespace assay::reference {
namespace {

template <typename T>
TensorView view_of(const std::vector<T>& values, DType dtype, const Dims& shape) {
  return make_view(dtype, shape, std::as_bytes(std::span(values))).value();
}
std::vector<double> list(const Wide& wide) { return {wide.values.begin(), wide.values.end()}; }

TEST(AllReduce, WrapsIntegersToTheirType) {
  const std::vector<int8_t> a = {100, -100, 3};
  const std::vector<int8_t> b = {100, -100, 5};
  const std::vector<TensorView> ranks = {view_of(a, DType::Int8, {3}),
                                         view_of(b, DType::Int8, {3})};
  const auto values = [&](RankReduction reduction) {
    const Whole result = whole(all_reduce(ranks, reduction).value().view).value();
    return std::vector<int64_t>(result.values.begin(), result.values.end());
  };
  EXPECT_EQ(values(RankReduction::Sum), (std::vector<int64_t>{200 - 256, -200 + 256, 8}));
  EXPECT_EQ(values(RankReduction::Max), (std::vector<int64_t>{100, -100, 5}));
  EXPECT_EQ(values(RankReduction::Product),
            (std::vector<int64_t>{16, 16, 15}));  // 10000 = 39 * 256 + 16
}

TEST(AllReduce, NamesTheRankThatDiffers) {
  const std::vector<float> a = {1, 2};
  const std::vector<TensorView> ranks = {view_of(a, DType::Float32, {2}),
                                         view_of(a, DType::Float32, {2, 1})};
  EXPECT_EQ(all_reduce(ranks, RankReduction::Sum).error().message,
            "rank 1 has float32 [2, 1], rank 0 float32 [2]");
  EXPECT_EQ(all_reduce({}, RankReduction::Sum).error().code, Errc::Invalid);
}

TEST(AllReduce, QuantisedAddsTheOffsetOfEveryRank) {
  const std::vector<int8_t> a = {1, 2};
  const std::vector<int8_t> b = {3, 4};
  const std::vector<TensorView> ranks = {view_of(a, DType::Int8, {2}),
                                         view_of(b, DType::Int8, {2})};
  const std::vector<float> scale = {10, 100};
  const std::vector<float> offset = {5};
  const Wide out = quantised_all_reduce(ranks, view_of(scale, DType::Float32, {2}),
                                        view_of(offset, DType::Float32, {1}))
                       .value();
  EXPECT_EQ(list(out), (std::vector<double>{(4 + 10) * 10, (6 + 10) * 100}));
}

/// One batch of two heads, side by side in every row.
StridedBatches two_heads() {
  return {.heads = 2,
          .m = {2},
          .n = {1},
          .k = {1},
          .lda = {2},
          .ldb = {2},
          .ldc = {2},
          .stride_a = {1},
          .stride_b = {1},
          .stride_c = {1}};
}

TEST(StridedBatchMatmul, InterleavesHeads) {
  const std::vector<float> a = {1, 2, 3, 4};  // head 0: 1, 3; head 1: 2, 4
  const std::vector<float> b = {10, 100};
  const Wide c = strided_batch_matmul(view_of(a, DType::Float32, {4}),
                                      view_of(b, DType::Float32, {2}), two_heads(), 5)
                     .value();
  EXPECT_EQ(list(c), (std::vector<double>{10, 200, 30, 400, 0}));
  EXPECT_EQ(written_elements(two_heads(), 4, 2, 5).value(), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(StridedBatchMatmul, StaysInsideItsOperands) {
  EXPECT_FALSE(written_elements(two_heads(), 3, 2, 4));
  EXPECT_FALSE(written_elements(two_heads(), 4, 1, 4));
  EXPECT_FALSE(written_elements(two_heads(), 4, 2, 3));
  StridedBatches batches = two_heads();
  batches.heads = int64_t{1} << 60;
  batches.stride_a = batches.stride_b = batches.stride_c = {0};
  EXPECT_FALSE(
      written_elements(batches, 4, 2, 4));  // all heads in one place: the bases say otherwise
  batches = two_heads();
  batches.lda = {std::numeric_limits<int64_t>::max()};
  EXPECT_FALSE(written_elements(batches, 4, 2, 4));
  batches = two_heads();
  batches.n = {1, 1};
  EXPECT_EQ(written_elements(batches, 4, 2, 4).error().message, "n has 2 values, m has 1");
}

TEST(GroupedMatmul, SendsRowsToTheirExperts) {
  const std::vector<float> x = {1, 2, 3};    // three tokens, k = 1
  const std::vector<float> w = {10, 100};    // two experts, n = 1
  const std::vector<int32_t> ends = {1, 3};  // one row, two rows
  const std::vector<int32_t> tokens = {2, 0, 1};
  const TensorView group_ends = view_of(ends, DType::Int32, {2});
  const TensorView order = view_of(tokens, DType::Int32, {3});
  ExpertRows routing{.group_ends = &group_ends, .tokens = &order};
  const TensorView rows = view_of(x, DType::Float32, {3, 1});
  const TensorView experts = view_of(w, DType::Float32, {2, 1, 1});
  EXPECT_EQ(list(grouped_matmul_with_routing(rows, experts, routing, nullptr, nullptr).value()),
            (std::vector<double>{30, 100, 200}));
  routing.down = true;
  routing.token_count = 3;
  EXPECT_EQ(list(grouped_matmul_with_routing(rows, experts, routing, nullptr, nullptr).value()),
            (std::vector<double>{200, 300, 10}));
}

TEST(GroupedMatmul, AddsGroupsOfTheInnerDimension) {
  const std::vector<float> x = {1, 2, 3};     // [1, 3]
  const std::vector<float> w = {1, 10, 100};  // [3, 1]
  const std::vector<int64_t> ends = {2, 3};
  const std::vector<float> accum = {0.5F, 0.25F};
  const Wide out =
      grouped_matmul_add(view_of(x, DType::Float32, {1, 3}), view_of(w, DType::Float32, {3, 1}),
                         view_of(ends, DType::Int64, {2}), view_of(accum, DType::Float32, {2, 1}),
                         false, 1)
          .value();
  EXPECT_EQ(list(out), (std::vector<double>{21.5, 300.25}));
}

}  // namespace
}  // namespace assay::reference
