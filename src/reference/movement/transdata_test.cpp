// SPDX-License-Identifier: Apache-2.0
#include "reference/movement/transdata.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "reference/wide.hpp"

namespace assay::reference {
namespace {

Tensor counted(const Dims& shape, DType dtype) {
  Wide wide(shape);
  std::iota(wide.values.begin(), wide.values.end(), 1.0);
  return narrow(to_tensor(std::move(wide)).view, dtype).value();
}

std::vector<double> values_of(const Tensor& tensor) {
  const Wide wide = widen(tensor.view).value();
  return {wide.values.begin(), wide.values.end()};
}

TEST(Transdata, PlacesEveryElementByItsFormula) {
  for (const DType dtype : {DType::Float16, DType::Int8, DType::Float32}) {
    const int64_t c0 = dtype == DType::Int8 ? 32 : 16;
    const Tensor nd = counted({2, 3, 35}, dtype);
    const Result<Tensor> nz = nd_to_nz(nd);
    ASSERT_TRUE(nz);
    ASSERT_EQ(nz->view.shape, (Dims{2, (35 + c0 - 1) / c0, 16, c0}));
    const std::vector<double> stored = values_of(*nz);
    const std::vector<double> plain = values_of(nd);
    const int64_t blocks = nz->view.shape[1];
    std::vector<double> expected(stored.size(), 0.0);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t c = 0; c < 35; ++c)
          expected[static_cast<size_t>(((b * blocks + c / c0) * 16 + r) * c0 + c % c0)] =
              plain[static_cast<size_t>((b * 3 + r) * 35 + c)];
      }
    }
    EXPECT_EQ(stored, expected);
  }
}

TEST(Transdata, BackIsTheIdentity) {
  for (const Dims& shape :
       {Dims{1, 1}, Dims{16, 32}, Dims{17, 33}, Dims{0, 5}, Dims{5, 0}, Dims{2, 3, 4, 50}}) {
    const Tensor nd = counted(shape, DType::Int32);
    const Result<Tensor> nz = nd_to_nz(nd);
    ASSERT_TRUE(nz);
    const Result<Tensor> back = nz_to_nd(*nz, shape[shape.size() - 2], shape[shape.size() - 1]);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->view.shape, shape);
    EXPECT_EQ(values_of(*back), values_of(nd));
  }
}

TEST(Transdata, ReadsRowsInBlocks) {
  // [C1 = 2, R1 = 3, 16, 16]: 48 rows, 32 columns; rows 16 .. 31 of block 0 are its second part.
  const Tensor nz = counted({2, 3, 16, 16}, DType::Float64);
  const Result<Tensor> nd = nz_to_nd(nz, 40, 30);
  ASSERT_TRUE(nd) << nd.error().message;
  ASSERT_EQ(nd->view.shape, (Dims{40, 30}));
  const std::vector<double> values = values_of(*nd);
  for (int64_t r = 0; r < 40; ++r) {
    for (int64_t c = 0; c < 30; ++c)
      ASSERT_EQ(values[static_cast<size_t>(r * 30 + c)],
                static_cast<double>((c / 16 * 48 + r) * 16 + c % 16 + 1));
  }
  // Nothing asked for: 2 batches of 16 rows, 3 blocks of columns.
  const Result<Tensor> plain = nz_to_nd(counted({2, 3, 16, 16}, DType::Float64), -1, -1);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->view.shape, (Dims{2, 16, 48}));
}

TEST(Transdata, TakesStridedInput) {
  Tensor nd = counted({35, 18}, DType::Int16);
  std::swap(nd.view.shape[0], nd.view.shape[1]);
  std::swap(nd.view.strides[0], nd.view.strides[1]);
  const Tensor nz = nd_to_nz(nd).value();
  EXPECT_EQ(values_of(nz_to_nd(nz, 18, 35).value()), values_of(nd));
}

TEST(Transdata, RefusesWhatDoesNotFit) {
  const Tensor nz = counted({2, 16, 16}, DType::Float16);
  EXPECT_EQ(nz_to_nd(nz, 17, 3).error().message,
            "a matrix [17, 3] does not fit into NZ [2, 16, 16]");
  EXPECT_EQ(nz_to_nd(nz, 3, 33).error().code, Errc::Invalid);
  EXPECT_EQ(nz_to_nd(counted({16, 16}, DType::Float16), -1, -1).error().code, Errc::Invalid);
  EXPECT_EQ(nd_to_nz(counted({16}, DType::Float16)).error().code, Errc::Invalid);
}

}  // namespace
}  // namespace assay::reference
