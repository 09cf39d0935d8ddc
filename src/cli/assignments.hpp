// SPDX-License-Identifier: Apache-2.0
// Assignments in front of a command given as a string: "OMP_NUM_THREADS=1 python run.py".
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace assay::cli {

/// Takes the words NAME=VALUE off the front of a command, as a shell does.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> take_assignments(
    std::vector<std::string>* command);

/// Variables of the environment for as long as it lives; what was there before comes back.
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const std::vector<std::pair<std::string, std::string>>& variables);
  ~ScopedEnvironment();
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace assay::cli
