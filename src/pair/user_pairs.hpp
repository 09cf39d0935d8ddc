// SPDX-License-Identifier: Apache-2.0
// What the user says corresponds (--ranks, --token-map, --map), laid over two runs.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "run/run.hpp"

namespace assay::pair {

/// It wins over every rule.
struct UserPairs {
  std::vector<int> ranks = {};                          // that are compared; empty: all
  std::vector<std::pair<int64_t, int64_t>> steps = {};  // (golden, mine); empty: found out
  /// Paths (golden, mine); the modules below go along.
  std::vector<std::pair<std::string, std::string>> modules = {};

  /// Entries of the map that speak of single tensors, or parts of them, and so of no module.
  size_t of_tensors = 0;

  [[nodiscard]] bool empty() const { return ranks.empty() && steps.empty() && modules.empty(); }
};

/// Indices of the records that a selector of --map names: a file (its last components are enough), a node, or "node:slot".
[[nodiscard]] std::vector<size_t> named_records(const run::Run& run, std::string_view selector);

/// The module path that all records of a selector have; empty: there is none, or there are several.
[[nodiscard]] std::string named_module(const run::Run& run, std::string_view selector);

/// Two runs as the user pairs them: mine has golden's steps and paths of modules, and what the user left out is no operand
/// any more. Every record keeps its index.
class UserPairedRuns {
 public:
  /// errors  Usage (a rank or step that is not in a run)
  [[nodiscard]] static Result<UserPairedRuns> make(const run::Run& golden, const run::Run& mine,
                                                   const UserPairs& pairs);

  [[nodiscard]] const run::Run& golden() const { return golden_; }
  [[nodiscard]] const run::Run& mine() const { return mine_; }
  /// What mine calls golden's step.
  [[nodiscard]] int64_t step_of_mine(int64_t golden_step) const;
  /// What mine calls golden's module, or an operator in it: "model.norm::aten.mul.Tensor.1".
  [[nodiscard]] std::string name_of_mine(std::string_view golden_name) const;

 private:
  UserPairedRuns(const run::Run& golden, const run::Run& mine) : golden_(golden), mine_(mine) {}
  Status keep_ranks(const std::vector<int>& ranks);
  Status use_steps(const std::vector<std::pair<int64_t, int64_t>>& steps);
  void use_modules(const std::vector<std::pair<std::string, std::string>>& modules);

  run::Run golden_;
  run::Run mine_;
  std::map<int64_t, int64_t> mine_steps_;  // by golden's
  std::vector<std::pair<std::string, std::string>> modules_;
};

}  // namespace assay::pair
