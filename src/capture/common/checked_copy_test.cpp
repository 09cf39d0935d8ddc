// SPDX-License-Identifier: Apache-2.0
#include "capture/common/checked_copy.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

namespace assay::capture {
namespace {

using Copy = bool (*)(const void*, uint64_t, std::byte*);

class CheckedCopyTest : public testing::TestWithParam<Copy> {};

TEST_P(CheckedCopyTest, HasEveryByteOfPagesAndWhatIsLeftOfThem) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, size_t{300'001}}) {
    std::vector<std::byte> source(size);
    for (size_t i = 0; i < size; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
    std::vector<std::byte> target(size);
    ASSERT_TRUE(GetParam()(source.data(), size, target.data())) << size;
    EXPECT_EQ(target, source);
  }
}

TEST_P(CheckedCopyTest, IsRefusedWhereMemoryEndsTooEarly) {
  // Given two pages of which the second may not be read.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 5, page);
  mprotect(static_cast<char*>(memory) + page, page, PROT_NONE);
  std::vector<std::byte> target(2 * page);
  EXPECT_TRUE(GetParam()(memory, page, target.data()));
  EXPECT_EQ(target[page - 1], std::byte{5});
  EXPECT_FALSE(GetParam()(memory, page + 1, target.data()));
  EXPECT_FALSE(GetParam()(static_cast<char*>(memory) + page, 1, target.data()));
  EXPECT_FALSE(GetParam()(nullptr, 1, target.data()));
  munmap(memory, 2 * page);
}

INSTANTIATE_TEST_SUITE_P(BothWays, CheckedCopyTest,
                         testing::Values(copy_checked, copy_through_pipe), [](const auto& way) {
                           return std::string(way.index == 0 ? "AsItCan" : "ThroughPipe");
                         });

}  // namespace
}  // namespace assay::capture
