// SPDX-License-Identifier: Apache-2.0
// Work on a run in parts that other processes do, wherever the files are. A part has everything
// that its answer needs but the payloads.   docs/scale.md
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/interned_text.hpp"
#include "base/result.hpp"
#include "run/record.hpp"

namespace assay::run {

/// Tasks that are done together: pairs to compare, operations to check.
struct Part {
  std::vector<size_t> tasks;       // numbers, ascending
  uint64_t bytes = 0;              // of payload that they read, as far as records say
  std::vector<std::string> files;  // that it reads; each once
  bool crosses_ranks = false;      // puts tensors of several ranks together
};

struct PartLimits {
  uint64_t bytes = uint64_t{512} << 20;
  size_t tasks = 4096;
};

/// What a task is to the planner.
struct TaskPlace {
  size_t group = 0;  // tasks of several are not in one part: the sheet of a pair
  int rank = 0;
  int64_t step = 0;
  uint64_t bytes = 0;
  bool crosses_ranks = false;
};

/// Parts of tasks of one group, rank and step that are near to each other, none much beyond the
/// limits; what crosses ranks is in parts of its own. Every task is in one of them. Largest first,
/// so that no large one is left for the end; those of equal size in order of their tasks.
[[nodiscard]] std::vector<Part> plan_parts(std::span<const TaskPlace> tasks,
                                           const PartLimits& limits = {});

/// Files that the tasks of a part read, as they are met.
class PartFiles {
 public:
  void add(const TensorRecord& record) {
    if (record.bytes) files_.insert(record.bytes->file);
  }
  [[nodiscard]] std::vector<std::string> list() const { return {files_.begin(), files_.end()}; }

 private:
  std::set<InternedText> files_;
};

/// Who does parts.
class PartRunner {
 public:
  virtual ~PartRunner() = default;
  /// A part as it is asked for.
  struct Request {
    const Part& part;
    std::string body;  // for the function of its kind; begins with the kind's mark
  };
  /// What became of a part: the answer of that function, or why there is none. Interrupted: the
  /// user stopped it.
  using Outcome = Result<std::string>;
  /// Asks for request(i) when there is room for one more, for all i in [0, count), and hands every
  /// outcome to done(i, outcome), in any order, one at a time.
  /// errors   Interrupted, Io: what is not done is not going to be
  [[nodiscard]] virtual Status run(size_t count, const std::function<Request(size_t i)>& request,
                                   const std::function<void(size_t i, Outcome outcome)>& done) = 0;
};

}  // namespace assay::run
