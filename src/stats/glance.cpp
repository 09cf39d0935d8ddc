// SPDX-License-Identifier: Apache-2.0
// The places that are looked at come from a generator that starts from the size, so two looks at
// the same memory look at the same bytes.
#include "stats/glance.hpp"

#include <algorithm>

#include "base/xxhash.hpp"

namespace assay::stats {

uint64_t glance(ByteSpan bytes) {
  constexpr size_t kWhole = 16 * 1024;
  constexpr size_t kLine = 64;
  constexpr size_t kPiece = 1024;
  uint64_t hash = 0;
  if (bytes.size() <= kWhole) {
    hash = XXH3_64bits(bytes.data(), bytes.size());
  } else {
    const size_t most = 512 + bytes.size() / (128 * 1024);
    const size_t piece = std::max(kPiece, bytes.size() / most);
    uint64_t place = bytes.size();
    for (size_t begin = 0; begin + kLine <= bytes.size(); begin += piece) {
      place = place * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
      const size_t room = std::min(piece, bytes.size() - begin) - kLine + 1;
      const size_t at = begin + static_cast<size_t>(place >> 33) % room;
      hash = XXH3_64bits_withSeed(bytes.data() + at, kLine, hash);
    }
  }
  return hash != 0 ? hash : 1;
}

}  // namespace assay::stats
