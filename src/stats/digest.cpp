// SPDX-License-Identifier: Apache-2.0
// Plain contiguous bytes are hashed where they lie. All others go through a buffer block by block:
// gathered into C order, with lazy bits applied and nibbles packed.
#include "stats/digest.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/xxhash.hpp"
#include "tensor/convert.hpp"

namespace assay::stats {
namespace {

constexpr int64_t kBlockBytes = 64 * 1024;

/// Nibbles of an Int4 or UInt4 view, packed anew from the low nibble on; the last byte's high
/// nibble is 0.
void pack_nibbles(const TensorView& view, int64_t first, int64_t count, std::byte* out) {
  std::array<double, kBlockBytes / 16> values;
  for (int64_t at = 0; at < count; at += static_cast<int64_t>(values.size())) {
    const int64_t part = std::min<int64_t>(count - at, values.size());
    read_values(view, first + at, part, {values.data(), static_cast<size_t>(part)});
    for (int64_t i = 0; i < part; i += 2) {
      const int low = static_cast<int>(values[static_cast<size_t>(i)]);
      const int high = i + 1 < part ? static_cast<int>(values[static_cast<size_t>(i + 1)]) : 0;
      out[(at + i) / 2] = static_cast<std::byte>((low & 15) | (high & 15) << 4);
    }
  }
}

Digest to_digest(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

}  // namespace

Digest digest(const TensorView& view) {
  const int64_t elements = view.element_count();
  const int64_t bits = info(view.dtype).element_bits;
  const bool plain = !view.conjugate && !view.negative;
  if (elements == 0) return to_digest(XXH3_128bits(nullptr, 0));
  if (plain && bits >= 8 && view.is_contiguous()) {
    const ByteSpan bytes = view.contiguous_bytes();
    return to_digest(XXH3_128bits(bytes.data(), bytes.size()));
  }
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset(&state);
  alignas(64) std::byte buffer[kBlockBytes];
  const int64_t block = kBlockBytes * 8 / std::max<int64_t>(bits, 8);
  for (int64_t first = 0; first < elements; first += block) {
    const int64_t count = std::min(block, elements - first);
    auto size = static_cast<size_t>((count * bits + 7) / 8);
    if (bits < 8) {
      pack_nibbles(view, first, count, buffer);
    } else {
      gather_bytes(view, first, count, {buffer, size});
      if (!plain) apply_lazy_bits(view, {buffer, size});
    }
    XXH3_128bits_update(&state, buffer, size);
  }
  return to_digest(XXH3_128bits_digest(&state));
}

struct DigestStream::State {
  XXH3_state_t hash;
};

DigestStream::DigestStream() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->hash);
  XXH3_128bits_reset(&state_->hash);
}
DigestStream::~DigestStream() = default;
DigestStream::DigestStream(DigestStream&&) noexcept = default;
DigestStream& DigestStream::operator=(DigestStream&&) noexcept = default;

void DigestStream::update(ByteSpan bytes) {
  XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
}

Digest DigestStream::finish() const { return to_digest(XXH3_128bits_digest(&state_->hash)); }

Digest digest_bytes(ByteSpan bytes) { return to_digest(XXH3_128bits(bytes.data(), bytes.size())); }

std::string digest_text(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (size_t i = 0; i < 16; ++i) {
    text[15 - i] = kDigits[(digest.high >> (4 * i)) & 15u];
    text[31 - i] = kDigits[(digest.low >> (4 * i)) & 15u];
  }
  return text;
}

std::optional<Digest> parse_digest(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  uint64_t halves[2] = {};
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    unsigned digit = 0;
    if (c >= '0' && c <= '9')
      digit = static_cast<unsigned>(c - '0');
    else if (c >= 'a' && c <= 'f')
      digit = static_cast<unsigned>(c - 'a') + 10;
    else
      return std::nullopt;
    halves[i / 16] = halves[i / 16] << 4 | digit;
  }
  return Digest{halves[0], halves[1]};
}

}  // namespace assay::stats
