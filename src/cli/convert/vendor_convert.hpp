// SPDX-License-Identifier: Apache-2.0
// `assay convert` with the grammar of the original's converter: `-d DUMP -out FOLDER -t npy ...`, and of the one before
// it: `-target numpy -type offline -i DUMP -o FOLDER`.
#pragma once
#include <string>
#include <vector>

namespace assay::cli {

/// True when the words use that grammar: one of its options with one dash stands among them.
[[nodiscard]] bool is_vendor_convert(const std::vector<std::string>& words);

/// returns   the original's result code, ConvertCode; 2 for a command line that cannot be parsed; 130 after Ctrl-C
[[nodiscard]] int vendor_convert_main(const std::string& program,
                                      const std::vector<std::string>& words);

}  // namespace assay::cli
