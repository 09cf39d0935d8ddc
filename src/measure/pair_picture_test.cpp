// SPDX-License-Identifier: Apache-2.0
#include "measure/pair_picture.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <span>

#include "measure/test_random_views.hpp"
#include "tensor/convert.hpp"

namespace assay::measure {
namespace {

template <typename T>
TensorView view_of(DType dtype, const std::vector<T>& values, const Dims& shape) {
  return *make_view(dtype, shape, std::as_bytes(std::span(values)));
}
TensorView floats(const std::vector<float>& values, const Dims& shape) {
  return view_of(DType::Float32, values, shape);
}

// ---- The plain twin -----------------------------------------------------------------------------

/// Values of both sides in C order; a real side against a complex one gets imaginary parts of 0.
struct PlainPair {
  std::vector<double> golden;
  std::vector<double> mine;
  int64_t parts = 1;

  PlainPair(const TensorView& golden_view, const TensorView& mine_view) {
    golden = values_of(golden_view);
    mine = values_of(mine_view);
    if (is_complex(golden_view.dtype) && !is_complex(mine_view.dtype)) mine = padded(mine);
    if (!is_complex(golden_view.dtype) && is_complex(mine_view.dtype)) golden = padded(golden);
    parts = static_cast<int64_t>(golden.size()) / golden_view.element_count();
  }
  static std::vector<double> values_of(const TensorView& view) {
    std::vector<double> values(
        static_cast<size_t>(view.element_count() * values_per_element(view.dtype)));
    read_values(view, 0, view.element_count(), values);
    return values;
  }
  static std::vector<double> padded(const std::vector<double>& real) {
    std::vector<double> out;
    for (const double value : real) out.insert(out.end(), {value, 0});
    return out;
  }
  /// Infinite where the sides are not finite in the same way.
  [[nodiscard]] double error(size_t i) const {
    const double g = golden[i];
    const double m = mine[i];
    if (std::isfinite(g) && std::isfinite(m)) return std::fabs(m - g);
    return g == m || (std::isnan(g) && std::isnan(m)) ? 0 : HUGE_VAL;
  }
};

Dims index_of(const Dims& shape, int64_t element) {
  Dims index = shape;
  for (size_t k = shape.size(); k-- > 0;) {
    index[k] = element % shape[k];
    element /= shape[k];
  }
  return index;
}

/// By the rule of docs/formats/page.md: a bin is ceil(size / bins) wide.
PooledErrors pool_plainly(const PlainPair& pair, const Dims& shape, const CellGrid& grid) {
  PooledErrors out(grid);
  out.largest.assign(static_cast<size_t>(grid.cell_count()), 0);
  out.squares.assign(out.largest.size(), 0);
  for (size_t i = 0; i < pair.golden.size(); ++i) {
    const Dims index = index_of(shape, static_cast<int64_t>(i) / pair.parts);
    int64_t cell = 0;
    for (size_t k = 0; k < grid.axes.size() && !shape.empty(); ++k) {
      const auto axis = static_cast<size_t>(grid.axes[k]);
      const int64_t width = (shape[axis] + grid.bins[k] - 1) / grid.bins[k];
      cell = cell * grid.bins[k] + index[axis] / width;
    }
    const double error = pair.error(i);
    auto& largest = out.largest[static_cast<size_t>(cell)];
    largest = std::max(largest, error);
    out.squares[static_cast<size_t>(cell)] += error * error;
  }
  return out;
}

bool is_near(double a, double b) {
  return a == b || std::fabs(a - b) <= 1e-12 * std::max(std::fabs(a), std::fabs(b));
}

PooledErrors pool(const TensorView& golden, const TensorView& mine, int jobs = 1, bool kl = false) {
  PooledErrors pooled;
  (void)compare_tensors(golden, mine, {.kl_divergence = kl, .jobs = jobs, .pooled = &pooled});
  return pooled;
}

void assert_pooled(const TensorView& golden, const TensorView& mine) {
  const PooledErrors fast = pool(golden, mine);
  const PooledErrors plain = pool_plainly(PlainPair(golden, mine), golden.shape, fast.grid);
  if (fast.largest.empty()) {
    RC_ASSERT(std::ranges::all_of(plain.largest, [](double error) { return error == 0; }));
    return;
  }
  RC_ASSERT(fast.largest == plain.largest);
  for (size_t i = 0; i < plain.squares.size(); ++i)
    RC_ASSERT(is_near(fast.squares[i], plain.squares[i]));
}

RC_GTEST_PROP(PooledErrors, AreThoseOfThePlainLoopOnAnyBits, ()) {
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  const auto any_type = [] {  // those of 64 bits lose digits in the plain loop
    return *rc::gen::suchThat(
        rc::gen::map(rc::gen::inRange(0, kDTypeCount), [](int i) { return static_cast<DType>(i); }),
        [](DType type) { return type != DType::Int64 && type != DType::UInt64; });
  };
  const DType golden_type = any_type();
  const DType mine_type = *rc::gen::arbitrary<bool>() ? golden_type : any_type();
  const Dims shape = random_shape();
  const Side golden = random_bytes(golden_type, shape, random);
  const Side mine = random_bytes(mine_type, shape, random);
  if (golden.view.element_count() * values_per_element(golden_type) !=
          mine.view.element_count() * values_per_element(mine_type) &&
      is_complex(golden_type) == is_complex(mine_type))
    return;
  if (!picture_of(golden.view, mine.view)) return;  // packed against plain values
  assert_pooled(golden.view, mine.view);
}

TEST(PooledErrors, AreThoseOfThePlainLoopOnEveryKindOfCut) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  // Whole and broken bins, columns joined before bins, runs of rows that are longer than a block.
  for (const Dims& shape :
       {Dims{7}, Dims{5000}, Dims{70000}, Dims{64, 64}, Dims{70, 130}, Dims{3, 5000}, Dims{2000, 9},
        Dims{150, 448}, Dims{1000, 1}, Dims{1, 300, 1, 257, 1}, Dims{2, 3, 5000}, Dims{30, 40, 50},
        Dims{6, 7, 8, 9, 10}, Dims{200, 70, 5}, Dims{2, 70000},
        Dims{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}}) {
    const auto count = static_cast<size_t>(*element_count(shape));
    std::vector<float> golden(count), mine(count);
    for (size_t i = 0; i < count; ++i) {
      golden[i] = normal(random);
      mine[i] = random() % 4 == 0 ? golden[i] : golden[i] + 1e-3f * normal(random);
    }
    mine[count / 2] = NAN;
    const TensorView golden_view = floats(golden, shape);
    const TensorView mine_view = floats(mine, shape);
    const PooledErrors fast = pool(golden_view, mine_view);
    const PooledErrors plain = pool_plainly(PlainPair(golden_view, mine_view), shape, fast.grid);
    EXPECT_EQ(fast.largest, plain.largest) << shape_text(shape);
    for (size_t i = 0; i < plain.squares.size(); ++i)
      ASSERT_TRUE(is_near(fast.squares[i], plain.squares[i])) << shape_text(shape) << " cell " << i;
    const PooledErrors threads = pool(golden_view, mine_view, 3);
    EXPECT_EQ(threads.largest, fast.largest);
    EXPECT_EQ(threads.squares, fast.squares) << shape_text(shape);
  }
}

TEST(PooledErrors, DoNotChangeTheMetrics) {
  std::vector<float> golden(100000, 1), mine(golden);
  for (size_t i = 0; i < golden.size(); i += 3) mine[i] = static_cast<float>(i % 100);
  mine[5] = NAN;
  const TensorView golden_view = floats(golden, {100, 1000});
  const TensorView mine_view = floats(mine, {100, 1000});
  PooledErrors pooled;
  const PairMetrics with = compare_tensors(golden_view, mine_view, {.pooled = &pooled});
  const PairMetrics without = compare_tensors(golden_view, mine_view);
  EXPECT_EQ(with.kl_divergence, without.kl_divergence);
  EXPECT_EQ(with.relative_euclidean_distance, without.relative_euclidean_distance);
  EXPECT_EQ(with.nan_only_in_mine, 1);
  EXPECT_EQ(pooled.squares.size(), 50u * 77u);  // 100 rows in twos, 1000 columns in thirteens
}

// ---- The grid -----------------------------------------------------------------------------------

TEST(MakeGrid, CutsLongAxesAndKeepsShortOnes) {
  using Sizes = std::vector<int64_t>;
  const auto bins = [](const Dims& shape) { return make_grid(shape, 1).bins; };
  EXPECT_EQ(bins({1, 4, 64}), (Sizes{4, 64}));
  EXPECT_EQ(make_grid({1, 4, 64}, 1).axes, (std::vector<int>{1, 2}));
  EXPECT_EQ(bins({4096, 4096}), (Sizes{64, 64}));
  EXPECT_EQ(bins({4096}), (Sizes{4096}));
  EXPECT_EQ(bins({100000}), (Sizes{4000}));  // 25 each
  EXPECT_EQ(bins({4, 4096}), (Sizes{4, 1024}));
  EXPECT_EQ(bins({65, 64}), (Sizes{33, 64}));
  EXPECT_EQ(bins({2, 4096, 4096}), (Sizes{2, 64, 64}));
  EXPECT_EQ(bins({}), (Sizes{1}));
  EXPECT_EQ(bins({1, 1}), (Sizes{1}));
  EXPECT_EQ(make_grid({1, 1}, 1).axes, (std::vector<int>{1}));
}

RC_GTEST_PROP(MakeGrid, HasBinsThatTileEveryAxis, ()) {
  Dims shape;
  const int rank = *rc::gen::inRange(0, 20);
  for (int i = 0; i < rank; ++i) shape.push_back(*rc::gen::inRange<int64_t>(1, 100000));
  const CellGrid grid = make_grid(shape, 1);
  RC_ASSERT(grid.cell_count() <= (grid.axes.size() > 2 ? kMaxDeepCells : kMaxCells));
  for (size_t k = 0; k < grid.axes.size(); ++k) {
    RC_ASSERT(grid.widths[k] == (grid.sizes[k] + grid.bins[k] - 1) / grid.bins[k]);
    RC_ASSERT((grid.bins[k] - 1) * grid.widths[k] < grid.sizes[k]);
  }
}

// ---- Codes --------------------------------------------------------------------------------------

RC_GTEST_PROP(ErrorScale, IsAnEighthOfAnOctaveFine, ()) {
  const double largest = std::exp2(*rc::gen::inRange(-8000, 8000) / 8.0);
  const double error = largest * std::exp2(-*rc::gen::inRange(0, 4000) / 100.0);
  const ErrorScale scale = ErrorScale::up_to(largest);
  RC_ASSERT(scale.code_of(largest) == 254);
  const uint8_t code = scale.code_of(error);
  const double octaves = std::log2(error / scale.error_of(code));
  RC_ASSERT((code == 1 ? octaves <= 1 / 16.0 + 1e-9 : std::fabs(octaves) <= 1 / 16.0 + 1e-9));
}

TEST(ErrorScale, HasCodesForNothingAndForInfinity) {
  const ErrorScale scale = ErrorScale::up_to(0.25);
  EXPECT_EQ(scale.code_of(0), 0);
  EXPECT_EQ(scale.code_of(HUGE_VAL), 255);
  EXPECT_EQ(scale.code_of(0x1p-1070), 1);
  EXPECT_EQ(ErrorScale::up_to(0x1p-1074).code_of(0x1p-1074), 254);
  EXPECT_DOUBLE_EQ(scale.error_of(254), 0.25);
  EXPECT_DOUBLE_EQ(scale.error_of(246), 0.125);
}

// ---- Pictures -----------------------------------------------------------------------------------

TEST(PictureOf, HasTheRootMeanSquareOfEachCell) {
  // One row, 8192 columns in cells of two: errors 3 and 4 make sqrt(12.5), 0 and 0 nothing.
  std::vector<float> golden(8192, 0), mine(golden);
  mine[0] = 3;
  mine[1] = -4;
  const auto picture = picture_of(floats(golden, {8192}), floats(mine, {8192}));
  ASSERT_TRUE(picture);
  EXPECT_NEAR(picture->scale.error_of(picture->largest[0]), 4, 1e-12);
  EXPECT_NEAR(std::log2(picture->scale.error_of(picture->rms[0]) / std::sqrt(12.5)), 0, 1 / 16.0);
  EXPECT_EQ(picture->rms[1], 0);
}

TEST(PictureOf, KeepsTheMeanOfErrorsWhoseSquaresLeaveTheRangeOfADouble) {
  std::vector<double> golden(4, 0), mine(4, 1e-250);
  const auto small =
      picture_of(view_of(DType::Float64, golden, {4}), view_of(DType::Float64, mine, {4}));
  EXPECT_EQ(small->rms, std::vector<uint8_t>(4, 254));
  mine.assign(4, 1e250);
  const auto large =
      picture_of(view_of(DType::Float64, golden, {4}), view_of(DType::Float64, mine, {4}));
  EXPECT_EQ(large->rms, std::vector<uint8_t>(4, 254));
}

RC_GTEST_PROP(PictureOf, HasTheWorstElementsAndTheHistogramsOfThePlainLoop, ()) {
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  std::normal_distribution<float> normal;
  Dims shape = random_shape();
  if (shape.size() == 2 && shape[1] >= 2000) shape[0] = 1;
  const auto count = static_cast<size_t>(*element_count(shape));
  RC_PRE(count <= 5000u);
  std::vector<float> golden(count), mine(count);
  for (size_t i = 0; i < count; ++i) {
    golden[i] = normal(random);
    mine[i] = random() % 2 == 0 ? golden[i] : golden[i] * (1 + 0x1p-20f * normal(random));
    if (random() % 500 == 0) mine[i] = std::vector<float>{NAN, INFINITY}[random() % 2];
  }
  const auto picture = picture_of(floats(golden, shape), floats(mine, shape));
  RC_ASSERT(picture.has_value());
  const PlainPair plain(floats(golden, shape), floats(mine, shape));
  std::vector<double> errors;
  for (size_t i = 0; i < count; ++i)
    if (plain.error(i) > 0) errors.push_back(plain.error(i));
  std::ranges::sort(errors, std::greater<>());
  errors.resize(std::min<size_t>(errors.size(), 8));
  RC_ASSERT(picture->worst.size() == errors.size());
  for (size_t i = 0; i < errors.size(); ++i) {
    const WorstElement& worst = picture->worst[i];
    size_t flat = 0;
    for (size_t k = 0; k < shape.size(); ++k)
      flat = flat * static_cast<size_t>(shape[k]) + static_cast<size_t>(worst.index[k]);
    RC_ASSERT(plain.error(flat) == errors[i]);
    RC_ASSERT(worst.golden == plain.golden[flat]);
    RC_ASSERT((std::isinf(errors[i]) ? !std::isfinite(worst.error) : worst.error == errors[i]));
  }
  RC_PRE(count <= 4096u);  // all values, no sample
  RC_ASSERT(picture->sampled == static_cast<int64_t>(count));
  for (const auto& [side, histogram] :
       {std::pair(&plain.golden, &picture->golden), std::pair(&plain.mine, &picture->mine)}) {
    RC_ASSERT(histogram->edges.size() == histogram->counts.size() + 1);
    for (size_t bin = 0; bin < histogram->counts.size(); ++bin) {
      // Powers of two belong to the bin that is farther from 0.
      const double low = histogram->edges[bin];
      const double high = histogram->edges[bin + 1];
      const auto inside = [&](double v) {
        if (low < 0 && high > 0) return v > low && v < high;
        return low < 0 ? v > low && v <= high : v >= low && v < high;
      };
      RC_ASSERT(histogram->counts[bin] == std::ranges::count_if(*side, inside));
    }
  }
  int64_t equal = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(mine[i])) continue;
    const double unit = std::nextafter(std::fabs(golden[i]), INFINITY) - std::fabs(golden[i]);
    equal += plain.error(i) / unit < 0.5 ? 1 : 0;
  }
  RC_ASSERT(picture->ulp->counts[0] == equal);
}

