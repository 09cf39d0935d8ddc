// SPDX-License-Identifier: Apache-2.0
// Arithmetic that a reader can follow by hand; generated shapes:
// tests/python/reference/test_movement.py.
#include "reference/movement/caches.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "reference/movement/collectives.hpp"
#include "reference/movement/views.hpp"
#include "reference/wide.hpp"

namespace assay::reference {
namespace {

Tensor counted(const Dims& shape, double first) {
  Wide wide(shape);
  std::iota(wide.values.begin(), wide.values.end(), first);
  return to_tensor(std::move(wide));
}

std::vector<double> values_of(const Tensor& tensor) {
  const Wide wide = widen(tensor.view).value();
  return {wide.values.begin(), wide.values.end()};
}

TEST(Caches, WritesATokenIntoItsSlot) {
  const Tensor cache = counted({2, 2, 1, 2}, 0);  // slots [0,1] [2,3] | [4,5] [6,7]
  const Tensor tokens = counted({2, 1, 2}, 10);
  const CacheLayout layout = plain_cache(cache.view).value();
  const int64_t slots[] = {3, -1};
  const Result<Tensor> written = write_slots(cache, layout, tokens, token_writes(slots));
  ASSERT_TRUE(written);
  EXPECT_EQ(values_of(*written), (std::vector<double>{0, 1, 2, 3, 4, 5, 10, 11}));
  const int64_t outside[] = {4};
  EXPECT_EQ(write_slots(cache, layout, tokens, token_writes(outside)).error().code, Errc::Invalid);
}

TEST(Caches, RowsOfNzCachesComeInPieces) {
  const Tensor cache = counted({1, 2, 2, 2}, 0);  // pieces of 2: slot 1 is 2, 3 and 6, 7
  const int64_t slots[] = {1};
  const Result<Tensor> row = read_slots(cache, nz_cache(cache.view).value(), slots);
  ASSERT_TRUE(row);
  EXPECT_EQ(values_of(*row), (std::vector<double>{2, 3, 6, 7}));
}

TEST(Caches, TheLastOfSeveralWritesStays) {
  const std::vector<SlotWrite> last = last_writes({{5, 0}, {1, 1}, {5, 2}});
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].slot, 1);
  EXPECT_EQ(last[1].row, 2);
}

TEST(Caches, ASlotAtTheEndOfAllNumbersIsInNoCache) {
  const int64_t slots[] = {INT64_MAX - 1}, wins[] = {4}, lengths[] = {4}, offsets[] = {-1};
  EXPECT_EQ(window_writes(slots, wins, lengths, 1).error().code, Errc::Invalid);
  EXPECT_EQ(omni_writes(slots, wins, lengths, offsets, 1).error().code, Errc::Invalid);
}

TEST(Views, StayInsideTheTensor) {
  const Tensor x = counted({2, 3}, 0);
  const Tensor part = flat_part(x, 2, 3).value();
  EXPECT_EQ(values_of(part), (std::vector<double>{2, 3, 4}));
  // The storage goes on behind the part, as_strided() does not.
  EXPECT_EQ(values_of(as_strided(part, {2}, {2}, 0).value()), (std::vector<double>{2, 4}));
  EXPECT_EQ(as_strided(part, {2}, {3}, 0).error().code, Errc::Truncated);
}

}  // namespace
}  // namespace assay::reference
