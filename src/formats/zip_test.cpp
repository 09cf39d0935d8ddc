// SPDX-License-Identifier: Apache-2.0
#include "formats/zip.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include "base/atomic_file.hpp"
#include "formats/test_support.hpp"

namespace assay::formats {
namespace {

using testing::HasSubstr;

std::string two_entries() {
  std::string out;
  ZipWriter zip(&out);
  EXPECT_TRUE(zip.add("stored.txt", as_bytes("hello")));
  EXPECT_TRUE(zip.add("dir/deflated.txt", as_bytes(std::string(1000, 'x')), ZipMethod::Deflated));
  EXPECT_TRUE(zip.finish());
  return out;
}

// Overwrites a little-endian value `offset` bytes into the n-th central directory entry.
template <typename T>
std::string with_central(std::string file, int entry, size_t offset, T value) {
  size_t at = file.find("PK\x01\x02");
  for (int i = 0; i < entry; ++i) at = file.find("PK\x01\x02", at + 4);
  std::memcpy(file.data() + at + offset, &value, sizeof(value));
  return file;
}

Error error_of(const std::string& file) {
  const auto archive = read_zip(as_bytes(file));
  EXPECT_FALSE(archive);
  return archive ? Error{} : archive.error();
}

TEST(ReadZip, GivesStoredEntriesInPlaceAndInflatesOthers) {
  const std::string file = two_entries();
  const auto archive = read_zip(as_bytes(file));
  ASSERT_TRUE(archive) << archive.error().describe();
  ASSERT_EQ(archive->entries.size(), 2u);
  const auto stored = read_zip_entry(*archive, *archive->find("stored.txt"));
  EXPECT_EQ(as_text(stored->bytes), "hello");
  EXPECT_EQ(stored->owner, nullptr);
  const auto inflated = read_zip_entry(*archive, *archive->find("dir/deflated.txt"));
  EXPECT_EQ(as_text(inflated->bytes), std::string(1000, 'x'));
  EXPECT_LT(archive->find("dir/deflated.txt")->compressed_size, 100u);
}

TEST(ReadZip, FindsTheEndBehindALongComment) {
  std::string file = two_entries();
  const std::string comment(65'535, 'c');
  file[file.size() - 2] = '\xff';
  file[file.size() - 1] = '\xff';
  EXPECT_TRUE(read_zip(as_bytes(file + comment)));
  EXPECT_EQ(error_of(file + comment + "x").code, Errc::BadMagic);
}

TEST(ReadZip, RefusesOverlappingEntries) {
  // Given a second entry that points at the first one's header.
  EXPECT_THAT(error_of(with_central(two_entries(), 1, 42, uint32_t{0})).message,
              HasSubstr("overlap"));
}

TEST(ReadZip, RefusesSizesAndOffsetsOutsideTheFile) {
  EXPECT_EQ(error_of(with_central(two_entries(), 0, 20, uint32_t{0x7FFFFFFF})).code, Errc::Invalid);
  EXPECT_EQ(error_of(with_central(two_entries(), 0, 42, uint32_t{0x7FFFFFFF})).code, Errc::Invalid);
  EXPECT_EQ(error_of(with_central(two_entries(), 0, 42, uint32_t{0x7FFFFFFF})).offset, 0x7FFFFFFFu);
  EXPECT_EQ(error_of(with_central(two_entries(), 0, 24, uint32_t{6})).code, Errc::Invalid);
  // A size that only a missing zip64 field could give.
  EXPECT_EQ(error_of(with_central(two_entries(), 0, 24, uint32_t{0xFFFFFFFF})).code, Errc::Invalid);
}

TEST(ReadZip, RefusesBombsBeforeInflatingThem) {
  const std::string lying = with_central(two_entries(), 1, 24, uint32_t{1'000'000'000});
  EXPECT_THAT(error_of(lying).message, HasSubstr("deflate cannot"));
  const std::string honest = two_entries();
  const auto archive = read_zip(as_bytes(honest)).value();
  const auto limited = read_zip_entry(archive, *archive.find("dir/deflated.txt"), 999);
  EXPECT_EQ(limited.error().code, Errc::TooLarge);
}

TEST(ReadZip, NoticesDamageInsideDeflatedData) {
  // Announced one byte too short, one too long, and with another CRC.
  for (const auto& [offset, value] : {std::pair<size_t, uint32_t>{24, 999}, {24, 1001}, {16, 1}}) {
    const std::string file = with_central(two_entries(), 1, offset, value);
    const auto archive = read_zip(as_bytes(file)).value();
    EXPECT_EQ(read_zip_entry(archive, archive.entries[1]).error().code, Errc::Invalid)
        << offset << " " << value;
  }
}

TEST(ReadZip, RefusesEncryptedEntriesAndDuplicateNames) {
  EXPECT_EQ(error_of(with_central(two_entries(), 0, 8, uint16_t{1})).code, Errc::Unsupported);
  std::string file;
  ZipWriter zip(&file);
  EXPECT_TRUE(zip.add("same", {}));
  EXPECT_TRUE(zip.add("same", {}));
  EXPECT_TRUE(zip.finish());
  EXPECT_THAT(error_of(file).message, HasSubstr("two entries"));
}

TEST(ReadZip, FailsOnEveryTruncation) {
  const std::string file = two_entries();
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(read_zip(as_bytes(file).first(size))) << size;
}

TEST(ZipWriter, WritesZip64ForMoreThan65535Entries) {
  std::string file;
  ZipWriter zip(&file);
  for (int i = 0; i < 70'000; ++i) ASSERT_TRUE(zip.add(std::to_string(i), {}));
  ASSERT_TRUE(zip.finish());
  const auto archive = read_zip(as_bytes(file));
  ASSERT_TRUE(archive) << archive.error().describe();
  EXPECT_EQ(archive->entries.size(), 70'000u);
}

TEST(ZipWriter, GivesTheSameBytesThroughASink) {
  std::string written;
  ZipWriter zip([&](ByteSpan bytes) -> Status {
    written += as_text(bytes);
    return {};
  });
  EXPECT_TRUE(zip.add("stored.txt", as_bytes("hello")));
  EXPECT_TRUE(zip.add_deflated("dir/deflated.txt", [](const ByteSink& sink) -> Status {
    for (const size_t size : {1, 499, 500})
      ASSAY_TRY_STATUS(sink(as_bytes(std::string(size, 'x'))));
    return {};
  }));
  EXPECT_TRUE(zip.finish());
  EXPECT_EQ(written, two_entries());
}

TEST(ZipWriter, ReportsAFullDiskOnceAndForAll) {
  const int fd = open("/dev/full", O_WRONLY);
  ASSERT_GE(fd, 0);
  ZipWriter zip([&](ByteSpan bytes) { return write_all(fd, bytes, "/dev/full"); });
  EXPECT_EQ(zip.add("a", as_bytes("hello")).error().code, Errc::NoSpace);
  EXPECT_EQ(zip.finish().error().code, Errc::NoSpace);
  close(fd);
}

TEST(ZipWriter, RefusesEntriesAfterTheEnd) {
  std::string file;
  ZipWriter zip(&file);
  ASSERT_TRUE(zip.finish());
  EXPECT_EQ(zip.add("late", {}).error().code, Errc::Usage);
}

RC_GTEST_PROP(ZipWriter, ThenReadZipIsTheIdentity, (const std::vector<std::string>& contents)) {
  std::string file;
  ZipWriter zip(&file);
  for (size_t i = 0; i < contents.size(); ++i) {
    const auto method = *rc::gen::element(ZipMethod::Stored, ZipMethod::Deflated);
    RC_ASSERT(zip.add(std::to_string(i), as_bytes(contents[i]), method).has_value());
  }
  RC_ASSERT(zip.finish().has_value());
  const auto archive = read_zip(as_bytes(file)).value();
  for (size_t i = 0; i < contents.size(); ++i) {
    RC_ASSERT(as_text(read_zip_entry(archive, archive.entries[i]).value().bytes) == contents[i]);
  }
}

}  // namespace
}  // namespace assay::formats
