// SPDX-License-Identifier: Apache-2.0
// What a run remembers of how its program was started, so that it can be started again.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace assay::cli {

/// The object `host.command` of a manifest (docs/formats/native.md), as JSON: the program's words,
/// the folder and the variables it was started with, and what had started us, where that is a
/// launcher of several processes.
///
/// assignments   in front of the words
[[nodiscard]] std::string started_command(
    const std::vector<std::string>& words,
    const std::vector<std::pair<std::string, std::string>>& assignments);

/// The words of a launcher in front of our own, "mpirun -n 2" of `mpirun -n 2 assay dump ...`; empty
/// when these words do not end with ours.
///
/// launcher, ours   whole command lines; the first word of ours may be spelled otherwise
[[nodiscard]] std::vector<std::string> words_in_front(const std::vector<std::string>& launcher,
                                                      const std::vector<std::string>& ours);

}  // namespace assay::cli
