// SPDX-License-Identifier: Apache-2.0
// The file of "abc" was written by Python 3.11's gzip.compress(b"abc", 9, mtime=0).
#include "formats/gzip.hpp"

#include <gtest/gtest.h>

#include "base/text.hpp"

namespace assay::formats {
namespace {

constexpr unsigned char kAbc[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00,
                                  0x02, 0x03, 0x4b, 0x4c, 0x4a, 0x06, 0x00, 0xc2,
                                  0x41, 0x24, 0x35, 0x03, 0x00, 0x00, 0x00};

ByteSpan abc() { return std::as_bytes(std::span(kAbc)); }

TEST(Gzip, ReadsWhatPythonWrote) { EXPECT_EQ(gunzip(abc(), 3).value(), "abc"); }

TEST(Gzip, ReadsWhatItWrote) {
  std::string content;
  for (int64_t i = 0; i < 100000; ++i) content += std::to_string(i * i);
  const std::string file = gzip(content).value();
  EXPECT_LT(file.size(), content.size());
  EXPECT_EQ(gunzip(as_bytes(file), content.size()).value(), content);
  EXPECT_EQ(gunzip(as_bytes(gzip("").value()), 0).value(), "");
}

TEST(Gzip, HoldsNoTime) {
  const std::string file = gzip("abc").value();
  EXPECT_EQ(file.substr(0, 8), std::string("\x1f\x8b\x08\0\0\0\0\0", 8));
  EXPECT_EQ(file[9], 3);  // Unix, whatever zlib was built on
}

TEST(Gzip, StopsAtTheLimit) {
  // A million zeros in about a thousand bytes.
  const std::string bomb = gzip(std::string(1000000, '\0')).value();
  EXPECT_LT(bomb.size(), 2000u);
  EXPECT_EQ(gunzip(as_bytes(bomb), 999999).error().code, Errc::TooLarge);
  EXPECT_TRUE(gunzip(as_bytes(bomb), 1000000));
}

TEST(Gzip, RefusesEveryCutAndEveryWrongByteOfTheCheckSum) {
  for (size_t size = 3; size < abc().size(); ++size)
    EXPECT_EQ(gunzip(abc().first(size), 100).error().code, Errc::Truncated) << size;
  EXPECT_EQ(gunzip(abc().first(2), 100).error().code, Errc::BadMagic);
  for (size_t at = 15; at < abc().size(); ++at) {
    std::string file(as_text(abc()));
    file[at] ^= 1;
    EXPECT_EQ(gunzip(as_bytes(file), 100).error().code, Errc::Invalid) << at;
  }
  EXPECT_EQ(gunzip(as_bytes(std::string(as_text(abc())) + "x"), 100).error().code, Errc::Invalid);
}

}  // namespace
}  // namespace assay::formats
