// SPDX-License-Identifier: Apache-2.0
#include "tensor/layouts.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "tensor/convert.hpp"

namespace assay {
namespace {

/// 0, 1, 2 ... as int32.
Tensor counted(const Dims& shape) {
  auto values = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(*element_count(shape)));
  std::iota(values->begin(), values->end(), 0);
  return {make_view(DType::Int32, shape, std::as_bytes(std::span(*values))).value(), values};
}

std::vector<double> elements_of(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.view.element_count()));
  read_values(tensor.view, 0, tensor.view.element_count(), values);
  return values;
}

Tensor untiled(std::string_view layout, const Tensor& tiles, std::string_view order,
               const Dims& plain) {
  return untile(tiles.view, find_tiling(layout, tiles.view.shape, order, plain).value()).value();
}

TEST(Untile, PutsTheDrawnMatrixTogether) {
  // [C1 = 2, R1 = 2, R0 = 2, C0 = 4]: element (r, c) is number ((c / 4 * 2 + r / 2) * 2 + r % 2) *
  // 4 + c % 4.
  const Tensor plain = untiled("*CRrc", counted({2, 2, 2, 4}), "*RC", {3, 5});
  EXPECT_EQ(plain.view.shape, (Dims{3, 5}));
  EXPECT_EQ(elements_of(plain),
            (std::vector<double>{0, 1, 2, 3, 16, 4, 5, 6, 7, 20, 8, 9, 10, 11, 24}));
}

TEST(Untile, KeepsAxesInFrontAndSplitsThemAsThePlainShapeDoes) {
  // Six matrices [1, 2] in tiles of 1 x 2 are the numbers as they stand.
  const Tensor plain = untiled("*CRc", counted({6, 1, 1, 2}), "*RC", {2, 3, 1, 2});
  EXPECT_EQ(plain.view.shape, (Dims{2, 3, 1, 2}));
  EXPECT_EQ(elements_of(plain), elements_of(counted({12})));
  EXPECT_FALSE(find_tiling("*CRc", {6, 1, 1, 2}, "*RC", {5, 1, 2}));
}

TEST(Untile, FollowsTheFormulaOfEachChannelLayout) {
  constexpr int64_t N = 3, C = 5, H = 2, W = 3, c0 = 4, C1 = 2;
  const auto expect = [&](std::string_view layout, const Dims& stored, auto place) {
    const std::vector<double> values =
        elements_of(untiled(layout, counted(stored), "NCHW", {N, C, H, W}));
    size_t i = 0;
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t c = 0; c < C; ++c) {
        for (int64_t h = 0; h < H; ++h) {
          for (int64_t w = 0; w < W; ++w)
            ASSERT_EQ(values[i++], static_cast<double>(place(n, c, h, w))) << layout;
        }
      }
    }
  };
  expect("NCHWc", {N, C1, H, W, c0}, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    return (((n * C1 + c / c0) * H + h) * W + w) * c0 + c % c0;
  });
  expect("CHWNc", {C1, H, W, N, c0}, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    return (((c / c0 * H + h) * W + w) * N + n) * c0 + c % c0;
  });
  // FRACTAL_Z: [C1 H W, N1, N0, C0] with tiles of 2 x 4.
  expect("(CHW)Nnc", {C1 * H * W, 2, 2, c0}, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    return (((c / c0 * H + h) * W + w) * 4 + n) * c0 + c % c0;
  });
}

TEST(FindTiling, RefusesShapesThatDoNotFit) {
  EXPECT_FALSE(
      find_tiling("NCHWc", {1, 1, 2, 2, 4}, "NCHW", {1, 5, 2, 2}));        // 4 channels are stored
  EXPECT_FALSE(find_tiling("NCHWc", {1, 1, 2, 2}, "NCHW", {1, 4, 2, 2}));  // an axis is missing
  EXPECT_FALSE(find_tiling("NCHWc", {1, 1, 1, 2, 2, 4}, "NCHW", {1, 4, 2, 2}));
  EXPECT_FALSE(
      find_tiling("(CHW)Nnc", {7, 1, 2, 4}, "NCHW", {2, 4, 2, 3}));  // 7 is no multiple of 6
  EXPECT_FALSE(find_tiling("(CHW)Nnc", {6, 1, 2, 4}, "NCHW", {2, 4, 0, 3}));
  EXPECT_FALSE(find_tiling("*CRc", {1, 1, 4}, "*RC", {4}));
  EXPECT_FALSE(find_tiling("*CRc", {INT64_MAX, 4, 4}, "*RC", {4, 4}));
}

