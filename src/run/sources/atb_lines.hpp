// SPDX-License-Identifier: Apache-2.0
// What the lines of a process recorded in the native layout say, as the folders of an ATB dump
// would say it.   docs/formats/native.md, "ATB"
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "run/natural_sort.hpp"
#include "run/record.hpp"
#include "run/sources/atb_tree_nodes.hpp"

namespace assay::run::sources {

class AtbLines {
 public:
  /// only_step   the run count that is read; empty: all
  explicit AtbLines(std::string only_step) : only_step_(std::move(only_step)) {}

  /// A tensor that was recorded twice is the later one, as its file would be.
  void add(TensorRecord record);
  void add(OperationRecord operation);

  /// By run count; AtbNodes::finish() is still to come.
  [[nodiscard]] std::map<std::string, AtbNodes, NaturalLess> take_steps() {
    return std::move(steps_);
  }

 private:
  using Place = std::tuple<uint32_t, uint32_t, Role, Moment>;  // handles of node and slot
  struct PlaceHash {
    size_t operator()(const Place& place) const noexcept;
  };
  struct Known {
    std::unordered_set<uint32_t> nodes;  // handles
    std::unordered_map<Place, size_t, PlaceHash> records;
  };

  [[nodiscard]] AtbNodes* nodes_of(const std::string& step, const std::string& node);

  std::string only_step_;
  std::map<std::string, AtbNodes, NaturalLess> steps_;
  std::map<std::string, Known> known_;
};

}  // namespace assay::run::sources
