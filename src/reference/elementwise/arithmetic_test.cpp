// SPDX-License-Identifier: Apache-2.0
#include "reference/elementwise/arithmetic.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "reference/elementwise/broadcast.hpp"
#include "tensor/convert.hpp"

namespace assay::reference {
namespace {

Tensor wide(const Dims& shape, std::initializer_list<double> values) {
  Wide array(shape);
  std::copy(values.begin(), values.end(), array.values.begin());
  return to_tensor(std::move(array));
}
Tensor integers(const Dims& shape, std::initializer_list<int64_t> values) {
  Whole array(shape);
  std::copy(values.begin(), values.end(), array.values.begin());
  return to_tensor(std::move(array));
}
template <typename T>
std::vector<T> elements(const Tensor& tensor) {
  const ByteSpan bytes = tensor.view.contiguous_bytes();
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// The plain twin: one element at a time by its indices.
double broadcast_value(const TensorView& view, const Dims& shape, int64_t flat) {
  int64_t element = 0;
  int64_t step = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const size_t at = shape.size() - 1 - i;
    const int64_t index = flat % shape[at];
    flat /= shape[at];
    if (i >= view.shape.size()) continue;
    const int64_t size = view.shape[view.shape.size() - 1 - i];
    element += (size == 1 ? 0 : index) * step;
    step *= size;
  }
  double value = 0;
  read_values(view, element, 1, std::span(&value, 1));
  return value;
}

TEST(BroadcastValues, EqualsThePlainLoopForEveryWayToBroadcast) {
  const Dims shape{3, 7, 5};
  for (const Dims& part : {Dims{3, 7, 5}, Dims{7, 5}, Dims{1, 7, 5}, Dims{5}, Dims{1, 1, 5}, Dims{},
                           Dims{1}, Dims{3, 1, 1}, Dims{7, 1}, Dims{3, 1, 5}, Dims{3, 7, 1}}) {
    Wide array(part);
    for (size_t i = 0; i < array.values.size(); ++i) array.values[i] = static_cast<double>(i) + 1;
    const Tensor tensor = to_tensor(std::move(array));
    const auto values = BroadcastValues::make(tensor.view, shape);
    ASSERT_TRUE(values);
    for (const int64_t first : {int64_t{0}, int64_t{4}, int64_t{36}}) {
      std::vector<double> read(static_cast<size_t>(105 - first));
      values->read(first, 105 - first, read.data());
      for (int64_t i = first; i < 105; ++i)
        ASSERT_EQ(read[static_cast<size_t>(i - first)], broadcast_value(tensor.view, shape, i))
            << list_text(part.span()) << " at " << i;
    }
  }
}

TEST(BroadcastValues, RowsLongerThanABlockRepeatToo) {
  Wide row(Dims{5000});
  for (size_t i = 0; i < 5000; ++i) row.values[i] = static_cast<double>(i);
  const auto sum = arithmetic(Arithmetic::Add, to_tensor(Wide(Dims{3, 5000}, 0.5)).view,
                              to_tensor(std::move(row)).view);
  ASSERT_TRUE(sum);
  const auto values = elements<double>(*sum);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], static_cast<double>(i % 5000) + 0.5);
}

TEST(Arithmetic, ShapesThatDoNotFitAreNamed) {
  const Tensor a = to_tensor(Wide(Dims{2, 3}, 1.0));
  EXPECT_EQ(arithmetic(Arithmetic::Add, a.view, to_tensor(Wide(Dims{4}, 1.0)).view).error().message,
            "[2, 3] and [4] do not broadcast");
}

TEST(Arithmetic, RealValuesInDouble) {
  const Tensor a = wide({2, 2}, {1, 2, 3, 4});
  const Tensor b = wide({2}, {10, 0});
  EXPECT_EQ(elements<double>(*arithmetic(Arithmetic::Subtract, a.view, b.view)),
            (std::vector<double>{-9, 2, -7, 4}));
  EXPECT_EQ(elements<double>(*arithmetic(Arithmetic::Divide, a.view, b.view)),
            (std::vector<double>{0.1, INFINITY, 0.3, INFINITY}));
}

