// SPDX-License-Identifier: Apache-2.0
#include "run/stages.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/text.hpp"
#include "run/layers.hpp"

namespace assay::run {
namespace {

using Stack = std::pair<std::string, std::string>;  // before and after the number

/// The layer whose name a name begins with.
std::optional<NumberedLayer> layer_in(std::string_view name) {
  std::optional<NumberedLayer> layer = layer_of_node(name);
  if (layer && !name.starts_with(layer->name())) return std::nullopt;
  return layer;
}

class Stages {
 public:
  explicit Stages(Run* run) : run_(*run) {}

  std::string number_on() {
    for (const auto& [rank, places] : run_.parallel) {
      const auto stage = places.find("pp");
      if (stage != places.end() && stage->second.size > 1) stage_of_[rank] = stage->second.rank;
    }
    if (stage_of_.empty()) return {};
    std::map<Stack, std::map<int64_t, std::set<int64_t>>> layers;  // by stage
    for (const TensorRecord& record : run_.records) {
      const auto stage = stage_of_.find(record.rank);
      if (stage == stage_of_.end()) return {};
      if (!known_[stage->second].insert(record.node.handle()).second) continue;
      if (const auto layer = layer_in(record.node))
        layers[{layer->before, layer->after}][stage->second].insert(layer->number);
    }
    for (const auto& [stack, stages] : layers) add_offsets(stack, stages);
    if (offsets_.empty()) return {};
    for (TensorRecord& record : run_.records) {
      record.node = renamed(record.rank, record.node);
      record.leaf = renamed(record.rank, record.leaf);
    }
    for (OperationRecord& operation : run_.operations) {
      operation.node = renamed(operation.rank, InternedText(operation.node)).str();
      operation.module = renamed(operation.rank, InternedText(operation.module)).str();
    }
    return counted(offsets_.begin()->second.size(), "stage") + " of the pipeline number their " +
           "layers from 0: they are numbered on, so that those of stage " +
           std::to_string(std::next(offsets_.begin()->second.begin())->first) + " begin with " +
           std::to_string(std::next(offsets_.begin()->second.begin())->second);
  }

 private:
  /// Numbers that two stages have mean that each counts for itself.
  void add_offsets(const Stack& stack, const std::map<int64_t, std::set<int64_t>>& stages) {
    std::set<int64_t> all;
    size_t count = 0;
    for (const auto& [stage, numbers] : stages) {
      all.insert(numbers.begin(), numbers.end());
      count += numbers.size();
    }
    if (stages.size() < 2 || all.size() == count) return;
    int64_t offset = 0;
    for (const auto& [stage, numbers] : stages) {
      offsets_[stack][stage] = offset;
      offset += *numbers.rbegin() + 1;
    }
  }

  InternedText renamed(int rank, InternedText name) {
    if (name.empty()) return name;
    const int64_t stage = stage_of_.at(rank);
    const auto [found, is_new] = renamed_[stage].try_emplace(name.handle(), name);
    if (!is_new) return found->second;
    const auto layer = layer_in(name);
    if (!layer) return name;
    const auto offsets = offsets_.find({layer->before, layer->after});
    if (offsets == offsets_.end()) return name;
    const std::string number = std::to_string(layer->number + offsets->second.at(stage));
    found->second = layer->named(number) + name.substr(layer->name().size());
    return found->second;
  }

  Run& run_;
  std::map<int, int64_t> stage_of_;                      // by rank
  std::map<int64_t, std::set<uint32_t>> known_;          // names that were looked at, by stage
  std::map<Stack, std::map<int64_t, int64_t>> offsets_;  // by stage
  std::map<int64_t, std::unordered_map<uint32_t, InternedText>> renamed_;
};

}  // namespace

std::string number_stages_on(Run* run) {
  return run->parallel.empty() ? std::string() : Stages(run).number_on();
}

}  // namespace assay::run
