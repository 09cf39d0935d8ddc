// SPDX-License-Identifier: Apache-2.0
// Records at the same place of two runs: of the same module or operation, in the same call, step,
// rank and slot.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "run/run.hpp"

namespace assay::pair {

inline constexpr size_t kNoPartner = SIZE_MAX;

/// A captured input, output, parameter or buffer whose values count.
[[nodiscard]] bool is_operand(const run::TensorRecord& record);

/// The name of a place in both runs and in profiles: path, call, step, role, slot and rank.
/// Parameters and buffers have no call and no step.
[[nodiscard]] std::string place_of(const run::Run& run, const run::TensorRecord& record);

/// Golden's operands by their places; of several at one place the first.
class Places {
 public:
  /// golden   outlives this
  explicit Places(const run::Run& golden);

  /// The record of golden at the place; kNoPartner: it has none.
  [[nodiscard]] size_t golden_at(std::string_view place) const;
  [[nodiscard]] size_t golden_of(const run::Run& mine, const run::TensorRecord& record) const {
    return golden_at(place_of(mine, record));
  }

 private:
  // There are as many as records: no texts, which are made again of those that have the hash.
  struct Entry {
    uint32_t hash;
    uint32_t record;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  const run::Run* golden_;
  std::vector<Entry> entries_;  // ascending
};

}  // namespace assay::pair
