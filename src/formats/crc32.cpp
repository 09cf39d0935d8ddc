// SPDX-License-Identifier: Apache-2.0
// Three ways to one value: 64 bytes at a time by carry-less multiplication, 16 by tables, and one
// bit at a time.
#include "formats/crc32.hpp"

#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace assay::formats {
namespace {

// The CRC register below is the value without initial and final inversion; bit 31 holds the
// coefficient of x^0 ("reflected"), so multiplying by x is a shift to the right.
constexpr uint32_t kPolynomial = 0xEDB88320u;  // 0x04C11DB7 reflected

constexpr uint32_t times_x(uint32_t value) {
  return (value >> 1) ^ ((value & 1u) != 0 ? kPolynomial : 0u);
}

using Table = std::array<std::array<uint32_t, 256>, 16>;

// kTable[k][b]: the register after byte b and k zero bytes, so 16 bytes are 16 look-ups that do not
// wait for each other.
constexpr Table make_table() {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = times_x(value);
    table[0][byte] = value;
  }
  for (size_t k = 1; k < table.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = table[k - 1][byte];
      table[k][byte] = (before >> 8) ^ table[0][before & 0xFFu];
    }
  }
  return table;
}
constexpr Table kTable = make_table();

uint32_t update_by_table(uint32_t crc, const std::byte* data, size_t size) {
  for (; size >= 16; data += 16, size -= 16) {
    std::array<uint8_t, 16> block;
    std::memcpy(block.data(), data, 16);
    for (size_t i = 0; i < 4; ++i) block[i] = static_cast<uint8_t>(block[i] ^ (crc >> (8 * i)));
    crc = 0;
    for (size_t i = 0; i < 16; ++i) crc ^= kTable[15 - i][block[i]];
  }
  for (; size > 0; ++data, --size) {
    crc = (crc >> 8) ^ kTable[0][(crc ^ std::to_integer<uint32_t>(*data)) & 0xFFu];
  }
  return crc;
}

#if defined(__x86_64__)

// Folding (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel
// 2009): a 128-bit block H:L that stands d bits before another contributes H*x^(d+64) + L*x^d to
// it, modulo the polynomial. In the reflected order the low quadword holds the earlier bytes, and a
// carry-less product is one bit short, hence the exponents d + 32 and d - 32 and the shift to the
// left.
constexpr uint64_t fold_constant(unsigned exponent) {
  uint32_t value = 0x80000000u;  // x^0
  for (unsigned i = 0; i < exponent; ++i) value = times_x(value);
  return uint64_t{value} << 1;
}

// Folds whole 64-byte groups and leaves the rest to the tables: after the last fold the
// accumulators are a message of 64 bytes with the same remainder as everything before them.
__attribute__((target("pclmul,sse4.1"))) uint32_t update_by_clmul(uint32_t crc,
                                                                  const std::byte* data,
                                                                  size_t size) {
  constexpr size_t kLanes = 4;
  constexpr size_t kGroup = kLanes * 16;
  if (size < 2 * kGroup) return update_by_table(crc, data, size);
  const __m128i constants = _mm_set_epi64x(static_cast<int64_t>(fold_constant(kGroup * 8 - 32)),
                                           static_cast<int64_t>(fold_constant(kGroup * 8 + 32)));
  __m128i lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) {
    lanes[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 16 * i));
  }
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
  data += kGroup;
  size -= kGroup;
  for (; size >= kGroup; data += kGroup, size -= kGroup) {
    for (size_t i = 0; i < kLanes; ++i) {
      const __m128i next = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 16 * i));
      const __m128i low = _mm_clmulepi64_si128(lanes[i], constants, 0x00);
      const __m128i high = _mm_clmulepi64_si128(lanes[i], constants, 0x11);
      lanes[i] = _mm_xor_si128(_mm_xor_si128(low, high), next);
    }
  }
  std::array<std::byte, kGroup> folded;
  for (size_t i = 0; i < kLanes; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(folded.data() + 16 * i), lanes[i]);
  }
  return update_by_table(update_by_table(0, folded.data(), kGroup), data, size);
}

// The same with four lanes of 512 bits, 256 bytes a round.
__attribute__((target("avx512f,vpclmulqdq"))) uint32_t update_by_wide_clmul(uint32_t crc,
                                                                            const std::byte* data,
                                                                            size_t size) {
  constexpr size_t kLanes = 4;
  constexpr size_t kGroup = kLanes * 64;
  const auto low_constant = static_cast<int64_t>(fold_constant(kGroup * 8 + 32));
  const auto high_constant = static_cast<int64_t>(fold_constant(kGroup * 8 - 32));
  const __m512i constants =
      _mm512_set_epi64(high_constant, low_constant, high_constant, low_constant, high_constant,
                       low_constant, high_constant, low_constant);
  __m512i lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = _mm512_loadu_si512(data + 64 * i);
  lanes[0] = _mm512_xor_si512(
      lanes[0], _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, static_cast<int64_t>(uint64_t{crc})));
  data += kGroup;
  size -= kGroup;
  for (; size >= kGroup; data += kGroup, size -= kGroup) {
    for (size_t i = 0; i < kLanes; ++i) {
      const __m512i next = _mm512_loadu_si512(data + 64 * i);
      const __m512i low = _mm512_clmulepi64_epi128(lanes[i], constants, 0x00);
      const __m512i high = _mm512_clmulepi64_epi128(lanes[i], constants, 0x11);
      lanes[i] = _mm512_ternarylogic_epi64(low, high, next, 0x96);  // xor of the three
    }
  }
  std::array<std::byte, kGroup> folded;
  for (size_t i = 0; i < kLanes; ++i) _mm512_storeu_si512(folded.data() + 64 * i, lanes[i]);
  return update_by_clmul(update_by_clmul(0, folded.data(), kGroup), data, size);
}

// From here on the wide lanes' start and end cost less than they save.
constexpr size_t kWideMinimum = 1024;

uint32_t update(uint32_t crc, const std::byte* data, size_t size) {
  static const bool has_clmul =
      __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  static const bool has_wide =
      has_clmul && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  if (has_wide && size >= kWideMinimum) return update_by_wide_clmul(crc, data, size);
  if (has_clmul) return update_by_clmul(crc, data, size);
  return update_by_table(crc, data, size);
}

#elif defined(__aarch64__) && defined(__linux__)

__attribute__((target("+crc"))) uint32_t update_by_instruction(uint32_t crc, const std::byte* data,
                                                               size_t size) {
  for (; size >= 8; data += 8, size -= 8) crc = __builtin_aarch64_crc32x(crc, load<uint64_t>(data));
  for (; size > 0; ++data, --size)
    crc = __builtin_aarch64_crc32b(crc, std::to_integer<uint8_t>(*data));
  return crc;
}

uint32_t update(uint32_t crc, const std::byte* data, size_t size) {
  static const bool has_crc = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
  return has_crc ? update_by_instruction(crc, data, size) : update_by_table(crc, data, size);
}

#else

uint32_t update(uint32_t crc, const std::byte* data, size_t size) {
  return update_by_table(crc, data, size);
}

#endif

}  // namespace

uint32_t crc32(ByteSpan bytes, uint32_t so_far) {
  return ~update(~so_far, bytes.data(), bytes.size());
}

uint32_t crc32_by_table(ByteSpan bytes, uint32_t so_far) {
  return ~update_by_table(~so_far, bytes.data(), bytes.size());
}

uint32_t crc32_plain(ByteSpan bytes, uint32_t so_far) {
  uint32_t crc = ~so_far;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
  }
  return ~crc;
}

}  // namespace assay::formats
