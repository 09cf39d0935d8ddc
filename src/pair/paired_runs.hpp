// SPDX-License-Identifier: Apache-2.0
// A correspondence laid over two runs, for those that pair by rank, step and name of module.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pair/correspondence.hpp"
#include "run/run.hpp"

namespace assay::pair {

/// Two runs as a correspondence pairs them: mine has golden's ranks, steps and paths of modules,
/// and what the user left out is no operand any more. Every record keeps its index.
class PairedRuns {
 public:
  /// errors  Usage (a rank or step of the user that is not in a run)
  [[nodiscard]] static Result<PairedRuns> make(const run::Run& golden, const run::Run& mine,
                                               const Correspondence& pairs);
  /// False when both runs would be as they are.
  [[nodiscard]] static bool are_needed(const Correspondence& pairs);

  [[nodiscard]] const run::Run& golden() const { return golden_; }
  [[nodiscard]] const run::Run& mine() const { return mine_; }
  /// What mine calls golden's rank.
  [[nodiscard]] int rank_of_mine(int golden_rank) const {
    return ranks_ && ranks_->first == golden_rank ? ranks_->second : golden_rank;
  }
  /// What mine calls golden's step.
  [[nodiscard]] int64_t step_of_mine(int64_t golden_step) const;
  /// What mine calls golden's module, or an operator in it: "model.norm::aten.mul.Tensor.1".
  [[nodiscard]] std::string name_of_mine(std::string_view golden_name) const;

 private:
  PairedRuns(const run::Run& golden, const run::Run& mine) : golden_(golden), mine_(mine) {}
  void keep_ranks(const std::vector<int>& ranks);
  void use_ranks(const RankAlignment& ranks);
  Status use_steps(const std::vector<std::pair<int64_t, int64_t>>& steps);
  void use_modules(const std::vector<std::pair<std::string, std::string>>& modules);

  run::Run golden_;
  run::Run mine_;
  std::optional<std::pair<int, int>>
      ranks_;                              // (golden, mine), of single processes with other numbers
  std::map<int64_t, int64_t> mine_steps_;  // by golden's
  std::vector<std::pair<std::string, std::string>> modules_;
};

}  // namespace assay::pair
