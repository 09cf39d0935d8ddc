// SPDX-License-Identifier: Apache-2.0
#include "pair/merge_ranks.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <random>

#include "pair/test_files.hpp"

namespace assay::pair {
namespace {

using test::Files;
using test::values_of;
using Floats = std::vector<float>;

Floats random_floats(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Columns [first, last) of a matrix with `columns` columns.
Floats columns_of(const Floats& matrix, size_t columns, size_t first, size_t last) {
  Floats out;
  for (size_t i = 0; i < matrix.size(); ++i) {
    if (i % columns >= first && i % columns < last) out.push_back(matrix[i]);
  }
  return out;
}

Floats joined(const std::vector<Floats>& parts) {
  Floats out;
  for (const Floats& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

// One golden tensor and the shards of mine, whose ranks are 0, 1, ...
struct Pair {
  Files golden;
  Files mine;

  void set_golden(const Dims& shape, const Floats& values) {
    golden.add(DType::Float32, shape, values);
  }
  void add_mine(const Dims& shape, const Floats& values) {
    mine.add(DType::Float32, shape, values);
  }
  [[nodiscard]] MergedPair merge() const {
    return merge_shards(golden.run, all(golden), mine.run, all(mine));
  }
  static std::vector<size_t> all(const Files& files) {
    std::vector<size_t> out(files.run.records.size());
    std::iota(out.begin(), out.end(), size_t{0});
    return out;
  }
  // The merged side of mine holds golden's values in golden's order.
  void expect_equal(const MergedPair& merged) const {
    const auto left = load_operand(golden.run, merged.golden);
    const auto right = load_operand(mine.run, merged.mine);
    ASSERT_TRUE(left);
    ASSERT_TRUE(right) << right.error().describe();
    const auto a = values_of(*left);
    const auto b = values_of(*right);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << i;
  }
};

TEST(MergeShards, JoinsTheExampleOfTheSpecification) {
  // [1, 2048] twice against [1, 4096]: 4096 * 1 = 2048 * 2, so axis 1.
  const Floats whole = random_floats(4096, 1);
  Pair pair;
  pair.set_golden({1, 4096}, whole);
  pair.add_mine({1, 2048}, columns_of(whole, 4096, 0, 2048));
  pair.add_mine({1, 2048}, columns_of(whole, 4096, 2048, 4096));
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.mine.merge, Merge::Concat);
  EXPECT_EQ(merged.mine.axis, 1);
  EXPECT_EQ(merged.mine.note, "cat:1 of ranks 0,1");
  EXPECT_EQ(merged.golden.merge, Merge::None);
  EXPECT_EQ(merged.problem, "");
  pair.expect_equal(merged);
}

TEST(MergeShards, TakesTheFirstOfReplicas) {
  const Floats whole = random_floats(64, 1);
  Pair pair;
  pair.set_golden({1, 64}, whole);
  pair.add_mine({1, 64}, whole);
  pair.add_mine({1, 64}, whole);
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.mine.merge, Merge::Pick);
  EXPECT_EQ(merged.mine.note, "replica of ranks 0,1");
  EXPECT_EQ(merged.problem, "");
}

TEST(MergeShards, SaysWhichReplicaDiffers) {
  // One value of 100 000 differs, away from the sampled places as likely as not.
  const Floats whole = random_floats(100000, 1);
  Floats damaged = whole;
  damaged[54321] += 1;
  Pair pair;
  pair.set_golden({100, 1000}, whole);
  pair.add_mine({100, 1000}, whole);
  pair.add_mine({100, 1000}, whole);
  pair.add_mine({100, 1000}, damaged);
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.mine.merge, Merge::Pick);
  EXPECT_EQ(merged.problem.find("replicas differ: rank 2 from rank 0 by relative L2 "), 0u)
      << merged.problem;
}

TEST(MergeShards, AddsPartialSums) {
  const Floats first = random_floats(512, 1);
  const Floats second = random_floats(512, 2);
  Floats whole(512);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = first[i] + second[i];
  Pair pair;
  pair.set_golden({8, 64}, whole);
  pair.add_mine({8, 64}, first);
  pair.add_mine({8, 64}, second);
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.mine.merge, Merge::Sum);
  EXPECT_EQ(merged.mine.note, "sum of ranks 0,1");
  EXPECT_EQ(merged.problem, "");
  pair.expect_equal(merged);
}

TEST(MergeShards, AddsShardsThatDifferEvenWhenTheResultIsWrong) {
  // Nothing is near golden; shards without likeness are no replicas.
  Pair pair;
  pair.set_golden({8, 64}, random_floats(512, 1));
  pair.add_mine({8, 64}, random_floats(512, 2));
  pair.add_mine({8, 64}, random_floats(512, 3));
  EXPECT_EQ(pair.merge().mine.merge, Merge::Sum);
}

TEST(MergeShards, TakesEqualShardsForReplicasEvenWhenTheSumIsNearer) {
  const Floats half = random_floats(512, 1);
  Floats whole = half;
  for (float& value : whole) value *= 2;
  Pair pair;
  pair.set_golden({8, 64}, whole);
  pair.add_mine({8, 64}, half);
  pair.add_mine({8, 64}, half);
  EXPECT_EQ(pair.merge().mine.merge, Merge::Pick);
}

TEST(MergeShards, InterleavesFusedProjections) {
  // gate-up of 2 x 8 columns, q-k-v of 3 x 8 columns; rank r has half of each part.
  for (const size_t parts : {size_t{2}, size_t{3}}) {
    const size_t columns = parts * 8;
    const Floats whole = random_floats(16 * columns, 5);
    Pair pair;
    pair.set_golden({16, static_cast<int64_t>(columns)}, whole);
    for (size_t rank = 0; rank < 2; ++rank) {
      Floats shard;
      for (size_t row = 0; row < 16; ++row) {
        for (size_t part = 0; part < parts; ++part) {
          const auto begin =
              whole.begin() + static_cast<std::ptrdiff_t>(row * columns + part * 8 + rank * 4);
          shard.insert(shard.end(), begin, begin + 4);
        }
      }
      pair.add_mine({16, static_cast<int64_t>(columns / 2)}, shard);
    }
    const MergedPair merged = pair.merge();
    EXPECT_EQ(merged.mine.merge, Merge::Interleave);
    EXPECT_EQ(merged.mine.blocks, static_cast<int>(parts));
    EXPECT_EQ(merged.mine.note,
              "interleave:1 in " + std::to_string(parts) + " blocks of ranks 0,1");
    pair.expect_equal(merged);
  }
}

TEST(MergeShards, InterleavesFusedProjectionsWithFewerKeyHeads) {
  // 4 query heads, 2 key and 2 value heads of 4 columns: q 0-15, k 16-23, v 24-31.
  // Rank 0: q 0-7, k 16-19, v 24-27; rank 1: q 8-15, k 20-23, v 28-31.
  const Floats whole = random_floats(32, 6);
  const auto columns = [&](size_t first, size_t last) {
    return columns_of(whole, 32, first, last);
  };
  Pair pair;
  pair.set_golden({1, 32}, whole);
  pair.add_mine({1, 16}, joined({columns(0, 8), columns(16, 20), columns(24, 28)}));
  pair.add_mine({1, 16}, joined({columns(8, 16), columns(20, 24), columns(28, 32)}));
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.mine.note, "interleave:1 by 2:1:1 of ranks 0,1");
  pair.expect_equal(merged);
}

