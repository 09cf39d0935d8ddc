// SPDX-License-Identifier: Apache-2.0
#include "capture/intake/buffer_pool.hpp"

#include <gtest/gtest.h>

namespace assay::capture {
namespace {

constexpr uint64_t kMegabyte = 1 << 20;

TEST(BufferPool, GivesTheSameMemoryAgain) {
  BufferPool pool(4 * kMegabyte);
  const std::byte* memory = pool.take(kMegabyte).span().data();
  EXPECT_EQ(pool.idle_bytes(), kMegabyte);
  BufferPool::Buffer second = pool.take(kMegabyte - 100);
  EXPECT_EQ(second.span().data(), memory);
  EXPECT_EQ(second.span().size(), kMegabyte - 100);
  EXPECT_EQ(second.capacity_bytes(), kMegabyte);
  EXPECT_EQ(pool.idle_bytes(), 0u);
}

TEST(BufferPool, WastesNoMoreThanHalfOfABuffer) {
  BufferPool pool(8 * kMegabyte);
  (void)pool.take(4 * kMegabyte);
  const BufferPool::Buffer small = pool.take(kMegabyte);
  EXPECT_EQ(small.capacity_bytes(), kMegabyte);
}

TEST(BufferPool, IdleAndUsedStayWithinTheBound) {
  BufferPool pool(4 * kMegabyte);
  for (int i = 0; i < 3; ++i) {
    BufferPool::Buffer a = pool.take(kMegabyte);
    BufferPool::Buffer b = pool.take(2 * kMegabyte);
    EXPECT_LE(pool.total_bytes(), 4 * kMegabyte);
  }
  EXPECT_EQ(pool.idle_bytes(), 3 * kMegabyte);
  const BufferPool::Buffer large = pool.take(4 * kMegabyte);  // the idle ones make room
  EXPECT_EQ(pool.total_bytes(), 4 * kMegabyte);
}

TEST(BufferPool, KeepsNothingLargerThanTheBound) {
  BufferPool pool(kMegabyte);
  ASSERT_NE(pool.take(2 * kMegabyte).bytes, nullptr);  // a single tensor may be larger
  EXPECT_EQ(pool.total_bytes(), 0u);
}

#ifndef ASSAY_SANITIZED  // the sanitizers' allocators end the process instead
TEST(BufferPool, SaysNoWithoutMemory) {
  BufferPool pool(kMegabyte);
  EXPECT_EQ(pool.take(uint64_t{1} << 60).bytes, nullptr);
  EXPECT_EQ(pool.total_bytes(), 0u);
}
#endif

}  // namespace
}  // namespace assay::capture
