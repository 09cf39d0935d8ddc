// SPDX-License-Identifier: Apache-2.0
// Which tokens of two runs can still be compared behind a router: where two experts are nearly
// equal rounding decides, and everything computed from that token, in later layers by every token
// after it, is another value.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "run/record.hpp"

namespace assay::locate {

/// Fed with the records of mine in their order.
class ExpertChoices {
 public:
  /// Notes an integer result [tokens, k] of a module (numbers of experts) that differs from
  /// golden's. Of results that are known by their statistics only, nothing behind one that differs
  /// can be compared.
  void see(const run::TensorRecord& golden, const run::TensorRecord& mine);
  /// The same ahead of time, for the router's other results: what it returns per choice stands
  /// before the choices.
  void see_ahead(const run::TensorRecord& golden, const run::TensorRecord& mine);
  /// True for results that see() takes for choices.
  [[nodiscard]] static bool is_choice(const run::TensorRecord& record);
  /// How many leading elements of a value that comes now are of tokens before the first other
  /// choice: all of them (the largest int64) when every choice so far was the same; 0 when none is,
  /// or the value has no axis of tokens.
  [[nodiscard]] int64_t comparable_elements(const run::TensorRecord& mine) const;

 private:
  static constexpr int64_t kAll = INT64_MAX;
  /// The same experts in another order: computes the same, but what lies per choice is permuted.
  struct Reordered {
    std::string module;  // around the router
    int64_t tokens = 0;
    int64_t same = 0;  // tokens before the first other order
    int64_t width = 0;
  };
  /// Of one rank, within the step that is read.
  struct StepChoices {
    int64_t step = -1;
    int64_t tokens = 0;   // of the step; 0: unknown
    int64_t same = kAll;  // tokens before the first other choice
    // routers that chose otherwise in earlier steps: caches carry it on from there
    std::set<std::string> other;
    std::set<std::string> now;  // the same in this step
    Reordered reordered;
  };

  StepChoices& step_of(const run::TensorRecord& mine);

  std::map<int, StepChoices> ranks_;
};

}  // namespace assay::locate
