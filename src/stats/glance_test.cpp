// SPDX-License-Identifier: Apache-2.0
#include "stats/glance.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

namespace assay::stats {
namespace {

// Writes of n bytes at any place of so much memory: how many of them a glance misses.
size_t missed(size_t size, size_t n, size_t tries) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 11 + i / 256);
  const uint64_t before = glance(std::as_bytes(std::span(bytes)));
  size_t count = 0;
  for (size_t i = 0; i < tries; ++i) {
    const size_t at = (i * 7919 * 64 + i * 13) % (size - n + 1);
    for (size_t k = 0; k < n; ++k) bytes[at + k] ^= 0x5A;
    count += glance(std::as_bytes(std::span(bytes))) == before ? 1 : 0;
    for (size_t k = 0; k < n; ++k) bytes[at + k] ^= 0x5A;
  }
  EXPECT_EQ(glance(std::as_bytes(std::span(bytes))), before);
  return count;
}

TEST(Glance, SeesEveryByteOfLittleMemory) {
  EXPECT_EQ(missed(16 * 1024, 1, 1000), 0u);
  EXPECT_EQ(missed(3, 1, 3), 0u);
  EXPECT_NE(glance({}), 0u);
}

TEST(Glance, NeverMissesTwoPieces) {
  for (const size_t size : {17'000u, 100'001u, 512u * 1024}) EXPECT_EQ(missed(size, 2048, 300), 0u);
  // 64 MiB: 1024 lines, so pieces of 64 KiB.
  EXPECT_EQ(missed(64u << 20, 2u << 16, 20), 0u);
}

TEST(Glance, MissesAShorterWriteAsOftenAsItsBoundSays) {
  // Pieces of 1 KiB: (1 - 512/2048)^2 and (1 - 960/2048)^2 of 1000, and four standard deviations.
  EXPECT_LE(missed(256 * 1024, 512, 1000), 563u + 63);
  EXPECT_LE(missed(256 * 1024, 960, 1000), 282u + 57);
}

}  // namespace
}  // namespace assay::stats
