// SPDX-License-Identifier: Apache-2.0
#include "run/parts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace assay::run {
namespace {

TEST(PlanParts, HaveEveryTaskOnceAndNoTwoPlaces) {
  std::vector<TaskPlace> tasks;
  for (size_t i = 0; i < 1000; ++i)
    tasks.push_back({.group = i % 2,
                     .rank = static_cast<int>(i % 3),
                     .step = static_cast<int64_t>(i % 5),
                     .bytes = i * 10,
                     .crosses_ranks = i % 7 == 0});
  const std::vector<Part> parts = plan_parts(tasks, {.bytes = 20000, .tasks = 8});
  std::vector<size_t> met;
  for (const Part& part : parts) {
    EXPECT_LE(part.tasks.size(), 8u);
    EXPECT_LE(part.bytes, 20000u);
    const TaskPlace& first = tasks[part.tasks.front()];
    uint64_t bytes = 0;
    for (const size_t task : part.tasks) {
      const TaskPlace& one = tasks[task];
      EXPECT_EQ(std::tuple(one.group, one.rank, one.step, one.crosses_ranks),
                std::tuple(first.group, first.rank, first.step, first.crosses_ranks));
      bytes += one.bytes;
    }
    EXPECT_EQ(part.bytes, bytes);
    EXPECT_EQ(part.crosses_ranks, first.crosses_ranks);
    EXPECT_TRUE(std::ranges::is_sorted(part.tasks));
    met.insert(met.end(), part.tasks.begin(), part.tasks.end());
  }
  std::ranges::sort(met);
  std::vector<size_t> all(tasks.size());
  std::iota(all.begin(), all.end(), size_t{0});
  EXPECT_EQ(met, all);
  EXPECT_TRUE(std::ranges::is_sorted(parts, std::greater(), &Part::bytes));
}

TEST(PlanParts, GivesALargeTaskAPartOfItsOwn) {
  const std::vector<TaskPlace> tasks = {{.bytes = 10}, {.bytes = 5000}, {.bytes = 10}};
  const std::vector<Part> parts = plan_parts(tasks, {.bytes = 100, .tasks = 8});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(parts[0].tasks, testing::ElementsAre(1));
}

}  // namespace
}  // namespace assay::run