TEST(PictureOf, CountsUnitsOfTheCoarserType) {
  // At 1.0 a unit of bfloat16 is 2^-7, at 4.0 2^-5.
  const std::vector<float> golden = {1, 1, 1, 1, 4, 1};
  const std::vector<float> errors = {0, 0x1p-7f, 3 * 0x1p-7f, 0x1p-2f, 0x1p-5f, 8};
  std::vector<uint16_t> mine;
  for (size_t i = 0; i < golden.size(); ++i)
    mine.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(golden[i] + errors[i]) >> 16));
  const auto picture = picture_of(floats(golden, {6}), view_of(DType::BFloat16, mine, {6}));
  ASSERT_TRUE(picture && picture->ulp);
  EXPECT_EQ(picture->ulp->type, "bfloat16");
  // 0 | 1 | 2-3 | 4-7 | 8-15 | 16-31 | 32-63 | 64-127 | 128-255 | beyond
  EXPECT_EQ(picture->ulp->edges, (std::vector<double>{0, 1, 2, 4, 8, 16, 32, 64, 128, 256}));
  EXPECT_EQ(picture->ulp->counts, (std::vector<int64_t>{1, 2, 1, 0, 0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(picture->worst[0].ulp, 1024);  // 8 / 2^-7
}

TEST(PictureOf, CountsWholeNumbersByOne) {
  const std::vector<int64_t> golden = {int64_t{1} << 60, 5, 7};
  const std::vector<int64_t> mine = {(int64_t{1} << 60) + 3, 5, 6};
  const auto picture =
      picture_of(view_of(DType::Int64, golden, {3}), view_of(DType::Int64, mine, {3}));
  ASSERT_TRUE(picture && picture->ulp);
  EXPECT_EQ(picture->ulp->counts[0], 1);
  EXPECT_EQ(picture->ulp->counts[1], 1);
  EXPECT_EQ(picture->ulp->counts[2], 1);  // 3, which two doubles would not show
  EXPECT_EQ(picture->worst[0].error, 3);
}

TEST(PictureOf, SamplesLargeTensorsEvenly) {
  // Column 3 of 256 differs by far, the others not at all.
  constexpr size_t kRows = 8192;
  std::vector<float> golden(kRows * 256, 1), mine(golden);
  for (size_t row = 0; row < kRows; ++row) mine[row * 256 + 3] = 2;
  const Dims shape = {kRows, 256};
  const auto picture = picture_of(floats(golden, shape), floats(mine, shape));
  ASSERT_TRUE(picture && picture->ulp);
  EXPECT_EQ(picture->sampled, 65536);
  EXPECT_EQ(std::accumulate(picture->ulp->counts.begin(), picture->ulp->counts.end(), int64_t{0}),
            65536);
  // 65536 / 256 = 256 values of that column are expected.
  EXPECT_NEAR(static_cast<double>(65536 - picture->ulp->counts[0]), 256, 64);
  EXPECT_EQ(picture->shape_of_error, "all in channel 3 of 256");
}

TEST(PictureOf, ShowsNeighboursOnTheLastAxis) {
  std::vector<float> golden(20), mine(20);
  std::iota(golden.begin(), golden.end(), 0.0f);
  mine = golden;
  mine[11] = 0;  // [1, 1] of [2, 10]
  const auto picture = picture_of(floats(golden, {2, 10, 1}), floats(mine, {2, 10, 1}));
  ASSERT_EQ(picture->worst.size(), 1u);
  EXPECT_EQ(picture->worst[0].index, (Dims{1, 1, 0}));
  EXPECT_EQ(picture->worst[0].around_first, 0);
  EXPECT_EQ(picture->worst[0].golden_around, (std::vector<double>{10, 11, 12, 13, 14}));
  EXPECT_EQ(picture->worst[0].mine_around, (std::vector<double>{10, 0, 12, 13, 14}));
}

TEST(PictureOf, TellsWhichPartOfAnElementDiffers) {
  const std::vector<float> golden = {1, 2, 3, 4};  // 1 + 2i, 3 + 4i
  const std::vector<float> mine = {1, 2, 3, 9};
  const auto picture =
      picture_of(view_of(DType::Complex64, golden, {2}), view_of(DType::Complex64, mine, {2}));
  EXPECT_EQ(picture->values, 4);
  EXPECT_EQ(picture->worst[0].index, (Dims{1}));
  EXPECT_EQ(picture->worst[0].part, 1);
  EXPECT_EQ(picture->worst[0].golden_around, (std::vector<double>{2, 4}));
  const std::vector<uint8_t> packed = {0x21, 0x43}, other = {0x21, 0x53};  // 4-bit codes
  const auto codes =
      picture_of(view_of(DType::QUInt4x2, packed, {2}), view_of(DType::QUInt4x2, other, {2}));
  EXPECT_EQ(codes->worst[0].index, (Dims{1}));
  EXPECT_EQ(codes->worst[0].part, 1);
  EXPECT_EQ(codes->worst[0].mine, 5);
}

TEST(PictureOf, HasNothingToShowOfEqualTensors) {
  const std::vector<float> values = {1, NAN, INFINITY, 0};
  const auto picture = picture_of(floats(values, {2, 2}), floats(values, {2, 2}));
  ASSERT_TRUE(picture);
  EXPECT_EQ(picture->largest, std::vector<uint8_t>(4, 0));
  EXPECT_TRUE(picture->worst.empty());
  EXPECT_EQ(picture->shape_of_error, "");
  EXPECT_EQ(picture->golden.nan, 1);
}

TEST(PictureOf, TakesScalarsAndRefusesWhatIsNoPair) {
  const auto scalar = picture_of(floats({1}, {}), floats({3}, {}));
  ASSERT_TRUE(scalar);
  EXPECT_EQ(scalar->largest, std::vector<uint8_t>{254});
  EXPECT_EQ(scalar->worst[0].index, Dims());
  EXPECT_EQ(scalar->worst[0].golden_around, std::vector<double>{1});
  EXPECT_FALSE(picture_of(floats({}, {0, 4}), floats({}, {0, 4})));
  EXPECT_FALSE(picture_of(floats({1}, {1}), floats({1, 2}, {2})));
}

TEST(PictureOf, TakesNothingButNaN) {
  const auto picture = picture_of(floats({NAN, NAN}, {2}), floats({1, 2}, {2}));
  ASSERT_TRUE(picture);
  EXPECT_EQ(picture->largest, std::vector<uint8_t>(2, 255));
  EXPECT_EQ(picture->worst.size(), 2u);
  EXPECT_EQ(picture->shape_of_error, "NaN or infinity everywhere");
  EXPECT_EQ(picture->golden.edges, picture->mine.edges);
}

// ---- The shape in words -------------------------------------------------------------------------

/// What is said of errors of 1 where `differs(row, column)`, and of `noise` elsewhere.
template <typename Differs>
std::string words_of(int64_t rows, int64_t columns, Differs differs, float noise = 0) {
  std::vector<float> golden, mine;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      golden.push_back(0);
      mine.push_back(differs(row, column) ? 1 : noise * static_cast<float>(column * row % 7));
    }
  }
  return picture_of(floats(golden, {rows, columns}), floats(mine, {rows, columns}))->shape_of_error;
}

