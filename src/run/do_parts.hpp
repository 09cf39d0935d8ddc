// SPDX-License-Identifier: Apache-2.0
// Work of any kind in parts: planned, handed to a runner, taken back.   docs/scale.md
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "run/parts.hpp"

namespace assay::run {

/// The tasks of a command, by their numbers.
struct PartWork {
  size_t count = 0;
  /// Whether everything that a task needs, but payloads, can be packed.
  std::function<bool(size_t task)> can_be_sent;
  std::function<TaskPlace(size_t task)> place_of;
  std::function<std::vector<std::string>(const Part& part)> files_of;
  std::function<std::string(const Part& part)> pack;
  /// The answer to what pack() gave, or why there is none; one part at a time.
  std::function<void(const Part& part, PartRunner::Outcome outcome)> take;
  std::function<void(size_t done, size_t total)> progress = {};  // in tasks; may be empty
};

/// Has the runner do the tasks that can be sent.
///
/// returns  the numbers of those that are left to this process, ascending
/// errors   of PartRunner::run()
[[nodiscard]] Result<std::vector<size_t>> do_parts(PartRunner& runner, const PartWork& work);

}  // namespace assay::run
