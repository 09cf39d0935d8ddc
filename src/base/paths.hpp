// SPDX-License-Identifier: Apache-2.0
// Questions about names in the file system.
#pragma once
#include <string>

namespace assay {

/// Whether there is a file or folder; a link counts as what it leads to.
[[nodiscard]] bool exists(const std::string& path);
/// Whether the name is in use, if only by a link that leads nowhere.
[[nodiscard]] bool is_taken(const std::string& path);

}  // namespace assay