TEST(ShapeOfError, NamesRowsAndChannels) {
  EXPECT_EQ(words_of(4, 64, [](int64_t, int64_t c) { return c == 3; }), "all in channel 3 of 64");
  EXPECT_EQ(words_of(512, 1000, [](int64_t, int64_t c) { return c == 999; }),
            "all in channel 999 of 1000");
  EXPECT_EQ(words_of(512, 100, [](int64_t r, int64_t) { return r >= 5 && r <= 7; }),
            "all in rows 5 to 7 of 512");
  EXPECT_EQ(words_of(512, 100, [](int64_t r, int64_t) { return r >= 300; }),
            "all from row 300 of 512 on");
  EXPECT_EQ(words_of(8, 64, [](int64_t r, int64_t c) { return r == 2 && c >= 60; }),
            "all in row 2 of 8, from channel 60 of 64 on");
  EXPECT_EQ(words_of(8, 64, [](int64_t, int64_t c) { return c % 2 == 1; }),
            "all in every second channel");
  EXPECT_EQ(words_of(8, 64, [](int64_t, int64_t c) { return c % 16 == 5; }),
            "all in one channel of every 16");
  EXPECT_EQ(words_of(64, 64, [](int64_t r, int64_t) { return r == 1 || r == 9 || r == 30; }),
            "all in 3 of 64 rows");
  EXPECT_EQ(words_of(64, 64, [](int64_t, int64_t) { return true; }), "everywhere");
}

