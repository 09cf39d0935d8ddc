// SPDX-License-Identifier: Apache-2.0
// The new name is a UUID of version 3 in the name space DNS, so MD5 (RFC 1321) is here, too; which
// file it stands for is noted in mapping.csv.
#include "vendor/cann/long_names.hpp"

#include <fcntl.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/atomic_file.hpp"
#include "base/file_descriptor.hpp"
#include "base/mapped_file.hpp"
#include "base/text.hpp"
#include "formats/csv.hpp"

namespace assay::vendor::cann {
namespace {

constexpr size_t kDigestBytes = 16;
constexpr size_t kBlockBytes = 64;

/// Sine table and rotations of RFC 1321, section 3.4.
struct Md5Tables {
  std::array<uint32_t, 64> sines;
  static constexpr std::array<std::array<int, 4>, 4> kRotations = {
      {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};
  Md5Tables() {
    for (size_t i = 0; i < sines.size(); ++i)
      sines[i] =
          static_cast<uint32_t>(std::abs(std::sin(static_cast<double>(i + 1))) * 4294967296.0);
  }
};

void mix_block(const std::byte* block, std::array<uint32_t, 4>* state) {
  static const Md5Tables tables;
  auto [a, b, c, d] = *state;
  for (uint32_t i = 0; i < 64; ++i) {
    uint32_t mixed = 0;
    uint32_t word = 0;
    switch (i / 16) {
      case 0:
        mixed = (b & c) | (~b & d);
        word = i;
        break;
      case 1:
        mixed = (d & b) | (~d & c);
        word = (5 * i + 1) % 16;
        break;
      case 2:
        mixed = b ^ c ^ d;
        word = (3 * i + 5) % 16;
        break;
      default:
        mixed = c ^ (b | ~d);
        word = 7 * i % 16;
    }
    const uint32_t sum = a + mixed + tables.sines[i] + load<uint32_t>(block + size_t{4} * word);
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, Md5Tables::kRotations[i / 16][i % 4]);
  }
  (*state)[0] += a;
  (*state)[1] += b;
  (*state)[2] += c;
  (*state)[3] += d;
}

std::array<uint8_t, kDigestBytes> md5(std::string text) {
  const uint64_t bits = uint64_t{text.size()} * 8;
  text += '\x80';
  while (text.size() % kBlockBytes != kBlockBytes - 8) text += '\0';
  append(text, bits);
  std::array<uint32_t, 4> state = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476};
  for (size_t at = 0; at < text.size(); at += kBlockBytes)
    mix_block(as_bytes(text).data() + at, &state);
  return std::bit_cast<std::array<uint8_t, kDigestBytes>>(state);
}

}  // namespace

std::string dns_uuid3(std::string_view name) {
  // 6ba7b810-9dad-11d1-80b4-00c04fd430c8
  constexpr std::string_view kDns(
      "\x6b\xa7\xb8\x10\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8", 16);
  std::array<uint8_t, kDigestBytes> digest = md5(std::string(kDns) + std::string(name));
  digest[6] = static_cast<uint8_t>((digest[6] & 0x0F) | 0x30);  // version
  digest[8] = static_cast<uint8_t>((digest[8] & 0x3F) | 0x80);  // variant
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

Result<std::string> LongNames::fit(const std::string& folder, const std::string& name,
                                   std::string_view suffix) {
  if (name.size() < kLongNameBytes) return name;
  const std::string short_name = dns_uuid3(name) + std::string(suffix);
  std::string line;
  formats::append_csv_row({short_name, name}, {.line_end = "\n"}, &line);
  const std::string path = folder + (folder.ends_with('/') ? "" : "/") + "mapping.csv";

  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = written_.try_emplace(folder);
  if (is_new) {
    // What an earlier conversion into the same folder noted.
    if (const auto file = MappedFile::open(path)) {
      for (const std::string_view old : split(as_text(file->bytes()), '\n'))
        known->second.insert(std::string(old) + "\n");
    }
  }
  if (!known->second.insert(line).second) return short_name;
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode_));
  if (file.get() < 0) return fail(errno_error(errno, "open", path));
  ASSAY_TRY_STATUS(write_all(file.get(), as_bytes(line), path));
  return short_name;
}

}  // namespace assay::vendor::cann
