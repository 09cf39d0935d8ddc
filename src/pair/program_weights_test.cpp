// SPDX-License-Identifier: Apache-2.0
#include "pair/program_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::pair {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

/// Leaves of a program, each a record of its own, and who reads them.
struct Side {
  run::Run run;
  LeafRecords records;
  std::vector<LeafRead> reads;

  void add(const std::string& name, DType dtype = DType::Float32) {
    records.emplace(name, run.records.size());
    run.records.emplace_back().dtype = dtype;
  }
  void read(size_t op, std::string_view slot, std::string_view leaf) {
    reads.push_back({op, slot, leaf});
  }
};

LeafPairs pair_sides(const Side& golden, const Side& mine, const OperatorPairs& operators) {
  const CodedLeaves coded(mine.run, mine.records);
  return pair_leaves({golden.records, golden.reads}, {mine.records, mine.reads}, coded, operators);
}

auto named(std::string_view name, size_t golden, size_t mine) {
  return testing::AllOf(Field(&LeafPair::name, name), Field(&LeafPair::golden, golden),
                        Field(&LeafPair::mine, mine));
}

/// Operator i of one side is operator i of the other.
OperatorPairs in_order(size_t count) {
  OperatorPairs pairs;
  for (size_t i = 0; i < count; ++i) {
    pairs.golden_of.push_back(i);
    pairs.mine_of.push_back(i);
  }
  return pairs;
}

TEST(PairLeaves, PairsNamesAndThenOperandsOfPairedOperators) {
  // Given  a product with "proj.weight" that mine calls "proj.base.weight", and a norm of one name
  Side golden, mine;
  golden.add("proj.weight");
  golden.add("norm.weight");
  golden.read(0, "mat2", "proj.weight");
  golden.read(1, "weight", "norm.weight");
  mine.add("norm.weight");
  mine.add("proj.base.weight");
  mine.read(0, "mat2", "proj.base.weight");
  mine.read(1, "weight", "norm.weight");

  // When
  const LeafPairs pairs = pair_sides(golden, mine, in_order(2));

  // Then
  EXPECT_THAT(pairs.pairs,
              ElementsAre(named("norm.weight", 1, 0), named("proj.base.weight", 0, 1)));
  EXPECT_THAT(pairs.lonely, IsEmpty());
  EXPECT_THAT(pairs.missing, IsEmpty());
  EXPECT_EQ(pairs.judged, 2u);
}

TEST(PairLeaves, TakesAWeightInCodesByTheNameThatItsCodesStandFor) {
  Side golden, mine;
  golden.add("proj.weight");
  mine.add("proj.weight_packed", DType::Int32);
  mine.add("proj.weight_scale");
  const LeafPairs pairs = pair_sides(golden, mine, {});
  EXPECT_THAT(pairs.pairs, ElementsAre(named("proj.weight_packed", 0, 0)));
  EXPECT_THAT(pairs.lonely, IsEmpty());  // the scale is judged with its codes
  EXPECT_EQ(pairs.judged, 1u);
}

TEST(PairLeaves, KeepsALonelyLeafOnlyWhereGoldenMayHaveItUnderAnotherName) {
  // Given  "extra" and "unread", which golden has not
  Side golden, mine;
  golden.add("weight");
  golden.read(0, "mat2", "weight");
  mine.add("weight");
  mine.add("extra");
  mine.add("unread");
  mine.read(0, "mat2", "weight");
  mine.read(0, "bias", "extra");

  // When every leaf that golden reads has its partner / golden reads "bias", which mine has nothing
  // for
  const LeafPairs complete = pair_sides(golden, mine, in_order(1));
  golden.add("bias");
  golden.read(1, "bias", "bias");
  OperatorPairs operators = in_order(1);
  operators.mine_of.push_back(kNoPartner);
  const LeafPairs incomplete = pair_sides(golden, mine, operators);

  // Then
  EXPECT_THAT(complete.lonely, IsEmpty());
  EXPECT_THAT(incomplete.lonely, ElementsAre("extra"));
  EXPECT_THAT(incomplete.missing, ElementsAre("bias"));
  EXPECT_EQ(incomplete.judged, 2u);
}

TEST(PairLeaves, KeepsAllLonelyLeavesWithoutOperators) {
  Side golden, mine;
  golden.add("weight");
  mine.add("other");
  const LeafPairs pairs = pair_sides(golden, mine, {});
  EXPECT_THAT(pairs.pairs, IsEmpty());
  EXPECT_THAT(pairs.lonely, ElementsAre("other"));
}

TEST(CodedLeaves, FindsCodesByLeafAndByWeight) {
  Side mine;
  mine.add("a.qweight", DType::Int32);
  mine.add("a.scales");
  mine.add("b.weight");
  const CodedLeaves coded(mine.run, mine.records);
  ASSERT_NE(coded.weight_at("a.qweight"), nullptr);
  EXPECT_EQ(coded.weight_at("a.qweight"), coded.find("a.weight"));
  EXPECT_EQ(coded.weight_at("b.weight"), nullptr);
  EXPECT_EQ(coded.weight_at("none"), nullptr);
  EXPECT_TRUE(coded.is_part("a.scales"));
  EXPECT_FALSE(coded.is_part("a.qweight"));
  EXPECT_EQ(CodedLeaves().find("a.weight"), nullptr);
}

}  // namespace
}  // namespace assay::pair
