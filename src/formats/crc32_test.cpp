// SPDX-License-Identifier: Apache-2.0
#include "formats/crc32.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <string>

namespace assay::formats {
namespace {

uint32_t zlib_crc(ByteSpan bytes, uint32_t so_far = 0) {
  return static_cast<uint32_t>(
      ::crc32_z(so_far, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string random_bytes(size_t size) {
  std::mt19937 generator(7);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(generator());
  return bytes;
}

TEST(Crc32, GivesThePublishedCheckValue) {
  // The check value of CRC-32/ISO-HDLC is the CRC of the nine digits.
  EXPECT_EQ(crc32(as_bytes("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32_by_table(as_bytes("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32_plain(as_bytes("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32({}), 0u);
}

TEST(Crc32, AgreesWithZlibForEveryLengthAndAlignment) {
  const std::string bytes = random_bytes(3000);
  for (size_t size = 0; size < 2900; size += size < 700 ? 1 : 37) {
    const ByteSpan part = as_bytes(bytes).subspan(size % 17, size);
    ASSERT_EQ(crc32(part), zlib_crc(part)) << size;
    ASSERT_EQ(crc32_by_table(part), zlib_crc(part)) << size;
    ASSERT_EQ(crc32_plain(part), zlib_crc(part)) << size;
  }
}

TEST(Crc32, ContinuesWhereTheLastCallEnded) {
  const std::string bytes = random_bytes(100'000);
  const ByteSpan all = as_bytes(bytes);
  for (const size_t cut : {1u, 63u, 64u, 1024u, 65'537u}) {
    EXPECT_EQ(crc32(all.subspan(cut), crc32(all.first(cut))), zlib_crc(all)) << cut;
  }
}

}  // namespace
}  // namespace assay::formats
