// SPDX-License-Identifier: Apache-2.0
// The non-tensor arguments of a captured operator.   docs/formats/native.md, "Operator level"
#pragma once
#include <string_view>

#include "locate/program/program.hpp"

namespace assay::locate {

/// Fills attributes and list_sizes of `one` from the `args` object of its line. What is not
/// understood is left out and named in `problem`; nothing in the text is trusted.
/// returns  the slots of tensors that the arguments name
[[nodiscard]] std::vector<std::string> read_arguments(std::string_view json, Operator* one);

/// An argument as people read it: "1e-05", "[1, -1]", "bfloat16".
[[nodiscard]] std::string argument_text(const reference::aten::Argument& argument);

}  // namespace assay::locate
