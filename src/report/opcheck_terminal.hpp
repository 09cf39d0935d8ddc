// SPDX-License-Identifier: Apache-2.0
// One screen for people: how many operations are right, which are not, why, and where the files
// are.
#pragma once
#include <string>
#include <vector>

#include "opcheck/check.hpp"

namespace assay::report {

struct OpcheckTerminalOptions {
  int width = 80;  // columns; nothing is longer except paths of files
  bool colour = false;
  size_t failed_count = 10;        // rows that are shown
  std::vector<std::string> files;  // written reports, named at the end
};

/// The last line is the verdict, a sentence.
[[nodiscard]] std::string opcheck_terminal_report(const opcheck::Report& report,
                                                  const OpcheckTerminalOptions& options);

/// "atb", "what rounding explains": what the results were held against.
[[nodiscard]] std::string judged_by(const opcheck::Report& report);

/// "right: all 27 operations", "wrong: 2 of 27 operations FAILED, ...; first 0_1 LinearOperation".
[[nodiscard]] std::string opcheck_verdict(const opcheck::Report& report);

}  // namespace assay::report
