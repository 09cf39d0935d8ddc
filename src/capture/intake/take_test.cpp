// SPDX-License-Identifier: Apache-2.0
#include "capture/intake/take.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "capture/common/host_guard.hpp"

namespace assay::capture {
namespace {

template <typename T, size_t count>
TensorView view_over(const std::array<T, count>& values, DType dtype, Dims shape, Dims strides) {
  return make_view(dtype, std::move(shape), std::move(strides),
                   ByteSpan(reinterpret_cast<const std::byte*>(values.data()), sizeof(values)))
      .value();
}

template <typename T>
std::vector<T> copied(const TensorView& view, size_t count) {
  std::vector<T> out(count);
  copy_elements(view, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(CopyElements, WritesInOrderOfTheShape) {
  const std::array<float, 6> values = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(copied<float>(view_over(values, DType::Float32, {2, 3}, {3, 1}), 6),
            (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(copied<float>(view_over(values, DType::Float32, {3, 2}, {1, 3}), 6),
            (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_TRUE(copied<float>(view_over(values, DType::Float32, {0, 3}, {3, 1}), 0).empty());
}

TEST(CopyElements, AppliesLazyBits) {
  const std::array<float, 4> values = {1, 2, 3, 4};  // 1+2i, 3+4i
  TensorView view = view_over(values, DType::Complex64, {2}, {1});
  view.conjugate = true;
  EXPECT_EQ(copied<float>(view, 4), (std::vector<float>{1, -2, 3, -4}));
  view.negative = true;
  EXPECT_EQ(copied<float>(view, 4), (std::vector<float>{-1, 2, -3, 4}));
}

#if defined(__x86_64__)
TEST(StatisticsOf, DoNotDependOnTheHostsFloatingPointEnvironment) {
  constexpr unsigned kFlushToZero = 0x8040;
  constexpr float kSubnormal = 1e-40f;
  const std::array<float, 2> values = {kSubnormal, kSubnormal};
  const TensorView view = view_over(values, DType::Float32, {2}, {1});
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushToZero);
  const stats::TensorStats stats = statistics_of(view);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(stats.max, double{kSubnormal});
  EXPECT_EQ(after & kFlushToZero, kFlushToZero);
}
#endif

}  // namespace
}  // namespace assay::capture
