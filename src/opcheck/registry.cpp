// SPDX-License-Identifier: Apache-2.0
#include "opcheck/registry.hpp"

#include <algorithm>
#include <vector>

namespace assay::opcheck {
namespace {

const std::vector<Operator>& table() {
  static const std::vector<Operator> sorted = [] {
    std::vector<Operator> all;
    for (const auto& group : {movement_operators(), elementwise_operators(), norm_operators(),
                              selection_operators(), product_operators(), attention_operators()})
      all.insert(all.end(), group.begin(), group.end());
    std::sort(all.begin(), all.end(),
              [](const Operator& a, const Operator& b) { return a.name < b.name; });
    return all;
  }();
  return sorted;
}

}  // namespace

std::span<const Operator> all_operators() { return table(); }

const Operator* find_operator(std::string_view name) {
  const std::vector<Operator>& all = table();
  const auto found =
      std::lower_bound(all.begin(), all.end(), name,
                       [](const Operator& a, std::string_view wanted) { return a.name < wanted; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

}  // namespace assay::opcheck
