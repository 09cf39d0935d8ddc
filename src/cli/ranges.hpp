// SPDX-License-Identifier: Apache-2.0
// Numbers on the command line: what is no number, or outside of its range, is refused in one
// sentence.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/argparse.hpp"

namespace assay::cli {

inline constexpr int64_t kMaxJobs = 4096;

/// "expected a whole number from 0 to 4096, not '-3'"; empty when all is well.
[[nodiscard]] std::string whole_number_problem(std::string_view text, int64_t first, int64_t last);
/// "expected a number from -1 to 1, not 'nan'"; `last` may be infinite: "a number of at least 0".
[[nodiscard]] std::string number_problem(std::string_view text, double first, double last);

// The same as checks of options.
[[nodiscard]] inline Check whole_number(int64_t first, int64_t last) {
  return [=](std::string_view text) { return whole_number_problem(text, first, last); };
}
[[nodiscard]] inline Check number(double first, double last) {
  return [=](std::string_view text) { return number_problem(text, first, last); };
}

}  // namespace assay::cli
