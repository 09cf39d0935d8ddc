// SPDX-License-Identifier: Apache-2.0
// `assay overflow -d DUMPS -out FOLDER`: which operators of an overflow dump overflowed, the earliest first.
#pragma once
#include <string>
#include <vector>

namespace assay::cli {

/// returns   0: no operator overflowed, 1: some did, 2: wrong options or unreadable input, 130 after Ctrl-C
[[nodiscard]] int overflow_main(const std::string& program, const std::vector<std::string>& words);

}  // namespace assay::cli
