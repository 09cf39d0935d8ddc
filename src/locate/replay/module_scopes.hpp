// SPDX-License-Identifier: Apache-2.0
// The module calls around recorded values, and what lies inside of them.
//   docs/localisation.md, "Functions decide"
#pragma once
#include <map>
#include <string>
#include <vector>

#include "locate/replay/replay.hpp"

namespace assay::locate {

class ModuleScopes {
 public:
  using Calls = std::vector<size_t>;  // indices into the run under test's calls

  /// Both outlive it.
  ModuleScopes(const Program& mine, const Replay& replay);

  /// 0 for the root.
  [[nodiscard]] static size_t depth_of(std::string_view module);

  [[nodiscard]] const ModuleCall& call_of(size_t boundary) const {
    return mine_.calls[replay_.boundaries()[boundary].call];
  }
  /// The calls of a module in order; none: it was not called.
  [[nodiscard]] const Calls& calls(int rank, const std::string& module) const;
  /// The outputs of a call that can be judged, as boundaries.
  [[nodiscard]] const std::vector<size_t>& outputs_of(size_t call) const;
  /// The first call of the module that ends behind the value; kNone: none does.
  [[nodiscard]] size_t call_around(int rank, const std::string& module, uint64_t time) const;
  [[nodiscard]] bool is_within(size_t boundary, int rank, const std::string& module) const;
  /// Marks the values between the inputs and outputs of all calls of a module.
  void drop_inside(int rank, const std::string& module, std::vector<bool>* dropped) const;

 private:
  const Program& mine_;
  const Replay& replay_;
  std::map<std::pair<int, std::string>, Calls> calls_;  // by rank and module, in order
  std::map<size_t, std::vector<size_t>> outputs_of_;    // boundaries, by call
};

}  // namespace assay::locate
