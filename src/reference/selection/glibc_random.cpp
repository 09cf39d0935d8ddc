// SPDX-License-Identifier: Apache-2.0
// A ring of 31 words, filled by a linear congruence: each number adds to the oldest word the one
// three back and drops the lowest bit. The first 310 numbers are thrown away.
//   docs/opcheck/selection.md, "Random numbers"
#include "reference/selection/glibc_random.hpp"

namespace assay::reference {

GlibcRandom::GlibcRandom(uint32_t seed) {
  constexpr int64_t kModulus = 2147483647;  // 2^31 - 1
  constexpr int kDiscarded = 310;
  // Words 0 to 30 by a linear congruence. A seed above 2^31 counts as negative, as C's conversion
  // has it.
  int64_t word = seed == 0 ? 1 : static_cast<int32_t>(seed);
  state_[0] = static_cast<uint32_t>(word);
  for (size_t i = 1; i < state_.size(); ++i) {
    word = 16807 * word % kModulus;
    if (word < 0) word += kModulus;
    state_[i] = static_cast<uint32_t>(word);
  }
  for (int i = 0; i < kDiscarded; ++i) next();
}

uint32_t GlibcRandom::next() {
  // r[i] = r[i - 31] + r[i - 3], from i = 34 on; r[31] to r[33] are r[0] to r[2].
  const size_t three_back = (at_ + state_.size() - 3) % state_.size();
  state_[at_] += state_[three_back];
  const uint32_t result = state_[at_] >> 1;
  at_ = (at_ + 1) % state_.size();
  return result;
}

}  // namespace assay::reference
