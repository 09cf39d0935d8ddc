// SPDX-License-Identifier: Apache-2.0
// The tables of all groups made one, sorted by name at the first look-up.
#include "opcheck/registry.hpp"

#include <algorithm>
#include <vector>

namespace assay::opcheck {
namespace {

const std::vector<OperationRow>& table() {
  static const std::vector<OperationRow> sorted = [] {
    std::vector<OperationRow> all;
    for (const auto& group : {movement_operators(), elementwise_operators(), norm_operators(),
                              selection_operators(), product_operators(), attention_operators()})
      all.insert(all.end(), group.begin(), group.end());
    std::sort(all.begin(), all.end(),
              [](const OperationRow& a, const OperationRow& b) { return a.name < b.name; });
    return all;
  }();
  return sorted;
}

}  // namespace

std::span<const OperationRow> all_operators() { return table(); }

const OperationRow* find_operator(std::string_view name) {
  const std::vector<OperationRow>& all = table();
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const OperationRow& a, std::string_view wanted) { return a.name < wanted; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

}  // namespace assay::opcheck
