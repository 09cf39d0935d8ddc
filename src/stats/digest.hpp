// SPDX-License-Identifier: Apache-2.0
// Content identity of a tensor: XXH3-128 of its bytes in element order.
#pragma once
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::stats {

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

/// Reads as a std::optional<const Digest>, in the memory of a digest: the one of zeros only is none.
class MaybeDigest {
 public:
  MaybeDigest() = default;
  MaybeDigest(std::nullopt_t) {}
  MaybeDigest(const Digest& digest) : digest_(digest) {}
  MaybeDigest(const std::optional<Digest>& digest) : digest_(digest.value_or(Digest())) {}

  [[nodiscard]] bool has_value() const { return digest_ != Digest(); }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] const Digest& operator*() const { return digest_; }
  [[nodiscard]] const Digest* operator->() const { return &digest_; }
  void reset() { digest_ = {}; }
  operator std::optional<Digest>() const {
    return has_value() ? std::optional(digest_) : std::nullopt;
  }
  friend auto operator<=>(const MaybeDigest&, const MaybeDigest&) = default;

 private:
  Digest digest_;
};

/// Hashes the C-order element bytes (strided views are gathered block by block, so equal values in
/// another layout give the same digest). Shape and dtype do not take part: compare them as well.
/// Lazy conj/neg bits are applied.
[[nodiscard]] Digest digest(const TensorView& view);
/// The digest of bytes that come in pieces.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(DigestStream&&) noexcept;
  DigestStream& operator=(DigestStream&&) noexcept;
  void update(ByteSpan bytes);
  [[nodiscard]] Digest finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
[[nodiscard]] Digest digest_bytes(ByteSpan bytes);

/// 32 lower-case hex digits, high half first: the canonical text of XXH3-128.
[[nodiscard]] std::string digest_text(const Digest& digest);
[[nodiscard]] std::optional<Digest> parse_digest(std::string_view text);

}  // namespace assay::stats
