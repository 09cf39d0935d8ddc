// SPDX-License-Identifier: Apache-2.0
// Where a program goes another way than golden's because it was handed other integers.
#pragma once
#include "locate/program/pairing.hpp"

namespace assay::locate {

/// A stretch of one module of a run, of an operator or a call.
struct Stretch {
  std::string_view module;
  int rank = 0;
  int64_t step = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// A module around it, or its own, was called with other integers than golden's, such as the
/// experts of each token: what golden did inside, one call an expert, is another story.
/// except  a call of mine that does not count
[[nodiscard]] bool follows_other_integers(const Program& golden, const Program& mine,
                                          const Pairing& pairing, const Stretch& stretch,
                                          size_t except = kNone);

}  // namespace assay::locate
