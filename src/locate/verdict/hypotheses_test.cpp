// SPDX-License-Identifier: Apache-2.0
// Each mistake is planted into random values and must be named; random errors must not.
#include "locate/verdict/hypotheses.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "reference/wide.hpp"

namespace assay::locate {
namespace {

using reference::Wide;

constexpr double kFloor = 2e-3;  // one rounding to bfloat16

Wide random_values(const Dims& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Wide values(shape);
  for (double& value : values.values) value = normal(random);
  return values;
}

/// The values with a relative error of about half the floor, as rounding leaves it.
Wide rounded(Wide values, unsigned seed) {
  std::mt19937 random(seed + 1000);
  std::normal_distribution<double> normal;
  for (double& value : values.values) value *= 1 + 0.5 * kFloor * normal(random);
  return values;
}

Hypothesis explained(const Wide& right, const Wide& wrong) {
  return explain(reference::to_tensor(right).view, reference::to_tensor(rounded(wrong, 7)).view,
                 kFloor);
}

/// right with change(value, flat index) at every place.
template <typename Change>
Wide changed(const Wide& right, Change change) {
  Wide wrong = right;
  for (int64_t i = 0; i < wrong.size(); ++i) wrong.data()[i] = change(right.data()[i], i);
  return wrong;
}

/// wrong[i] = right[from(i)]
template <typename From>
Wide moved(const Wide& right, From from) {
  return changed(right, [&](double, int64_t i) { return right.data()[from(i)]; });
}

class Seeds : public testing::TestWithParam<unsigned> {
 protected:
  Wide right_ = random_values({6, 8, 48}, GetParam());
  Wide square_ = random_values({3, 16, 16}, GetParam() + 100);
};
INSTANTIATE_TEST_SUITE_P(Explain, Seeds, testing::Range(0u, 20u));

TEST_P(Seeds, NamesAConstantFactor) {
  const Hypothesis found =
      explained(right_, changed(right_, [](double x, int64_t) { return 1.03 * x; }));
  EXPECT_EQ(found.sentence.substr(0, 22), "a constant factor 1.03") << found.sentence;
  EXPECT_LT(found.error, 2 * kFloor);
}

TEST_P(Seeds, NamesASign) {
  const Hypothesis found = explained(right_, changed(right_, [](double x, int64_t) { return -x; }));
  EXPECT_EQ(found.sentence, "the sign is reversed");
}

TEST_P(Seeds, NamesZeros) {
  EXPECT_EQ(explained(right_, Wide(right_.shape, 0.0)).sentence, "all values are zero");
}

// On four ranks, too: a mean in place of a sum, or another scale. A sum that nobody made leaves one
// rank's part, which is no quarter of it.
TEST_P(Seeds, NamesAQuarterAndNotWhatMadeIt) {
  const Wide wrong = changed(right_, [](double x, int64_t) { return x / 4; });
  EXPECT_EQ(explained(right_, wrong).sentence, "a constant factor 0.25");
}

TEST_P(Seeds, NamesAConstantThatIsAdded) {
  const Wide wrong = changed(right_, [](double x, int64_t) { return x + 0.5; });
  EXPECT_EQ(explained(right_, wrong).sentence.substr(0, 11), "a constant ");
}

TEST_P(Seeds, NamesWhatIsAddedToEachPlace) {
  const Wide bias = random_values({48}, GetParam() + 5);
  const Wide wrong = changed(right_, [&](double x, int64_t i) { return x - bias.data()[i % 48]; });
  EXPECT_EQ(explained(right_, wrong).sentence,
            "every place of axis 2 has a number of its own added");
}

TEST_P(Seeds, NamesFactorsOfPlaces) {
  const Wide weight = random_values({48}, GetParam() + 5);
  const Wide wrong = changed(
      right_, [&](double x, int64_t i) { return x * (2.5 + std::fabs(weight.data()[i % 48])); });
  EXPECT_EQ(explained(right_, wrong).sentence, "every place of axis 2 has a factor of its own");
}

// What another eps does.
TEST_P(Seeds, NamesFactorsOfTokens) {
  const Wide factors = random_values({8}, GetParam() + 5);
  const Wide wrong = changed(right_, [&](double x, int64_t i) {
    return x * (2.5 + std::fabs(factors.data()[i / 48 % 8]));
  });
  EXPECT_EQ(explained(right_, wrong).sentence, "every place of axis 1 has a factor of its own");
}

TEST_P(Seeds, NamesATransposeOfASquare) {
  const Wide wrong = moved(square_, [](int64_t i) {
    const int64_t place = i % 256;
    return i / 256 * 256 + place % 16 * 16 + place / 16;
  });
  EXPECT_EQ(explained(square_, wrong).sentence, "the last two axes are transposed");
}

TEST_P(Seeds, NamesATransposeWhoseShapeStayed) {
  // [8, 48] filled with the bytes of the [48, 8] transpose.
  const Wide wrong = moved(right_, [](int64_t i) {
    const int64_t place = i % 384;
    return i / 384 * 384 + place % 8 * 48 + place / 8;
  });
  EXPECT_EQ(explained(right_, wrong).sentence, "the last two axes are transposed");
}

TEST_P(Seeds, NamesATransposeByItsShape) {
  Wide wrong({6, 48, 8});
  for (int64_t i = 0; i < wrong.size(); ++i)
    wrong.data()[i] = right_.data()[i / 384 * 384 + i % 8 * 48 + i % 384 / 8];
  EXPECT_EQ(explained(right_, wrong).sentence, "the last two axes are transposed");
}

TEST_P(Seeds, NamesTwoRangesThatAreExchanged) {
  const Wide wrong = moved(right_, [](int64_t i) {
    const int64_t head = i % 48 / 8;
    const int64_t other = head == 2 ? 3 : head == 3 ? 2 : head;
    return i + (other - head) * 8;
  });
  EXPECT_EQ(explained(right_, wrong).sentence, "[16, 24) and [24, 32) of axis 2 are exchanged");
}

TEST_P(Seeds, NamesTheOrderOfParts) {
  // Place b holds head (b + 1) mod 6, so head 0 stands at place 5.
  const Wide wrong = moved(right_, [](int64_t i) {
    const int64_t head = i % 48 / 8;
    return i + ((head + 1) % 6 - head) * 8;
  });
  EXPECT_EQ(explained(right_, wrong).sentence,
            "the 6 parts of axis 2 stand in the order 5, 0, 1, 2, 3, 4");
}

TEST_P(Seeds, NamesHalvesThatAreInterleaved) {
  // gate and up value by value: place 2 i is gate i, place 2 i + 1 is up i.
  const Wide wrong = moved(right_, [](int64_t i) {
    const int64_t place = i % 48;
    return i - place + place / 2 + (place % 2) * 24;
  });
  EXPECT_EQ(explained(right_, wrong).sentence, "the halves of the last axis are interleaved");
}

TEST_P(Seeds, NamesInterleavedPlacesThatStandAsHalves) {
  const Wide wrong = moved(right_, [](int64_t i) {
    const int64_t place = i % 48;
    return i - place + (place < 24 ? 2 * place : 2 * (place - 24) + 1);
  });
  EXPECT_EQ(explained(right_, wrong).sentence,
            "the interleaved places of the last axis stand as halves");
}

TEST_P(Seeds, NamesHalvesOfEachHead) {
  const Wide wrong = moved(right_, [](int64_t i) {
    const int64_t place = i % 8;
    return i - place + place / 2 + (place % 2) * 4;
  });
  EXPECT_EQ(explained(right_, wrong).sentence,
            "the halves of each of 6 parts of the last axis are interleaved");
}

TEST_P(Seeds, NamesQueryKeyValueHeadByHead) {
  // Right: all queries, all keys, all values of 4 heads of 4; wrong: head by head.
  const Wide wrong = moved(right_, [](int64_t i) {
    const int64_t place = i % 48;
    const int64_t head = place / 12;
    const int64_t part = place % 12 / 4;
    return i - place + part * 16 + head * 4 + place % 4;
  });
  EXPECT_EQ(explained(right_, wrong).sentence,
            "the thirds of the last axis are interleaved in 4 parts");
}

TEST_P(Seeds, NamesAShift) {
  const Wide other = random_values({6, 8, 48}, GetParam() + 50);
  // The position axis: place j holds position j - 1, place 0 something else.
  const Wide wrong = changed(right_, [&](double, int64_t i) {
    return i / 48 % 8 == 0 ? other.data()[i] : right_.data()[i - 48];
  });
  EXPECT_EQ(explained(right_, wrong).sentence, "shifted by one place up along axis 1");
}

TEST_P(Seeds, NamesTheOrderOfPartsOfAnyAxis) {
  const Wide wrong = moved(right_, [](int64_t i) { return (i + 2 * 384 * 2) % (6 * 384); });
  EXPECT_EQ(explained(right_, wrong).sentence, "the 3 parts of axis 0 stand in the order 1, 2, 0");
}

TEST_P(Seeds, NamesFractalOrder) {
  // [C1, R, 16] of an [8, 48] matrix: place (c / 16, r, c % 16) holds (r, c).
  const Wide wrong = moved(right_, [](int64_t i) {
    const int64_t place = i % 384;
    const int64_t block = place / 128;
    const int64_t row = place % 128 / 16;
    return i - place + row * 48 + block * 16 + place % 16;
  });
  EXPECT_EQ(explained(right_, wrong).sentence, "stored in FRACTAL_NZ order, read as ND");
}

TEST_P(Seeds, NamesEveryNthColumnWithItsFactor) {
  const Wide wrong =
      changed(right_, [](double x, int64_t i) { return i % 48 % 4 == 1 ? 1.03 * x : x; });
  EXPECT_EQ(explained(right_, wrong).sentence.substr(0, 17), "a factor 1.03 at ")
      << explained(right_, wrong).sentence;
  EXPECT_NE(explained(right_, wrong).sentence.find("every 4th place of axis 2 from 1"),
            std::string::npos);
}

TEST_P(Seeds, NamesOneElement) {
  Wide wrong = right_;
  wrong.data()[(2 * 8 + 3) * 48 + 5] = 1234;
  EXPECT_EQ(explained(right_, wrong).sentence.substr(0, 38),
            "only element [2, 3, 5] differs: 1234 i");
  wrong.data()[(2 * 8 + 3) * 48 + 5] = NAN;
  EXPECT_EQ(explained(right_, wrong).sentence.substr(0, 36),
            "only element [2, 3, 5] differs: nan ");
}

TEST_P(Seeds, NamesRowsThatAreWrong) {
  const Wide other = random_values({6, 8, 48}, GetParam() + 50);
  const Wide wrong = changed(right_, [&](double x, int64_t i) {
    return i / 48 % 8 < 2 ? other.data()[i] : x;  // padding in front
  });
  EXPECT_EQ(explained(right_, wrong).sentence, "only the range [0, 2) of axis 1 differs");
}

// A column that is nearly the same for all tokens, as trained models have: its difference is, too.
TEST_P(Seeds, BlamesNoBiasForOneColumn) {
  const Wide steady =
      changed(right_, [](double x, int64_t i) { return i % 48 == 5 ? 9 + 0.001 * x : x; });
  const Wide wrong = changed(steady, [](double x, int64_t i) { return i % 48 == 5 ? 1.4 * x : x; });
  EXPECT_EQ(explained(steady, wrong).sentence.substr(0, 32), "a factor 1.4 at place 5 of axis ")
      << explained(steady, wrong).sentence;
}

TEST_P(Seeds, NamesARowOfZeros) {
  const Wide wrong = changed(right_, [](double x, int64_t i) { return i / 48 % 8 == 7 ? 0 : x; });
  EXPECT_EQ(explained(right_, wrong).sentence, "place 7 of axis 1 is zero");
}

TEST_P(Seeds, NamesRowsOfAWeightThatAreExchanged) {
  const Wide weight = random_values({48, 32}, GetParam() + 9);
  const Wide wrong = moved(weight, [](int64_t i) {
    const int64_t block = i / 32 / 6;  // of eight
    return i + (block == 2 ? 6 : block == 3 ? -6 : 0) * 32;
  });
  EXPECT_EQ(explained(weight, wrong).sentence, "[12, 18) and [18, 24) of axis 0 are exchanged");
}

// Whether it is a head a tensor does not tell: a table of angles has none.
TEST_P(Seeds, NamesARangeOfColumnsThatIsWrong) {
  const Wide other = random_values({6, 8, 48}, GetParam() + 50);
  const Wide wrong =
      changed(right_, [&](double x, int64_t i) { return i % 48 / 8 == 3 ? other.data()[i] : x; });
  EXPECT_EQ(explained(right_, wrong).sentence, "only the range [24, 32) of axis 2 differs");
}

// What is so for any fault that the last token does not see is no sign of a missing mask.
TEST_P(Seeds, NamesAllPlacesButTheLast) {
  const Wide other = random_values({6, 8, 48}, GetParam() + 50);
  const Wide wrong =
      changed(right_, [&](double x, int64_t i) { return i / 48 % 8 < 7 ? other.data()[i] : x; });
  EXPECT_EQ(explained(right_, wrong).sentence, "only the range [0, 7) of axis 1 differs");
}

// A wrong scale of attention shows so, too: the first token sees one key, whatever its score.
TEST_P(Seeds, NamesAllPlacesButTheFirst) {
  const Wide other = random_values({6, 8, 48}, GetParam() + 50);
  const Wide wrong =
      changed(right_, [&](double x, int64_t i) { return i / 48 % 8 > 0 ? other.data()[i] : x; });
  EXPECT_EQ(explained(right_, wrong).sentence, "only the range [1, 8) of axis 1 differs");
}

// A bias of positions that counts only backwards does it as well as a missing mask.
TEST_P(Seeds, NamesScoresAboveTheDiagonal) {
  const Wide other = random_values({3, 16, 16}, GetParam() + 50);
  const Wide wrong = changed(
      square_, [&](double x, int64_t i) { return i % 16 > i / 16 % 16 ? other.data()[i] : x; });
  EXPECT_EQ(explained(square_, wrong).sentence, "only values above the diagonal differ");
}

TEST_P(Seeds, ClaimsNothingForRandomErrors) {
  const Wide noise = random_values({6, 8, 48}, GetParam() + 50);
  for (const double strength : {3.0 * kFloor, 0.05, 1.0, 30.0}) {
    const Wide wrong =
        changed(right_, [&](double x, int64_t i) { return x + strength * noise.data()[i]; });
    EXPECT_EQ(explained(right_, wrong).sentence, "") << strength;
  }
}

TEST_P(Seeds, ClaimsNothingWhereOnlyRoundingDiffers) {
  EXPECT_EQ(explained(right_, right_).sentence, "");
}

TEST(ExplainLimits, SaysNothingOfOtherShapesFewValuesOrNoNumbers) {
  const Wide eight = random_values({8}, 1);
  EXPECT_EQ(explained(eight, random_values({9}, 1)).sentence, "");
  EXPECT_EQ(explained(random_values({4}, 1), random_values({4}, 2)).sentence, "");
  EXPECT_EQ(explained(Wide({0}), Wide({0})).sentence, "");
  EXPECT_EQ(explained(Wide({16}, 0.0), Wide({16}, 1.0)).sentence, "");
  EXPECT_EQ(explained(Wide({16}, NAN), Wide({16}, NAN)).sentence, "");
}

}  // namespace
}  // namespace assay::locate
