// SPDX-License-Identifier: Apache-2.0
// A word of letters, digits and a few marks needs no quotes; inside quotes a single quote becomes
// '\''.
#include "base/shell_words.hpp"

namespace assay {

std::string in_shell_quotes(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_quote(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  const bool plain = !word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos;
  return plain ? std::string(word) : in_shell_quotes(word);
}

}  // namespace assay
