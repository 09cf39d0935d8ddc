// SPDX-License-Identifier: Apache-2.0
// Each function returns the sentence that refuses a text, or nothing when the number will do.
#include "cli/ranges.hpp"

#include <cmath>
#include <cstdio>

#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::cli {
namespace {

std::string text_of(double bound) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", bound);
  return text;
}

std::string expected(const std::string& what, std::string_view text) {
  return "expected " + what + ", not " + quoted(text);
}

}  // namespace

std::string whole_number_problem(std::string_view text, int64_t first, int64_t last) {
  const auto number = parse_number<int64_t>(text);
  if (number && first <= *number && *number <= last) return {};
  return expected("a whole number from " + std::to_string(first) + " to " + std::to_string(last),
                  text);
}

std::string number_problem(std::string_view text, double first, double last) {
  const auto number = parse_number<double>(text);
  if (number && first <= *number && *number <= last) return {};
  const std::string range = std::isinf(last)
                                ? "a number of at least " + text_of(first)
                                : "a number from " + text_of(first) + " to " + text_of(last);
  return expected(range, text);
}

}  // namespace assay::cli
