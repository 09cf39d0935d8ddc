// SPDX-License-Identifier: Apache-2.0
// Both names are walked together; where both have digits the longer run of them, without leading
// zeros, is the larger number.
#include "run/natural_sort.hpp"

namespace assay::run {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The run of digits that starts at `start`, without leading zeros; `*end` is where it stops.
std::string_view number_at(std::string_view text, size_t start, size_t* end) {
  size_t stop = start;
  while (stop < text.size() && is_digit(text[stop])) ++stop;
  while (start + 1 < stop && text[start] == '0') ++start;
  *end = stop;
  return text.substr(start, stop - start);
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view left = number_at(a, i, &i);
      const std::string_view right = number_at(b, j, &j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else if (a[i] != b[j]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    } else {
      ++i;
      ++j;
    }
  }
  const bool a_ended = i == a.size();
  const bool b_ended = j == b.size();
  if (a_ended != b_ended) return a_ended;
  return a < b;
}

}  // namespace assay::run
