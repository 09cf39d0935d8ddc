// SPDX-License-Identifier: Apache-2.0
// The user's own conversions between memory formats, written in Python as the original takes them:
// {folder}/format_convert/convert_{FROM}_to_{TO}.py with convert(shape_from, shape_to, array) -> numpy.ndarray.
#pragma once
#include <optional>
#include <string>

#include "base/result.hpp"
#include "cli/convert/tensor_layout.hpp"
#include "formats/cann_dump.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::cli {

/// Path of the script for two formats; nothing when the folder is empty or has none.
[[nodiscard]] std::optional<std::string> format_script(const std::string& folder, int32_t from,
                                                       int32_t to);

/// Runs the script in a process of python_program(), which needs NumPy. `array` is one-dimensional,
/// in the stored order and in a type that NumPy has; shapes are lists; `shape_to` is the shape asked
/// for, else that of the framework. Weights with groups bring them as a fourth argument.
///
/// errors    Invalid: the script failed, or its result is no array (what it said is on stderr) |
///           NotFound: no Python | Io, NoSpace: the temporary files
[[nodiscard]] Result<Tensor> run_format_script(const std::string& script,
                                               const formats::CannTensor& tensor,
                                               const Layout& layout);

}  // namespace assay::cli
