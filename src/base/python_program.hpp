// SPDX-License-Identifier: Apache-2.0
// Which Python the native commands start.
#pragma once
#include <string>

namespace assay {

/// $ASSAY_PYTHON, else what was named by use_python_program(), else the python3 beside the running program, else the one on PATH ("python3").
[[nodiscard]] std::string python_program();

/// For a process that is a Python itself: its interpreter, with the packages that it sees.
void use_python_program(std::string path);

}  // namespace assay
