// SPDX-License-Identifier: Apache-2.0
// What a mistyped word was probably meant to be.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// The known word that is nearest by insertions, deletions, replacements and swapped neighbours of
/// characters; empty when more than a third of the characters would have to change. Of equally near
/// ones the first.
[[nodiscard]] std::string nearest_word(std::string_view word,
                                       const std::vector<std::string>& known);

/// "unknown option --fromat; did you mean --format?", the question only where something is near.
/// `what` is "option" or "command"; a value behind '=' is left out.
[[nodiscard]] std::string unknown_word_text(std::string_view what, std::string_view word,
                                            const std::vector<std::string>& known);

}  // namespace assay
