// SPDX-License-Identifier: Apache-2.0
// Module paths are compared in whole components: "layers.1" is not around "layers.10".
#include "locate/program/owner.hpp"

#include <algorithm>

namespace assay::locate {

bool is_inside(std::string_view path, std::string_view module) {
  if (module.empty()) return true;
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

std::string common_module(const std::vector<std::string_view>& paths) {
  if (paths.empty()) return {};
  std::string_view common = paths.front();
  for (const std::string_view path : paths) {
    while (!is_inside(path, common)) {
      const size_t dot = common.rfind('.');
      common = dot == std::string_view::npos ? std::string_view() : common.substr(0, dot);
    }
  }
  return std::string(common);
}

Owner name_owner(std::string_view module, bool input,
                 const std::vector<std::string_view>& regions) {
  Owner owner;
  if (input) {
    owner.module = regions.empty() ? std::string(module) : common_module(regions);
    return owner;
  }
  owner.module = module;
  std::vector<std::string_view> outside;
  std::ranges::copy_if(regions, std::back_inserter(outside),
                       [&](std::string_view path) { return !is_inside(path, module); });
  if (!outside.empty()) owner.also = common_module(outside);
  return owner;
}

}  // namespace assay::locate
