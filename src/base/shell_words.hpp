// SPDX-License-Identifier: Apache-2.0
// Words as a POSIX shell reads them.
#pragma once
#include <string>
#include <string_view>

namespace assay {

/// The word in single quotes.
[[nodiscard]] std::string in_shell_quotes(std::string_view word);
/// The same only where a shell would read the word otherwise.
[[nodiscard]] std::string shell_quote(std::string_view word);

}  // namespace assay