TEST(MergeShards, JoinsSequenceShardsInPlainAndZigzagOrder) {
  // 8 tokens of 4 values on 2 ranks: pieces 0 1 | 2 3, or 0 3 | 1 2.
  const Floats whole = random_floats(32, 7);
  const auto piece = [&](std::ptrdiff_t i) {
    return Floats(whole.begin() + i * 8, whole.begin() + i * 8 + 8);
  };
  Pair plain;
  plain.set_golden({1, 8, 4}, whole);
  plain.add_mine({1, 4, 4}, joined({piece(0), piece(1)}));
  plain.add_mine({1, 4, 4}, joined({piece(2), piece(3)}));
  EXPECT_EQ(plain.merge().mine.note, "cat:1 of ranks 0,1");
  plain.expect_equal(plain.merge());

  Pair zigzag;
  zigzag.set_golden({1, 8, 4}, whole);
  zigzag.add_mine({1, 4, 4}, joined({piece(0), piece(3)}));
  zigzag.add_mine({1, 4, 4}, joined({piece(1), piece(2)}));
  EXPECT_EQ(zigzag.merge().mine.note, "zigzag:1 of ranks 0,1");
  zigzag.expect_equal(zigzag.merge());
}

TEST(MergeShards, LetsValuesChooseTheAxisWhereShapesDoNot) {
  // Golden has joined its leading axes, so [2, 2, 4] twice can be put together along either of
  // them.
  const Floats whole = random_floats(32, 8);
  const auto rows = [&](std::initializer_list<std::ptrdiff_t> list) {
    Floats out;
    for (const auto row : list) {
      out.insert(out.end(), whole.begin() + row * 4, whole.begin() + row * 4 + 4);
    }
    return out;
  };
  Pair batches;
  batches.set_golden({8, 4}, whole);
  batches.add_mine({2, 2, 4}, rows({0, 1, 2, 3}));
  batches.add_mine({2, 2, 4}, rows({4, 5, 6, 7}));
  EXPECT_EQ(batches.merge().mine.note, "cat:0 of ranks 0,1");
  Pair tokens;
  tokens.set_golden({8, 4}, whole);
  tokens.add_mine({2, 2, 4}, rows({0, 1, 4, 5}));
  tokens.add_mine({2, 2, 4}, rows({2, 3, 6, 7}));
  EXPECT_EQ(tokens.merge().mine.note, "cat:1 of ranks 0,1");
  tokens.expect_equal(tokens.merge());
}

