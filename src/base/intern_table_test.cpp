// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "base/intern_table.hpp"
#include "base/interned_text.hpp"

namespace assay {
namespace {

struct HashOfNumber {
  size_t operator()(int64_t number) const {
    return static_cast<size_t>(number) * 0x9E3779B97F4A7C15;
  }
};
using Numbers = InternTable<int64_t, HashOfNumber>;

TEST(InternTable, KeepsEachOfMoreThanManyChunks) {
  Numbers numbers;
  constexpr int64_t kCount = 300'000;  // 18 750 a shard: the 10th chunk
  std::vector<Numbers::Handle> handles;
  for (int64_t i = 1; i <= kCount; ++i) handles.push_back(numbers.add(i));
  const int64_t* const first = &numbers.at(handles.front());
  EXPECT_EQ(std::set(handles.begin(), handles.end()).size(), static_cast<size_t>(kCount));
  for (int64_t i = 1; i <= kCount; ++i) {
    ASSERT_EQ(numbers.at(handles[static_cast<size_t>(i - 1)]), i);
    ASSERT_EQ(numbers.add(i), handles[static_cast<size_t>(i - 1)]);
  }
  EXPECT_EQ(&numbers.at(handles.front()), first);
  EXPECT_EQ(numbers.add(int64_t{0}), 0U);
  EXPECT_EQ(numbers.at(0), 0);
}

TEST(InternTable, GivesThreadsOneHandleAValue) {
  Numbers numbers;
  constexpr int64_t kCount = 20'000;
  std::vector<std::vector<Numbers::Handle>> seen(4);
  std::vector<std::thread> threads;
  for (std::vector<Numbers::Handle>& mine : seen) {
    threads.emplace_back([&numbers, &mine] {
      for (int64_t i = 1; i <= kCount; ++i) {
        mine.push_back(numbers.add(i));
        if (numbers.at(mine.back()) != i) mine.back() = 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : seen) EXPECT_EQ(mine, seen.front());
  EXPECT_EQ(std::ranges::count(seen.front(), 0U), 0);
}

TEST(InternedText, IsItsText) {
  const InternedText text = "model.layers.0";
  EXPECT_EQ(text, InternedText(std::string("model.layers.") + '0'));
  EXPECT_EQ(text.str(), "model.layers.0");
  EXPECT_NE(text, InternedText("model.layers.1"));
  EXPECT_TRUE(InternedText().empty());
  EXPECT_EQ(InternedText(""), InternedText());
}

}  // namespace
}  // namespace assay
