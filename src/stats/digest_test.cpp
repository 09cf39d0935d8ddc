// SPDX-License-Identifier: Apache-2.0
#include "stats/digest.hpp"

#include <gtest/gtest.h>

#include <complex>
#include <numeric>
#include <vector>

namespace assay::stats {
namespace {

template <typename T>
ByteSpan bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// The canonical XXH128 values that `xxhsum -H2` prints for these inputs.
TEST(Digest, IsXxh3With128Bits) {
  const std::vector<uint8_t> text = {'a', 'b', 'c'};
  EXPECT_EQ(digest_text(digest(*make_view(DType::UInt8, {3}, bytes_of(text)))),
            "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(digest_text(digest(*make_view(DType::Float32, {0}, {}))),
            "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, DependsOnElementOrderNotOnStrides) {
  // 300 x 200 int32 is 240 kB: four gather blocks.
  std::vector<int32_t> matrix(300 * 200);
  std::iota(matrix.begin(), matrix.end(), 0);
  std::vector<int32_t> transposed(matrix.size());
  for (size_t r = 0; r < 300; ++r) {
    for (size_t c = 0; c < 200; ++c) transposed[c * 300 + r] = matrix[r * 200 + c];
  }
  const Digest straight = digest(*make_view(DType::Int32, {300, 200}, bytes_of(matrix)));
  EXPECT_EQ(straight,
            digest(*make_view(DType::Int32, {300, 200}, {1, 300}, bytes_of(transposed), 0)));
  EXPECT_NE(straight, digest(*make_view(DType::Int32, {300, 200}, bytes_of(transposed))));
}

TEST(Digest, AppliesLazyBits) {
  const std::vector<std::complex<float>> plain = {{1, 2}, {-3, 4}};
  const std::vector<std::complex<float>> conjugate = {{1, -2}, {-3, -4}};
  const std::vector<std::complex<float>> both = {{-1, 2}, {3, 4}};
  TensorView view = *make_view(DType::Complex64, {2}, bytes_of(plain));
  view.conjugate = true;
  EXPECT_EQ(digest(view), digest(*make_view(DType::Complex64, {2}, bytes_of(conjugate))));
  view.negative = true;
  EXPECT_EQ(digest(view), digest(*make_view(DType::Complex64, {2}, bytes_of(both))));
  const std::vector<int32_t> integers = {1, -256, 0};
  const std::vector<int32_t> negated = {-1, 256, 0};
  TensorView integer_view = *make_view(DType::Int32, {3}, bytes_of(integers));
  integer_view.negative = true;
  EXPECT_EQ(digest(integer_view), digest(*make_view(DType::Int32, {3}, bytes_of(negated))));
}

TEST(Digest, PacksNibblesAnew) {
  const std::vector<uint8_t> shifted = {0x10, 0x32, 0x04};  // values 0 1 2 3 4 0; from 1 on: 1 2 3
  const std::vector<uint8_t> packed = {0x21, 0x03};
  EXPECT_EQ(digest(*make_view(DType::UInt4, {3}, {1}, bytes_of(shifted), 1)),
            digest(*make_view(DType::UInt8, {2}, bytes_of(packed))));
}

TEST(DigestStream, IsThatOfTheWhole) {
  std::vector<uint8_t> bytes(100'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  const ByteSpan whole = bytes_of(bytes);
  DigestStream stream;
  EXPECT_EQ(stream.finish(), digest_bytes({}));
  stream.update(whole.first(12'345));
  (void)stream.finish();  // may be asked at any time
  stream.update(whole.subspan(12'345));
  EXPECT_EQ(stream.finish(), digest_bytes(whole));
  EXPECT_EQ(stream.finish(), digest(*make_view(DType::UInt8, {100'000}, whole)));
}

TEST(DigestText, ReadsBack) {
  const Digest value{0x0123456789abcdefu, 0xfedcba9876543210u};
  EXPECT_EQ(digest_text(value), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(parse_digest(digest_text(value)), value);
  EXPECT_EQ(parse_digest("0123456789ABCDEFfedcba9876543210"), std::nullopt);
  EXPECT_EQ(parse_digest("0123"), std::nullopt);
}

}  // namespace
}  // namespace assay::stats
