// SPDX-License-Identifier: Apache-2.0
// Which operator and which call of a module in one program is which of the other's.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "pair/places.hpp"

namespace assay::pair {

/// One execution of an operator, or of a module.
struct Execution {
  int rank = 0;
  int64_t step = 0;
  std::string_view module;  // of an operator: the one that it runs in
  uint32_t call = 0;        // of the module in the step
  // of an operator; empty: it passes values on, and is paired with none
  std::string_view name = {};
};

/// kNoPartner where the other side has none.
struct OperatorPairs {
  std::vector<size_t> golden_of;  // by operator of mine
  std::vector<size_t> mine_of;    // by operator of golden
  /// By operator of mine: both sides ran operators of equal names in its call of the module.
  std::vector<bool> equal_stream;
  size_t paired = 0;    // operators of mine that have a name and a partner
  size_t unpaired = 0;  // and no partner
};

/// In each call of a module by name and order: sequences that differ are aligned by longest
/// matching blocks.
[[nodiscard]] OperatorPairs pair_operators(std::span<const Execution> golden,
                                           std::span<const Execution> mine);

struct CallPairs {
  std::vector<size_t> golden_of;  // by call of mine
  std::vector<size_t> mine_of;
};
[[nodiscard]] CallPairs pair_calls(std::span<const Execution> golden,
                                   std::span<const Execution> mine);

}  // namespace assay::pair
