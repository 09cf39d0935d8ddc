// SPDX-License-Identifier: Apache-2.0
// Which module a gap belongs to.   docs/localisation.md, "Cross substitution"
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace assay::locate {

/// True when `path` is `module` or lies inside it; everything lies inside the root "".
[[nodiscard]] bool is_inside(std::string_view path, std::string_view module);

/// "model.layers" of "model.layers.0"; the root is around what has no dot, and itself.
[[nodiscard]] constexpr std::string_view module_around(std::string_view module) {
  return module.substr(0, module.rfind('.') == std::string_view::npos ? 0 : module.rfind('.'));
}

/// The innermost module that holds all of them: the longest common prefix in whole components. ""
/// for none.
[[nodiscard]] std::string common_module(const std::vector<std::string_view>& paths);

struct Owner {
  std::string module;
  std::string also;  // second place it may be; "" for none
};

/// module   whose input or output the wrong value is
/// input    of the module; otherwise its output
/// regions  module paths of the replayed operators that depend on a floating value of mine: masks
///          and positions are not among them
/// returns  for an input the innermost module that holds the code between; the module itself when
///          there was none (the value was handed over, or has nothing to do with the run under
///          test's values). For an output the module, and as second place the module of code
///          outside it that the value went through.
[[nodiscard]] Owner name_owner(std::string_view module, bool input,
                               const std::vector<std::string_view>& regions);

}  // namespace assay::locate
