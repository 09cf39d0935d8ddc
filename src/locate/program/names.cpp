// SPDX-License-Identifier: Apache-2.0
// Names of levels and operators.
#include <algorithm>
#include <array>

#include "base/numbers.hpp"
#include "locate/program/program.hpp"

namespace assay::locate {

std::string_view level_name(CaptureLevel level) {
  constexpr std::string_view kNames[] = {"operators",     "leaf modules", "module outputs",
                                         "layer outputs", "statistics",   "nothing"};
  return kNames[static_cast<size_t>(level)];
}

bool is_transparent(std::string_view name) {
  constexpr std::array<std::string_view, 8> kTransparent = {
      "aten._to_copy.", "aten.to.",         "aten.clone.", "aten.alias.",
      "aten.detach.",   "aten.lift_fresh.", "aten.empty.", "aten.contiguous."};
  return std::ranges::any_of(kTransparent,
                             [name](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string operator_text(const Operator& one) {
  std::string text = one.name;
  const size_t dot = one.node.rfind('.');
  const std::optional<uint32_t> number =
      dot == std::string::npos ? std::nullopt : parse_number<uint32_t>(one.node.substr(dot + 1));
  if (number && *number > 0) text += " (" + std::to_string(*number + 1) + ")";
  return one.module.empty() ? text : text + " in " + one.module;
}

}  // namespace assay::locate
