// SPDX-License-Identifier: Apache-2.0
// What `assay repeat` found out, for people and as JSON.   docs/commands/repeat.md
#pragma once
#include <string>

#include "repeat/outcome.hpp"

namespace assay::report {

/// The sentence, the elements, what is alike, what depends on the number of threads.
[[nodiscard]] std::string repeat_text(const repeat::Outcome& outcome, int width);

/// One object, indented, keys in the order of the document.
[[nodiscard]] std::string repeat_json(const repeat::Outcome& outcome);

/// Of two runs, for programs of our own: `alike` as above, and `rows` with `findings` and the
/// `states` of all operators.
[[nodiscard]] std::string pair_json(const repeat::Repetition& pair);

}  // namespace assay::report