TEST(MergeShards, JoinsOneOfEachGroupOfReplicas) {
  // 2 key heads on 4 ranks: ranks 0 and 1 hold the first one.
  const Floats whole = random_floats(64, 9);
  Pair pair;
  pair.set_golden({1, 64}, whole);
  for (const size_t head : {0, 0, 1, 1}) {
    pair.add_mine({1, 32}, columns_of(whole, 64, head * 32, head * 32 + 32));
  }
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.mine.note, "cat:1 of ranks 0,2");
  EXPECT_EQ(merged.problem, "");
  pair.expect_equal(merged);
}

TEST(MergeShards, MergesBothSidesWhenBothAreSharded) {
  const Floats whole = random_floats(256, 10);
  Pair pair;
  for (size_t rank = 0; rank < 2; ++rank) {
    pair.set_golden({4, 32}, columns_of(whole, 64, rank * 32, rank * 32 + 32));
  }
  for (size_t rank = 0; rank < 4; ++rank) {
    pair.add_mine({1, 4, 16}, columns_of(whole, 64, rank * 16, rank * 16 + 16));
  }
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.golden.note, "cat:1 of ranks 0,1");
  EXPECT_EQ(merged.mine.note, "cat:2 of ranks 0-3");
  pair.expect_equal(merged);
}

TEST(MergeShards, SaysWhenShapesCannotBeMadeEqual) {
  Pair pair;
  pair.set_golden({1, 5}, random_floats(5, 1));
  pair.add_mine({1, 3}, random_floats(3, 1));
  pair.add_mine({1, 3}, random_floats(3, 1));
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.mine.merge, Merge::None);
  EXPECT_EQ(merged.problem,
            "no way to merge the ranks makes the shapes equal: golden rank 0 [1, 5], "
            "mine ranks 0,1 [1, 3]");
}

TEST(MergeShards, NamesTheRankThatCannotBeRead) {
  Pair pair;
  pair.set_golden({1, 4}, random_floats(4, 1));
  pair.add_mine({1, 2}, random_floats(2, 1));
  pair.add_mine({1, 2}, random_floats(2, 2));
  std::filesystem::resize_file(pair.mine.run.records[1].bytes->file.str(), 3);
  const MergedPair merged = pair.merge();
  // The shapes are known, so the recipe stands and the row will carry the reason.
  EXPECT_EQ(merged.mine.merge, Merge::Concat);
  EXPECT_EQ(merged.problem.find("rank 1: "), 0u) << merged.problem;
}

TEST(MergeShards, MergesEmptyShards) {
  const Dims part{int64_t{1} << 40, 0, int64_t{1} << 40};
  Pair pair;
  pair.set_golden(part, {});
  pair.add_mine(part, {});
  pair.add_mine(part, {});
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.problem, "");
  EXPECT_EQ(merged.mine.merge, Merge::Pick);
}

TEST(MergeShards, LeavesSingleRecordsAlone) {
  Pair pair;
  pair.set_golden({1, 4}, random_floats(4, 1));
  pair.add_mine({1, 3}, random_floats(3, 1));
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.golden.records, std::vector<size_t>{0});
  EXPECT_EQ(merged.mine.records, std::vector<size_t>{0});
  EXPECT_EQ(merged.problem + merged.mine.note, "");
}

