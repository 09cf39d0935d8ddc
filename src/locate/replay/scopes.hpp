// SPDX-License-Identifier: Apache-2.0
// A difference is a fault where the smallest module around it does not compute golden's function.
//   docs/localisation.md, "Functions decide"
#pragma once
#include <map>
#include <set>

#include "locate/replay/value_judge.hpp"

namespace assay::locate {

struct Closed {
  /// By boundary: it is not what golden's operators make of the values before it, and a module
  /// around it returns what golden's program makes of that module's inputs.
  std::vector<bool> values;
  std::set<std::string> leaves;  // parameters and buffers of mine that are others
  std::set<size_t> arguments;    // of mine's operators
  /// Leaves, and by boundary values, that have no effect which could be seen: what else is open comes
  /// before them.
  std::set<std::string> idle;
  std::set<size_t> idle_values;
  /// Leaves that are written otherwise and wrong besides: what they should be, written so.
  std::map<std::string, Tensor> expected;
  std::map<std::string, size_t> modules;  // that closed something: how many differences
};

/// Closes what it can, from the innermost modules outwards, and judges their outputs anew.
///
/// judged  by boundary of the replay
[[nodiscard]] Closed close_openings(const Program& golden, const Program& mine,
                                    const Pairing& pairing, const WalkOptions& options,
                                    const Replay& replay, MemoryGate* gate,
                                    std::vector<Judged>* judged);

}  // namespace assay::locate
