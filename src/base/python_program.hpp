// SPDX-License-Identifier: Apache-2.0
// Which Python the native commands start.
#pragma once
#include <string>

namespace assay {

/// $ASSAY_PYTHON, else the python3 beside the running program, else the one on PATH ("python3").
[[nodiscard]] std::string python_program();

}  // namespace assay
