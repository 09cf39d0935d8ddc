// SPDX-License-Identifier: Apache-2.0
// Words are compared without the dashes in front of them; very long ones and names of one letter
// get no suggestion.
#include "base/suggest.hpp"

#include <algorithm>

namespace assay {
namespace {

/// Optimal string alignment distance: Levenshtein's, and two swapped neighbours are one change.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before;
  std::vector<size_t> previous(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> row(b.size() + 1);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = previous[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::move(previous);
    previous = std::move(row);
  }
  return previous.back();
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kLongestTyped = 64;
  const std::string_view typed = without_dashes(word);
  if (typed.empty() || typed.size() > kLongestTyped) return {};
  std::string best;
  size_t least = std::max<size_t>(1, typed.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::string_view name = without_dashes(candidate);
    if (name.size() < 2) continue;  // one letter is near to everything
    const size_t changes = distance(typed, name);
    if (changes >= least) continue;
    least = changes;
    best = candidate;
  }
  return best;
}

std::string unknown_word_text(std::string_view what, std::string_view word,
                              const std::vector<std::string>& known) {
  const std::string_view name = word.substr(0, word.find('='));
  std::string text = "unknown " + std::string(what) + " " + std::string(name);
  const std::string near = nearest_word(name, known);
  return near.empty() ? text : text + "; did you mean " + near + "?";
}

}  // namespace assay