TEST(FindTiling, TellsWhetherATileIsLeftOver) {
  EXPECT_TRUE(find_tiling("*CRc", {2, 3, 4}, "*RC", {3, 5})->uses_every_tile());
  EXPECT_FALSE(find_tiling("*CRc", {2, 3, 4}, "*RC", {3, 4})->uses_every_tile());
  EXPECT_FALSE(find_tiling("*CRc", {2, 3, 4}, "*RC", {2, 5})->uses_every_tile());
}

TEST(WholeShape, CountsTheLastTileAsFull) {
  EXPECT_EQ(whole_shape("*CRrc", {7, 2, 3, 16, 8}, "*RC"), (Dims{7, 48, 16}));
  EXPECT_EQ(whole_shape("NDCHWc", {2, 3, 4, 5, 6, 16}, "NCDHW"), (Dims{2, 64, 3, 5, 6}));
  EXPECT_FALSE(whole_shape("(CHW)Nnc", {6, 1, 16, 16}, "NCHW"));
  EXPECT_FALSE(whole_shape("NCHWc", {1, INT64_MAX, 1, 1, 16}, "NCHW"));
}

TEST(FractalNzShape, FillsUpRowsAndColumns) {
  EXPECT_EQ(fractal_nz_shape({2, 17, 20}, 16), (Dims{2, 2, 32, 16}));
  EXPECT_EQ(fractal_nz_shape({0, 5}, 16), (Dims{1, 0, 16}));
  EXPECT_FALSE(fractal_nz_shape({17}, 16));
  EXPECT_FALSE(fractal_nz_shape({INT64_MAX, 16}, 16));
}

TEST(FractalColumns, AreThirtyTwoBytes) {
  EXPECT_EQ(fractal_columns(DType::Int8), 32);
  EXPECT_EQ(fractal_columns(DType::Float16), 16);
  EXPECT_EQ(fractal_columns(DType::Complex128), 2);
  EXPECT_EQ(fractal_columns(DType::Int4), 0);
}

RC_GTEST_PROP(Tile, IsUndoneByUntile, ()) {
  Dims shape{*rc::gen::inRange<int64_t>(0, 3), *rc::gen::inRange<int64_t>(0, 40),
             *rc::gen::inRange<int64_t>(0, 40)};
  Tensor plain = counted(shape);
  if (*rc::gen::arbitrary<bool>()) {  // columns first
    std::swap(plain.view.shape[1], plain.view.shape[2]);
    std::swap(plain.view.strides[1], plain.view.strides[2]);
  }
  const Dims stored = fractal_nz_shape(plain.view.shape, *rc::gen::inRange<int64_t>(1, 33)).value();
  const Tiling tiling = find_tiling("*CRc", stored, "*RC", plain.view.shape).value();
  const Tensor tiles = tile(plain.view, stored, tiling).value();
  RC_ASSERT(tiles.view.shape == stored);
  RC_ASSERT(elements_of(untile(tiles.view, tiling).value()) == elements_of(plain));
}

TEST(Tile, RefusesPackedTypes) {
  const std::vector<std::byte> bytes(8);
  const TensorView packed = make_view(DType::Int4, {4, 4}, bytes).value();
  const Tiling tiling = find_tiling("*CRc", {1, 16, 16}, "*RC", {4, 4}).value();
  EXPECT_EQ(tile(packed, {1, 16, 16}, tiling).error().code, Errc::Unsupported);
}

}  // namespace
}  // namespace assay
