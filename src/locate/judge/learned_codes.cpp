// SPDX-License-Identifier: Apache-2.0
// Every reading (which leaf has the codes, the scale, the zero point) that the sizes of the leaves
// allow is tried on a few modules spread over the model. One that is right in most of them stays.
#include "locate/judge/learned_codes.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "locate/judge/coded_weights.hpp"
#include "locate/program/pairing.hpp"

namespace assay::locate {
namespace {

using pair::CodeNames;
using pair::Coding;
using run::TensorRecord;

/// Modules that each reading is tried on.
constexpr size_t kModulesRead = 6;

/// A weight of golden that mine has integers for.
struct Place {
  std::string name;    // of the weight
  std::string module;  // with the point behind it
  size_t golden = kNone;
};

bool is_real(const TensorRecord& record) { return record.dtype && is_float(*record.dtype); }

std::vector<Place> places_of(const Program& golden, const Program& mine) {
  std::vector<Place> places;
  for (const auto& [name, record] : golden.leaves) {
    const TensorRecord& weight = golden.run->records[record];
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos || !is_real(weight) || !weight.shape || weight.shape->size() < 2 ||
        mine.coded->find(name) != nullptr)
      continue;
    const auto own = mine.leaves.find(name);
    if (own != mine.leaves.end() && is_real(mine.run->records[own->second])) continue;
    places.push_back({name, name.substr(0, dot + 1), record});
  }
  return places;
}

/// Every reading that the sizes of a module's leaves allow.
std::vector<CodeNames> readings_of(const Program& mine, const Place& place, int64_t count) {
  std::map<std::string, const TensorRecord*> leaves;
  for (auto leaf = mine.leaves.lower_bound(place.module);
       leaf != mine.leaves.end() && leaf->first.starts_with(place.module); ++leaf)
    leaves.emplace(leaf->first.substr(place.module.size()), &mine.run->records[leaf->second]);
  std::vector<CodeNames> readings;
  for (const auto& [codes, record] : leaves) {
    const int64_t own = elements_of(*record);
    if (!record->dtype || info(*record->dtype).element_bits != 8 ||
        (own != count && 2 * own != count))
      continue;
    for (const auto& [scale, scales] : leaves) {
      const int64_t groups = elements_of(*scales);
      if (scale == codes || !is_real(*scales) || groups == 0 || groups >= count ||
          count % groups != 0)
        continue;
      CodeNames names{place.name.substr(place.module.size()), codes, scale, {}, Coding::Codes};
      readings.push_back(names);
      if (2 * own == count) {
        names.coding = Coding::Levels;
        readings.push_back(names);
        names.coding = Coding::Codes;
      }
      for (const auto& [zero, zeros] : leaves) {
        if (zero == codes || zero == scale || elements_of(*zeros) != groups) continue;
        names.zero = zero;
        readings.push_back(names);
      }
    }
  }
  return readings;
}

auto key_of(const CodeNames& names) {
  return std::tie(names.weight, names.codes, names.scale, names.zero, names.coding);
}

}  // namespace

void learn_codes(const Program& golden, Program* mine) {
  if (mine->coded == nullptr || mine->run->has(run::Trait::WithoutValues)) return;
  const std::vector<Place> places = places_of(golden, *mine);
  if (places.empty()) return;
  std::vector<CodeNames> readings;
  std::vector<const Place*> asked;  // those that have a reading, spread over the model
  for (const Place& place : places) {
    std::vector<CodeNames> more =
        readings_of(*mine, place, elements_of(golden.run->records[place.golden]));
    if (more.empty()) continue;
    asked.push_back(&place);
    readings.insert(readings.end(), more.begin(), more.end());
  }
  std::ranges::sort(readings, {}, key_of);
  const auto same = std::ranges::unique(
      readings, [](const CodeNames& a, const CodeNames& b) { return key_of(a) == key_of(b); });
  readings.erase(same.begin(), same.end());
  const size_t count = std::min(asked.size(), kModulesRead);
  size_t most = 0;
  std::shared_ptr<const pair::CodedLeaves> best;
  for (const CodeNames& names : readings) {
    auto coded = std::make_shared<const pair::CodedLeaves>(*mine->run, mine->leaves, names);
    size_t right = 0;
    for (size_t i = 0; i < count; ++i) {
      const Place& place = *asked[i * asked.size() / count];
      const pair::Weight* weight = coded->find(place.name);
      if (weight == nullptr) continue;
      const auto steps = step_difference(*coded, *weight, golden.run->records[place.golden]);
      if (steps && steps->half_steps <= kWeightLimit) ++right;
    }
    if (right <= most) continue;
    most = right;
    best = std::move(coded);
  }
  if (2 * most > count) mine->coded = std::move(best);
}

}  // namespace assay::locate