TEST(Arithmetic, IntegersAreExactAndWrap) {
  const int64_t large = (int64_t{1} << 53) + 1;  // no double
  const Tensor sum =
      *arithmetic(Arithmetic::Add, integers({1}, {large}).view, integers({1}, {1}).view);
  EXPECT_EQ(sum.view.dtype, DType::Int64);
  EXPECT_EQ(elements<int64_t>(sum), std::vector<int64_t>{large + 1});
  const Tensor small = *cast(integers({1}, {100}).view, DType::Int8);
  EXPECT_EQ(elements<int64_t>(*arithmetic(Arithmetic::Add, small.view, small.view)),
            std::vector<int64_t>{-56});
}

TEST(Compare, IntegersBeyondDoublesStayApart) {
  const int64_t large = int64_t{1} << 53;
  const Tensor a = integers({2}, {large, large + 1});
  const Tensor b = integers({1}, {large + 1});
  EXPECT_EQ(compare(Comparison::Less, a.view, b.view)->values[0], 1);
  EXPECT_EQ(compare(Comparison::Equal, a.view, b.view)->values[0], 0);
  EXPECT_EQ(compare(Comparison::Equal, a.view, b.view)->values[1], 1);
}

TEST(Compare, NaNIsNeitherLessNorEqual) {
  const Tensor a = wide({3}, {NAN, 1, 2});
  EXPECT_EQ(compare(Comparison::Equal, a.view, a.view)->values[0], 0);
  EXPECT_EQ(compare(Comparison::Greater, a.view, wide({1}, {1}).view)->values[0], 0);
  EXPECT_EQ(compare(Comparison::Greater, a.view, wide({1}, {1}).view)->values[2], 1);
}

TEST(Logical, EverythingButZeroIsTrue) {
  const Tensor a = wide({4}, {0, -3, NAN, 0});
  const Tensor b = wide({4}, {0, 1, 1, 5});
  const auto both = logical(Logic::And, a.view, b.view);
  const auto either = logical(Logic::Or, a.view, b.view);
  EXPECT_EQ(std::vector<int64_t>(both->values.begin(), both->values.end()),
            (std::vector<int64_t>{0, 1, 1, 0}));
  EXPECT_EQ(std::vector<int64_t>(either->values.begin(), either->values.end()),
            (std::vector<int64_t>{0, 1, 1, 1}));
  EXPECT_EQ(logical_not(a.view)->values[0], 1);
  EXPECT_EQ(logical_not(a.view)->values[2], 0);
}

TEST(Cast, FloatsAreCutOffTowardZeroAndClamped) {
  const Tensor x = wide({6}, {1.9, -1.9, 3e9, -3e9, NAN, 0.5});
  EXPECT_EQ(elements<int32_t>(*cast(x.view, DType::Int32)),
            (std::vector<int32_t>{1, -1, 2147483647, -2147483647 - 1, 0, 0}));
}

TEST(Cast, IntegersKeepTheirLowBits) {
  const Tensor x = integers({2}, {(int64_t{1} << 32) + 7, -1});
  EXPECT_EQ(elements<int32_t>(*cast(x.view, DType::Int32)), (std::vector<int32_t>{7, -1}));
  EXPECT_EQ(elements<uint8_t>(*cast(x.view, DType::Bool)), (std::vector<uint8_t>{1, 1}));
  // 2^24 + 1 is halfway between two float32 values: to even.
  EXPECT_EQ(elements<float>(*cast(integers({1}, {16777217}).view, DType::Float32)),
            std::vector<float>{16777216.0F});
}

TEST(Cast, TypesWithoutNumbersAreRefused) {
  EXPECT_EQ(cast(wide({1}, {1}).view, DType::Complex64).error().code, Errc::Unsupported);
  EXPECT_EQ(cast(wide({1}, {1}).view, DType::Int4).error().code, Errc::Unsupported);
}

}  // namespace
}  // namespace assay::reference