// Whatever the split, the merged side has golden's values, also with the noise of half precision.
RC_GTEST_PROP(MergeShards, FindsTheAxisThatWasSplit, ()) {
  const auto axis = *rc::gen::inRange<size_t>(0, 3);
  const auto ranks = *rc::gen::inRange<size_t>(2, 5);
  Dims shape;
  for (size_t i = 0; i < 3; ++i) shape.push_back(*rc::gen::inRange<int64_t>(2, 6));
  const Dims part_shape = shape;
  shape[axis] *= static_cast<int64_t>(ranks);
  const Floats whole = random_floats(static_cast<size_t>(element_count(shape).value_or(0)),
                                     *rc::gen::arbitrary<unsigned>());
  const int64_t inner = axis == 2 ? 1 : axis == 1 ? shape[2] : shape[1] * shape[2];
  Pair pair;
  pair.set_golden(shape, whole);
  for (size_t rank = 0; rank < ranks; ++rank) {
    Floats part;
    for (size_t i = 0; i < whole.size(); ++i) {
      const int64_t place = static_cast<int64_t>(i) / inner % shape[axis];
      if (place / part_shape[axis] == static_cast<int64_t>(rank))
        part.push_back(whole[i] * (i % 2 == 0 ? 1.001F : 0.999F));
    }
    pair.add_mine(part_shape, part);
  }
  const MergedPair merged = pair.merge();
  RC_ASSERT(merged.mine.merge == Merge::Concat);
  RC_ASSERT(merged.mine.axis == static_cast<int>(axis));
}

// ---- one side whole ----

TEST(MergeShards, MakesATensorOfFlatShards) {
  // FSDP: 3 * 5 values in one list, filled up to 8 + 8.
  const Floats whole = random_floats(15, 1);
  Floats list = whole;
  list.push_back(0);
  Pair pair;
  pair.set_golden({3, 5}, whole);
  pair.add_mine({8}, Floats(list.begin(), list.begin() + 8));
  pair.add_mine({8}, Floats(list.begin() + 8, list.end()));
  const MergedPair merged = pair.merge();
  EXPECT_EQ(merged.problem, "");
  EXPECT_EQ(merged.mine.note, "flat of ranks 0,1");
  pair.expect_equal(merged);
}

TEST(MergeShards, TakesNoListWithAWholeShardOfPadding) {
  // 4 values in 5 + 5: the second shard would be nothing but padding.
  Pair pair;
  pair.set_golden({2, 2}, random_floats(4, 1));
  pair.add_mine({5}, random_floats(5, 1));
  pair.add_mine({5}, Floats(5, 0.F));
  EXPECT_EQ(pair.merge().problem,
            "no way to merge the ranks makes the shapes equal: golden rank 0 [2, 2], mine ranks "
            "0,1 [5]");
}

TEST(LoadWhole, SaysHowFusedShardsWerePutTogether) {
  // Rows of q, k and v of two heads; each rank has its head of each.
  const Floats whole = random_floats(6 * 4, 1);
  const auto rows = [&](std::initializer_list<int> wanted) {
    std::vector<Floats> parts;
    for (const int row : wanted)
      parts.emplace_back(whole.begin() + row * 4, whole.begin() + (row + 1) * 4);
    return joined(parts);
  };
  Pair pair;
  pair.set_golden({6, 4}, whole);
  pair.add_mine({3, 4}, rows({0, 2, 4}));
  pair.add_mine({3, 4}, rows({1, 3, 5}));
  for (run::TensorRecord& record : pair.mine.run.records) record.node = "qkv";
  const auto loaded = load_whole(pair.golden.run, 0, pair.mine.run, 0);
  ASSERT_TRUE(loaded) << loaded.error().describe();
  EXPECT_EQ(loaded->how, "interleave:0 in 3 blocks of ranks 0,1");
  const auto values = values_of(loaded->tensor);
  ASSERT_EQ(values.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(values[i], whole[i]) << i;

  // One rank alone holds half of them.
  pair.mine.run.records.pop_back();
  const auto half = load_whole(pair.golden.run, 0, pair.mine.run, 0);
  ASSERT_FALSE(half);
  EXPECT_EQ(half.error().message, "1 captured rank holds 12 of golden's 24 values");
}

}  // namespace
}  // namespace assay::pair
