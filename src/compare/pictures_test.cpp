// SPDX-License-Identifier: Apache-2.0
#include "compare/pictures.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "base/atomic_file.hpp"
#include "compare/compare.hpp"
#include "run/test_folder.hpp"

namespace assay::compare {
namespace {

RC_GTEST_PROP(PictureKeeper, KeepsTheSameWhateverTheOrder, ()) {
  const auto severities =
      *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 6));  // many are equal
  const auto worst = *rc::gen::inRange<size_t>(0, 8);
  std::vector<bool> always(severities.size());
  for (size_t i = 0; i < always.size(); ++i) always[i] = *rc::gen::inRange(0, 10) == 0;
  std::vector<size_t> order(severities.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::set<size_t> expected;
  std::vector<size_t> others;
  for (const size_t i : order) {
    if (always[i]) {
      expected.insert(i);
    } else {
      others.push_back(i);
    }
  }
  std::ranges::stable_sort(others,
                           [&](size_t a, size_t b) { return severities[a] > severities[b]; });
  others.resize(std::min(worst, others.size()));
  expected.insert(others.begin(), others.end());

  std::ranges::shuffle(order, std::mt19937(*rc::gen::arbitrary<uint32_t>()));
  PictureKeeper keeper(worst, always);
  for (const size_t i : order) {
    if (!keeper.wants(i, severities[i])) continue;
    auto picture = std::make_shared<measure::PairPicture>();
    picture->values = static_cast<int64_t>(i);
    keeper.keep(i, severities[i], std::move(picture));
  }
  std::set<size_t> kept;
  keeper.for_each([&](size_t pair, const PictureKeeper::Picture& picture) {
    RC_ASSERT(picture->values == static_cast<int64_t>(pair));
    kept.insert(pair);
  });
  RC_ASSERT(kept == expected);
}

/// Two runs of `count` pairs [4, 8] in files. Pair i differs in one place by (i * 7) % count.
class Pictures : public ::testing::Test {
 protected:
  static constexpr size_t kCount = 40;

  Pictures() {
    for (size_t i = 0; i < kCount; ++i) {
      std::vector<float> values(32, 1);
      add(i, values, "golden", &golden_);
      values[i % 32] += static_cast<float>(i * 7 % kCount);
      if (i == 11) values[0] = NAN;
      add(i, values, "mine", &mine_);
    }
  }

  void add(size_t i, const std::vector<float>& values, const std::string& side, run::Run* run) {
    run->path = side;
    run->layout = run::Layout::Flat;
    run::TensorRecord record;
    record.node = "layers." + std::to_string(i) + ".mlp";
    record.step_name = "0";
    record.order = i;
    record.dtype = DType::Float32;
    record.shape = Dims{4, 8};
    record.bytes.emplace();
    record.bytes->file = folder_ / (side + std::to_string(i) + ".bin");
    record.bytes->size_bytes = 128;
    record.bytes->raw = true;
    ASSERT_TRUE(write_file_atomically(record.bytes->file, std::as_bytes(std::span(values))));
    run->records.push_back(std::move(record));
  }

  Comparison compare(const PictureOptions& pictures, int jobs = 1) {
    CompareOptions options;
    options.pictures = pictures;
    options.jobs = jobs;
    return *compare_runs(golden_, mine_, options);
  }

  static std::set<std::string> labels_of_pictures(const Comparison& comparison) {
    std::set<std::string> labels;
    for (const Row& row : comparison.sheets[0].rows)
      if (row.picture) labels.insert(row.label);
    return labels;
  }

  run::test::TestFolder folder_;
  run::Run golden_;
  run::Run mine_;
};

TEST_F(Pictures, AreMadeOfTheWorstRows) {
  EXPECT_TRUE(labels_of_pictures(compare({})).empty());
  for (const int jobs : {1, 3}) {
    const Comparison comparison = compare({.worst = 6}, jobs);
    std::set<std::string> worst;
    for (const Row* row : comparison.worst_rows(6)) worst.insert(row->label);
    EXPECT_EQ(labels_of_pictures(comparison), worst);
    EXPECT_TRUE(worst.contains("layers.11.mlp output"));  // NaN
    EXPECT_TRUE(worst.contains("layers.17.mlp output"));  // 17 * 7 % 40 = 39
  }
}

TEST_F(Pictures, AreNotMadeOfEqualTensors) {
  const Comparison comparison = compare({.worst = 1000, .patterns = {"*"}});
  EXPECT_TRUE(comparison.sheets[0].rows[0].identical);
  EXPECT_EQ(comparison.sheets[0].rows[0].picture, nullptr);
  EXPECT_EQ(labels_of_pictures(comparison).size(), kCount - 1);
}

TEST_F(Pictures, AreMadeOfRowsThatAPatternNames) {
  const Comparison comparison = compare({.worst = 0, .patterns = {"layers.3?.mlp", "*mine5.bin"}});
  const std::set<std::string> labels = labels_of_pictures(comparison);
  EXPECT_EQ(labels.size(), 11u);  // 30 to 39, and 5 by its file
  EXPECT_TRUE(labels.contains("layers.5.mlp output"));
}

TEST_F(Pictures, OfPatternsAreBoundedAndThatIsTold) {
  const Comparison comparison =
      compare({.worst = 0, .patterns = {"layers.*"}, .most_matching = 4}, 3);
  // The first four in execution order, of which the first does not differ.
  EXPECT_EQ(labels_of_pictures(comparison).size(), 3u);
  EXPECT_EQ(comparison.notes.back(),
            "40 pairs match the patterns for details; of the first 4 of them they are kept");
}

TEST_F(Pictures, CanBeMadeAfterwards) {
  const Comparison at_once = compare({.worst = 1000});
  Comparison later = compare({});
  for (const size_t row : {size_t{0}, size_t{11}, size_t{20}})
    add_picture(golden_, mine_, {}, later.sheets.data(), row);
  EXPECT_EQ(later.sheets[0].rows[0].picture, nullptr);
  EXPECT_EQ(later.sheets[0].rows[1].picture, nullptr);
  for (const size_t row : {size_t{11}, size_t{20}}) {
    const auto& first = at_once.sheets[0].rows[row].picture;
    const auto& second = later.sheets[0].rows[row].picture;
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->largest, second->largest);
    EXPECT_EQ(first->shape_of_error, second->shape_of_error);
  }
  // Element 20 is [2, 4].
  EXPECT_EQ(later.sheets[0].rows[20].picture->shape_of_error,
            "all in row 2 of 4, in channel 4 of 8");
  EXPECT_EQ(later.sheets[0].rows[20].picture->worst[0].error, 20);  // 140 % 40
}

}  // namespace
}  // namespace assay::compare
