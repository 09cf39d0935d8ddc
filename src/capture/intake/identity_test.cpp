// SPDX-License-Identifier: Apache-2.0
#include "capture/intake/identity.hpp"

#include <gtest/gtest.h>

#include <array>

namespace assay::capture {
namespace {

struct Sighting {
  uint64_t key = 0;
  int value = 0;
};

constexpr auto kAny = [](const Sighting&) { return true; };

TEST(IdentityTable, FindsTheFirstUnderAKeyThatMatches) {
  IdentityTable<Sighting> table;
  table.insert(64, {64, 1});
  table.insert(64, {64, 2});
  table.insert(128, {128, 3});
  EXPECT_EQ(table.find(64, kAny)->value, 1);
  EXPECT_EQ(table.find(64, [](const Sighting& s) { return s.value > 1; })->value, 2);
  EXPECT_EQ(table.find(192, kAny), nullptr);
}

TEST(IdentityTable, FindsAllOfMoreThanItBeganWithPlacesFor) {
  IdentityTable<Sighting> table;
  for (uint64_t i = 0; i < 10'000; ++i) table.insert(i * 64, {i * 64, static_cast<int>(i)});
  for (uint64_t i = 0; i < 10'000; ++i) {
    const Sighting* found = table.find(i * 64, kAny);
    ASSERT_NE(found, nullptr);
    ASSERT_EQ(found->value, static_cast<int>(i));
  }
}

TEST(IdentityTable, ForgetsWhatIsNotKept) {
  IdentityTable<Sighting> table;
  for (uint64_t i = 0; i < 100; ++i) table.insert(i * 64, {i * 64, static_cast<int>(i)});
  table.forget_unless([](const Sighting& s) { return s.value % 2 == 0; });
  EXPECT_EQ(table.find(3 * 64, kAny), nullptr);
  EXPECT_EQ(table.find(98 * 64, kAny)->value, 98);
  table.clear();
  EXPECT_EQ(table.find(98 * 64, kAny), nullptr);
}

// A float32 tensor at `data` with two dimensions.
void fill(TensorLook& look, const void* data, std::array<int64_t, 2> shape,
          std::array<int64_t, 2> strides) {
  look.data = data;
  look.dtype = DType::Float32;
  look.ndim = 2;
  look.element_count = shape[0] * shape[1];
  std::copy(shape.begin(), shape.end(), look.own_shape);
  std::copy(strides.begin(), strides.end(), look.own_strides);
  look.shape = look.own_shape;
  look.strides = look.own_strides;
}

TEST(SeenLayout, TheTransposeHasTheSameValuesInOtherBytes) {
  const float data[6] = {};
  TensorLook whole, transposed, flat;
  fill(whole, data, {2, 3}, {3, 1});
  fill(transposed, data, {3, 2}, {1, 3});
  fill(flat, data, {1, 6}, {6, 1});
  const SeenLayout seen(whole);
  EXPECT_TRUE(seen.contiguous && seen.dense);
  EXPECT_TRUE(seen.has_values_of(transposed, is_dense(transposed)));
  EXPECT_FALSE(seen.has_payload_of(transposed, is_contiguous(transposed)));
  EXPECT_TRUE(seen.has_payload_of(flat, is_contiguous(flat)));
  EXPECT_FALSE(seen.is_like(flat));
}

TEST(SeenLayout, WhatHasGapsNeedsTheSameSizesAndStrides) {
  const float data[12] = {};
  TensorLook every_second, first_half;
  fill(every_second, data, {2, 3}, {6, 2});
  fill(first_half, data, {2, 3}, {3, 1});
  const SeenLayout seen(every_second);
  EXPECT_FALSE(seen.dense);
  EXPECT_TRUE(seen.has_values_of(every_second, false));
  EXPECT_FALSE(seen.has_values_of(first_half, true));
}

TEST(SeenLayout, TellsWhereATransposeOrASliceBegins) {
  const float data[24] = {};
  TensorLook whole, look;
  fill(whole, data, {4, 6}, {6, 1});
  const SeenLayout seen(whole);
  const auto begin_of = [&](const float* at, std::array<int64_t, 2> shape,
                            std::array<int64_t, 2> strides) {
    fill(look, at, shape, strides);
    const std::optional<uint64_t> spanned = spanned_bytes(look);
    return spanned ? seen.begin_of(look, *spanned) : std::nullopt;
  };
  EXPECT_EQ(begin_of(data, {6, 4}, {1, 6}), 0u);
  EXPECT_EQ(begin_of(data + 2, {4, 3}, {6, 1}), 8u);
  EXPECT_EQ(begin_of(data + 1, {4, 3}, {6, 2}), 4u);  // the last one is 1 + 3 * 6 + 2 * 2 = 23
  EXPECT_EQ(begin_of(data + 6, {2, 6}, {6, 1}), 24u);
  // Up to element 24, which is not there; elements that are several at once; before the begin.
  EXPECT_EQ(begin_of(data + 2, {4, 3}, {6, 2}), std::nullopt);
  EXPECT_EQ(begin_of(data, {4, 6}, {0, 1}), std::nullopt);
  EXPECT_EQ(begin_of(data, {3, 3}, {2, 1}), std::nullopt);
  fill(look, data + 12, {2, 6}, {6, 1});
  EXPECT_EQ(SeenLayout(look).begin_of(whole, 96), std::nullopt);
  // What is not stored in the order of the memory says nothing of places in it.
  fill(look, data, {6, 4}, {1, 6});
  EXPECT_EQ(SeenLayout(look).begin_of(whole, 96), std::nullopt);
}

TEST(SeenLayout, AddressTypeAndLazyBitsDecide) {
  const float data[12] = {};
  TensorLook look, other;
  fill(look, data, {2, 3}, {3, 1});
  const SeenLayout seen(look);
  fill(other, data + 6, {2, 3}, {3, 1});
  EXPECT_FALSE(seen.has_values_of(other, true));
  EXPECT_TRUE(seen.is_like(other));
  fill(other, data, {2, 3}, {3, 1});
  other.negative = true;
  EXPECT_FALSE(seen.has_values_of(other, true));
  other.negative = false;
  other.dtype = DType::Int32;
  EXPECT_FALSE(seen.has_values_of(other, true));
}

}  // namespace
}  // namespace assay::capture
