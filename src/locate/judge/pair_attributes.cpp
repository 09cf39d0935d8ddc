// SPDX-License-Identifier: Apache-2.0
// What paired operators were told besides tensors.   docs/localisation.md, "Pair tests"
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "locate/judge/other_integers.hpp"
#include "locate/judge/pair_tests.hpp"
#include "locate/noise/kernel_rounding.hpp"
#include "locate/program/program_arguments.hpp"

namespace assay::locate {
namespace {

using reference::aten::Argument;
using reference::aten::ArgumentList;
using reference::aten::DTypeArgument;
using reference::aten::HostArgument;

constexpr double kRelative = 1e-6;

std::optional<double> number_of(const Argument& argument) {
  if (const auto* real = std::get_if<double>(&argument.value)) return *real;
  if (const auto* whole = std::get_if<int64_t>(&argument.value)) return static_cast<double>(*whole);
  return std::nullopt;
}

bool equal_reals(double golden, double mine) {
  if (std::isnan(golden) || std::isnan(mine)) return std::isnan(golden) && std::isnan(mine);
  if (golden == mine) return true;
  // Masks are filled with the lowest value of a type, or with infinity.
  if (std::min(std::abs(golden), std::abs(mine)) > kMaskValue)
    return std::signbit(golden) == std::signbit(mine);
  return std::abs(golden - mine) <= kRelative * std::max(std::abs(golden), std::abs(mine));
}

/// Types and places differ between precisions and machines.
bool is_of_host(const Argument& argument) {
  return std::holds_alternative<DTypeArgument>(argument.value) ||
         std::holds_alternative<HostArgument>(argument.value);
}

/// Truth values that are true in every schema that has them.
constexpr std::array<std::string_view, 6> kTrueByDefault = {
    "largest", "sorted", "unbiased", "count_include_pad", "left", "full_matrices"};

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_true_by_default(std::string_view name) {
  return std::ranges::find(kTrueByDefault, name) != kTrueByDefault.end();
}

/// What torch's schemas have as default, so that a program that says it and one that does not are
/// the same. An operator's record lacks what was not given, so that is the default itself.
bool is_default(std::string_view operator_name, std::string_view name, const Argument& argument) {
  if (std::holds_alternative<std::monostate>(argument.value) || is_of_host(argument)) return true;
  if (const auto* truth = std::get_if<bool>(&argument.value)) {
    return *truth == is_true_by_default(name);
  }
  if (const std::optional<double> number = number_of(argument)) {
    if (name == "dim" &&
        is_one_of(base_name(operator_name), {"topk", "sort", "kthvalue", "mode", "glu"}))
      return *number == -1;
    if (name == "value") return *number == 0 || *number == 1;  // of a padding, of addcmul
    return *number == (is_one_of(name, {"alpha", "beta", "step", "correction", "groups"}) ? 1 : 0);
  }
  const auto* list = std::get_if<ArgumentList>(&argument.value);
  return list != nullptr && list->empty();
}

/// Names of arguments of either side that are no tensor on the other.
std::set<std::string_view> names_of(const Operator& golden, const Operator& mine) {
  std::set<std::string_view> names;
  for (const auto& [name, value] : golden.attributes) names.insert(name);
  for (const auto& [name, value] : mine.attributes) names.insert(name);
  for (const Use& use : golden.inputs) names.erase(use.slot);
  for (const Use& use : mine.inputs) names.erase(use.slot);
  names.erase(
      "half_to_float");  // a cast in the kernel: which types there are differs between precisions
  return names;
}

/// Tensors of both sides have equal shapes. Behind data-dependent operators (routing to experts)
/// they need not, though the runs have.
bool equal_shapes(const PairContext& pair, const std::vector<Use>& theirs_all,
                  const std::vector<Use>& ours_all) {
  for (const Use& use : ours_all) {
    const auto partner = std::ranges::find(theirs_all, use.slot, &Use::slot);
    if (partner == theirs_all.end()) continue;
    const InternedDims theirs = pair.golden.run->records[partner->record].shape;
    const InternedDims ours = pair.mine.run->records[use.record].shape;
    if (theirs && ours && !(*theirs == *ours)) return false;
  }
  return true;
}

/// Within a loop over experts an index is the number of an expert that a token chose.
bool is_led_elsewhere(const PairContext& pair, const Operator& one) {
  return follows_other_integers(pair.golden, pair.mine, pair.pairing,
                                {one.module, one.rank, one.step, one.time, one.time});
}

/// Sizes of a view: -1 stands for whatever fits, and torch itself writes the number or -1 as the
/// strides have it.
bool equal_sizes(const Argument& golden, const Argument& mine) {
  const auto* theirs = std::get_if<ArgumentList>(&golden.value);
  const auto* ours = std::get_if<ArgumentList>(&mine.value);
  if (theirs == nullptr || ours == nullptr || theirs->size() != ours->size()) return false;
  for (size_t i = 0; i < ours->size(); ++i) {
    const auto* g = std::get_if<int64_t>(&(*theirs)[i].value);
    const auto* m = std::get_if<int64_t>(&(*ours)[i].value);
    if (g == nullptr || m == nullptr || (*g != *m && *g != -1 && *m != -1)) return false;
  }
  return true;
}

/// The same axis, counted from the beginning or from the end of tensors of as many axes.
bool equal_axes(const PairContext& pair, const Operator& golden, const Operator& mine,
                const Argument& theirs, const Argument& ours) {
  const auto* g = std::get_if<int64_t>(&theirs.value);
  const auto* m = std::get_if<int64_t>(&ours.value);
  if (g == nullptr || m == nullptr || golden.inputs.empty() || mine.inputs.empty()) return false;
  const size_t first = golden.inputs.front().record, second = mine.inputs.front().record;
  if (first >= pair.golden.run->records.size() || second >= pair.mine.run->records.size())
    return false;
  const InternedDims from = pair.golden.run->records[first].shape;
  const InternedDims to = pair.mine.run->records[second].shape;
  return from && to && from->size() == to->size() &&
         std::abs(*g - *m) == static_cast<int64_t>(to->size());
}

}  // namespace

bool is_place_or_size(std::string_view argument) {
  return is_one_of(argument, {"start", "end", "step", "size", "length", "index", "split_size",
                              "split_sizes", "repeats", "shape", "storage_offset", "stride",
                              "output_size", "diagonal", "pad", "self", "other", "value"});
}

bool equal_arguments(const Argument& golden, const Argument& mine, bool whole_numbers) {
  if (is_of_host(golden) || is_of_host(mine)) return true;
  const auto* golden_whole = std::get_if<int64_t>(&golden.value);
  const auto* mine_whole = std::get_if<int64_t>(&mine.value);
  if (golden_whole != nullptr && mine_whole != nullptr)
    return !whole_numbers || *golden_whole == *mine_whole;
  const std::optional<double> g = number_of(golden);
  const std::optional<double> m = number_of(mine);
  if (g && m) return equal_reals(*g, *m);
  const auto* golden_list = std::get_if<ArgumentList>(&golden.value);
  const auto* mine_list = std::get_if<ArgumentList>(&mine.value);
  if (golden_list != nullptr && mine_list != nullptr) {
    if (golden_list->size() != mine_list->size()) return !whole_numbers;
    for (size_t i = 0; i < mine_list->size(); ++i) {
      if (!equal_arguments((*golden_list)[i], (*mine_list)[i], whole_numbers)) return false;
    }
    return true;
  }
  if (!whole_numbers && (golden_whole != nullptr || mine_whole != nullptr)) return true;
  if (golden.value.index() != mine.value.index()) return false;
  if (const auto* truth = std::get_if<bool>(&golden.value))
    return *truth == std::get<bool>(mine.value);
  if (const auto* text = std::get_if<std::string>(&golden.value))
    return *text == std::get<std::string>(mine.value);
  return true;  // None
}

void test_attributes(const PairContext& pair, PairTests* tests) {
  for (size_t i = 0; i < pair.mine.operators.size() && !pair.stopped(); ++i) {
    const size_t partner = pair.pairing.golden_of[i];
    if (partner == kNone) continue;
    const Operator& golden = pair.golden.operators[partner];
    const Operator& mine = pair.mine.operators[i];
    const bool equal_inputs = equal_shapes(pair, golden.inputs, mine.inputs);
    const bool equal_results = equal_shapes(pair, golden.outputs, mine.outputs);
    for (const std::string_view name : names_of(golden, mine)) {
      const auto theirs = golden.attributes.find(name);
      const auto ours = mine.attributes.find(name);
      const bool in_golden = theirs != golden.attributes.end();
      const bool in_mine = ours != mine.attributes.end();
      const bool whole_numbers =
          equal_inputs &&
          (pair.pairing.same_shapes || (!mine.inputs.empty() && !is_place_or_size(name)));
      const auto is_equal = [&](bool whole) {
        return in_golden && in_mine
                   ? equal_arguments(theirs->second, ours->second, whole) ||
                         (name == "size" && equal_sizes(theirs->second, ours->second)) ||
                         (name.starts_with("dim") &&
                          equal_axes(pair, golden, mine, theirs->second, ours->second))
                   : is_default(mine.name, name, in_golden ? theirs->second : ours->second);
      };
      if (is_equal(whole_numbers) ||
          (is_place_or_size(name) && is_equal(false) && is_led_elsewhere(pair, mine)))
        continue;
      Finding finding = finding_at(pair, FindingKind::Attribute, i, partner);
      // Without a value on one side the default may be the same, where it is not known for certain.
      // A place or size that makes another shape may be that of a longer cache, whose rest is
      // masked.
      finding.hard = pair.pairing.equal_stream[i] &&
                     ((in_golden && in_mine) || is_true_by_default(name)) &&
                     (equal_results || !is_place_or_size(name));
      finding.confidence = finding.hard ? Confidence::High : Confidence::Medium;
      finding.slot = name;
      finding.detail =
          std::string(name) + ' ' + (in_mine ? argument_text(ours->second) : "not given") +
          " against golden's " + (in_golden ? argument_text(theirs->second) : "default");
      tests->findings.push_back(std::move(finding));
    }
  }
}

}  // namespace assay::locate
