// SPDX-License-Identifier: Apache-2.0
// The nodes of a model, to which tensors belong: what a tensor is to its node, and how the name of an
// operator's node begins.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace assay {

/// What a tensor is to its node.
enum class Role : uint8_t { Input, Output, Weight, Buffer };
inline constexpr std::array<std::string_view, 4> kRoleNames = {"input", "output", "weight",
                                                               "buffer"};
[[nodiscard]] constexpr std::string_view role_name(Role role) {
  return kRoleNames[static_cast<size_t>(role)];
}

/// Between the path of a module and an operator that ran in it: "model.norm::aten.mul.Tensor.1".
inline constexpr std::string_view kOperatorMark = "::";
/// The module in front of the mark; all of a node that is no operator.
[[nodiscard]] constexpr std::string_view module_of_node(std::string_view node) {
  return node.substr(0, node.find(kOperatorMark));
}

}  // namespace assay
