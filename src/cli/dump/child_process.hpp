// SPDX-License-Identifier: Apache-2.0
// Runs the user's program as if nobody stood in between: same terminal, same signals, its exit
// status.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace assay::cli {

/// A variable and its value in the program's environment; nothing: removed.
using EnvironmentChange = std::pair<std::string, std::optional<std::string>>;

struct ChildEnd {
  pid_t pid = 0;
  int exit_status = 0;  // of the program, or 128 + signal
  int signal = 0;       // that ended it, 0 for none
};

/// Starts command[0], searched on PATH, with our stdin, stdout and stderr, and waits for its end.
/// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 that somebody sends to us meanwhile are
/// passed on; those of the terminal reach the program by themselves. Our own handlers and signal
/// mask are as before afterwards.
///
/// errors   NotFound | Permission | Io: the program was not started
[[nodiscard]] Result<ChildEnd> run_program(const std::vector<std::string>& command,
                                           const std::vector<EnvironmentChange>& changes);

/// The file that running command[0] would execute; empty when there is none.
[[nodiscard]] std::string find_program(const std::string& name);

}  // namespace assay::cli
