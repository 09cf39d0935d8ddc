// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "reference/ggml/operators.hpp"

namespace assay::reference::ggml {
namespace {

const std::vector<Operator>& table() {
  static const std::vector<Operator> joined = [] {
    std::vector<Operator> rows;
    for (const auto family : {arithmetic_operators(), activation_operators(), norm_operators(),
                              movement_operators(), selection_operators(), image_operators(),
                              product_operators(), rope_operators(), attention_operators()})
      rows.insert(rows.end(), family.begin(), family.end());
    std::ranges::sort(rows, {}, &Operator::name);
    return rows;
  }();
  return joined;
}

const Operator* lookup(std::string_view name) {
  const auto found = std::ranges::lower_bound(table(), name, {}, &Operator::name);
  return found == table().end() || found->name != name ? nullptr : &*found;
}

}  // namespace

std::span<const aten::Overload> overloads() {
  static const std::vector<aten::Overload> rows = [] {
    std::vector<aten::Overload> made;
    for (const Operator& one : table())
      made.push_back({one.name, one.kind, one.evaluate, one.view});
    return made;
  }();
  return rows;
}

std::vector<std::string_view> known_operators() {
  std::vector<std::string_view> names;
  for (const Operator& one : table()) names.push_back(one.name);
  return names;
}

bool has_rounding(std::string_view name) {
  const Operator* one = lookup(name);
  return one != nullptr && one->rounding != nullptr;
}

Result<Magnitudes> rounding(const aten::Call& call, int jobs) {
  const Operator* one = lookup(call.name);
  if (one == nullptr || one->rounding == nullptr)
    return fail(in_operator(
        call.name,
        {Errc::Unsupported, {}, std::nullopt, "no rounding errors but that of the result"}));
  return one->rounding(Arguments(call), jobs);
}

}  // namespace assay::reference::ggml
