// SPDX-License-Identifier: Apache-2.0
// Beside the index of records by place and node: what the original's rules read out of file names,
// such as "outtensor0" or "input_1_0".
#include "pair/side.hpp"

#include <algorithm>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "run/load.hpp"

namespace assay::pair {
namespace {

using run::TensorRecord;

// Role and slot of "outtensor0", "input_1_0", "output"; nothing for words that name no tensor.
std::optional<std::pair<Role, std::string>> parse_stem(std::string_view stem) {
  for (const auto& [prefix, role] : {std::pair<std::string_view, Role>{"outtensor", Role::Output},
                                     {"intensor", Role::Input},
                                     {"output", Role::Output},
                                     {"input", Role::Input}}) {
    if (!stem.starts_with(prefix)) continue;
    std::string slot(stem.substr(prefix.size()));
    if (slot.starts_with('_')) slot.erase(0, 1);
    std::replace(slot.begin(), slot.end(), '_', '.');
    return std::pair(role, slot);
  }
  return std::nullopt;
}

bool is_plain_slot(const TensorRecord& record) {
  return !record.slot.ends_with(".before") && !record.slot.ends_with(".after");
}

}  // namespace

MatchSide::MatchSide(const run::Run& run_of_side, bool with_trees, bool short_models)
    : run(run_of_side), model_starts(model_starts_of(run_of_side)) {
  used.resize(run.records.size());
  shapes_.resize(run.records.size());
  if (!with_trees) return;
  trees = trees_of(run);
  for (const Tree& tree : trees) layers.push_back(find_layers(tree, short_models));
}

const NodeRecords& MatchSide::nodes_at(const Place& place) const {
  static const NodeRecords none;
  const auto found = places.find(place);
  return found == places.end() ? none : found->second;
}

StepParts MatchSide::steps_of(int rank) const {
  StepParts steps;
  for (const auto& [place, nodes] : places) {
    if (place.rank == rank) steps[place.step].insert(place.part);
  }
  return steps;
}

const std::optional<Dims>& MatchSide::shape_of(size_t record) {
  std::optional<std::optional<Dims>>& known = shapes_[record];
  if (!known) {
    // A tiled record has the shape of its memory; what is compared is the plain tensor inside it.
    if (run.records[record].memory_format == "fractal_nz") return known.emplace(std::nullopt);
    known.emplace(run.records[record].shape);
    if (!*known && run.records[record].bytes) {
      TensorRecord copy = run.records[record];
      if (run::load_header(copy)) *known = copy.shape;
    }
  }
  return *known;
}

std::optional<int64_t> MatchSide::element_count_of(size_t record) {
  const std::optional<Dims>& shape = shape_of(record);
  return shape ? element_count(*shape) : std::nullopt;
}

std::vector<size_t> records_at(const run::Run& run, const NodeRecords& nodes,
                               const std::string& node, const Location& location,
                               bool drop_nested) {
  std::vector<size_t> out;
  const auto found = nodes.find(node);
  if (found == nodes.end()) return out;
  const auto stem = parse_stem(location);
  const bool all = location == "outputs" || location == "inputs";
  const Role role = location == "inputs" ? Role::Input : stem ? stem->first : Role::Output;
  for (const size_t i : found->second) {
    const TensorRecord& record = run.records[i];
    if (record.role != role || !is_plain_slot(record)) continue;
    if (!all && (!stem || record.slot != stem->second)) continue;
    if (all && drop_nested && record.slot.find('.') != std::string::npos) continue;
    out.push_back(i);
  }
  std::sort(out.begin(), out.end(), [&](size_t a, size_t b) {
    const TensorRecord& first = run.records[a];
    const TensorRecord& second = run.records[b];
    return std::tuple(first.call, slot_order(first.slot), a) <
           std::tuple(second.call, slot_order(second.slot), b);
  });
  return out;
}

std::string file_stem(const TensorRecord& record) {
  std::string text(role_name(record.role));
  if (!record.slot.empty()) text += "_" + record.slot;
  std::replace(text.begin(), text.end(), '.', '_');
  return text;
}

std::string path_in_step(const run::Run& run, const TensorRecord& record) {
  if (!run.has(run::Trait::AtbOperations)) return record.node + "/" + file_stem(record) + ".pth";
  const bool is_output = record.role == Role::Output;
  const bool after =
      is_output ? !record.slot.ends_with(".before") : record.slot.ends_with(".after");
  const std::string index = record.slot.substr(0, record.slot.find('.'));
  return record.node + (after ? "/after/" : "/before/") + (is_output ? "outtensor" : "intensor") +
         index + ".bin";
}

std::vector<std::pair<int64_t, std::string>> slot_order(const std::string& slot) {
  std::vector<std::pair<int64_t, std::string>> key;
  for (const std::string_view part : split(slot, '.')) {
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    const std::optional<int64_t> number = digits ? parse_number<int64_t>(part) : std::nullopt;
    key.emplace_back(number.value_or(-1), std::string(part));
  }
  return key;
}

}  // namespace assay::pair
