// SPDX-License-Identifier: Apache-2.0
// The numbers of the C library's srand() and rand(), which samplers of the library draw from.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace assay::reference {

/// glibc's default generator, additive feedback over 31 words, without the process's own state.
/// source  glibc: stdlib/random_r.c (TYPE_3), as described by its documentation
class GlibcRandom {
 public:
  explicit GlibcRandom(uint32_t seed);
  /// The next number of rand(), in [0, 2^31).
  uint32_t next();
  /// The same over 2^31 - 1, in [0, 1].
  double next_fraction() { return next() / 2147483647.0; }

 private:
  std::array<uint32_t, 31> state_{};  // word i lies at i mod 31
  size_t at_ = 3;                     // of the word that changes next
};

}  // namespace assay::reference