TEST(ShapeOfError, LooksPastNoise) {
  const auto channel = [](int64_t, int64_t c) { return c == 3; };
  EXPECT_EQ(words_of(512, 1000, channel, 1e-5f), "all in channel 3 of 1000");
  // 512 squares of 1 against 511488 of 1e-4 to 36e-4, 13e-4 in the mean: the channel is 44 %.
  EXPECT_EQ(words_of(512, 1000, channel, 1e-2f), "everywhere");
  // A third of that noise: a ninth of its squares, 512 against 74.
  EXPECT_EQ(words_of(512, 1000, channel, 1e-2f / 3), "mostly in channel 3 of 1000");
}

TEST(ShapeOfError, NamesOtherAxesByNumber) {
  std::vector<float> golden(2 * 12 * 8 * 16), mine(golden);
  for (size_t i = 0; i < golden.size(); ++i) mine[i] = i / (8 * 16) % 12 == 5 ? 1 : 0;
  const auto picture = picture_of(floats(golden, {2, 12, 8, 16}), floats(mine, {2, 12, 8, 16}));
  EXPECT_EQ(picture->shape_of_error, "all in axis 1 index 5 of 12");
}

TEST(ShapeOfError, SaysHowMuchIsScattered) {
  std::mt19937 random(1);
  EXPECT_EQ(words_of(64, 64, [&](int64_t, int64_t) { return random() % 4 == 0; }),
            "scattered over 25 % of the places");
}

}  // namespace
}  // namespace assay::measure
