// SPDX-License-Identifier: Apache-2.0
#include "stats/whole_tensor.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "base/interruption.hpp"

namespace assay::stats {
namespace {

// A digest's block and a rest of 12 bytes.
constexpr size_t kBytes = (64u << 20) + 12;

TEST(WholeTensor, GivesWhatTheFunctionsOfOneBlockGive) {
  std::vector<std::byte> bytes(kBytes);
  for (size_t i = 0; i < kBytes; i += 4093) bytes[i] = static_cast<std::byte>(i % 251);
  const TensorView view = make_view(DType::Int64, {static_cast<int64_t>(kBytes / 8)},
                                    ByteSpan(bytes).first(kBytes / 8 * 8))
                              .value();
  EXPECT_EQ(digest_of(view), digest(view));
  EXPECT_EQ(statistics_of(view).mean, compute_stats(view).mean);
  EXPECT_EQ(statistics_of(view).l2_norm, compute_stats(view).l2_norm);
  const TensorView one = make_view(DType::UInt8, {1}, ByteSpan(bytes).first(1)).value();
  EXPECT_EQ(digest_of(one), digest(one));
}

// Whoever reads a byte of this memory ends the process.
TEST(WholeTensor, ReadsNothingMoreWhenTheFlagIsSet) {
  void* const memory = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const ByteSpan bytes(static_cast<const std::byte*>(memory), kBytes);
  const TensorView view = make_view(DType::UInt8, {static_cast<int64_t>(kBytes)}, bytes).value();
  const std::atomic<bool> flag{true};
  {
    const InterruptScope scope(&flag);
    EXPECT_THROW(static_cast<void>(digest_of(view)), Interrupted);
    EXPECT_THROW(static_cast<void>(statistics_of(view)), Interrupted);
  }
  ::munmap(memory, kBytes);
}

}  // namespace
}  // namespace assay::stats
