// SPDX-License-Identifier: Apache-2.0
// A comparison in parts that other processes do, wherever the files are: a part has everything
// that its rows need but the payloads, and its result is the rows.   docs/scale.md
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compare/compare.hpp"
#include "compare/pair_comparer.hpp"

namespace assay::compare {

/// Pairs that are compared together.
struct Part {
  std::vector<size_t> tasks;       // numbers of pairs, ascending
  uint64_t bytes = 0;              // of payload that they read, as far as records say
  std::vector<std::string> files;  // that it reads; each once
  bool crosses_ranks = false;      // puts tensors of several ranks together
};

struct PartLimits {
  uint64_t bytes = uint64_t{512} << 20;
  size_t pairs = 4096;
};

/// What a pair of the comparison is to the planner.
struct PairPlace {
  size_t sheet = 0;
  int rank = 0;
  int64_t step = 0;
  uint64_t bytes = 0;
  bool crosses_ranks = false;
};

/// Parts of pairs of one sheet, rank and step that are near to each other, none much beyond the limits;
/// what crosses ranks is in parts of its own. Every pair is in one of them. Largest first, so that
/// no large one is left for the end; those of equal size in order of their pairs.
[[nodiscard]] std::vector<Part> plan_parts(std::span<const PairPlace> pairs,
                                           const PartLimits& limits = {});

/// Who does the parts of a comparison.
class PartRunner {
 public:
  virtual ~PartRunner() = default;
  /// A part as it is asked for.
  struct Request {
    const Part& part;
    std::string body;  // for run_part()
  };
  /// What became of a part: the answer of run_part(), or why there is none.
  using Outcome = Result<std::string>;
  /// Asks for request(i) when there is room for one more, for all i in [0, count), and hands every
  /// outcome to done(i, outcome), in any order, one at a time.
  /// errors   Interrupted, Io: what is not done is not going to be
  [[nodiscard]] virtual Status run(size_t count, const std::function<Request(size_t i)>& request,
                                   const std::function<void(size_t i, Outcome outcome)>& done) = 0;
};

/// Pairs of a comparison, and who compares them: a PartRunner those whose records can be sent, this
/// process the others.
class PairsElsewhere {
 public:
  /// All outlive this; options.parts is not null.
  PairsElsewhere(const run::Run& golden, const run::Run& mine, const CompareOptions& options,
                 const PairComparer& comparer)
      : golden_(golden), mine_(mine), options_(options), comparer_(comparer) {}

  /// `row` is filled by compare().
  void add(size_t sheet, const pair::Matching& matching, const pair::RecordPair& pair, Row* row);
  /// A part that fails becomes rows with the reason.
  /// returns  the numbers of the pairs that are left to this process, in the order of add()
  /// errors   of PartRunner::run()
  [[nodiscard]] Result<std::vector<size_t>> compare();
  [[nodiscard]] uint64_t compared_bytes() const { return compared_bytes_; }
  /// Of pairs that were not compared because the user stopped it.
  [[nodiscard]] size_t unfinished() const { return unfinished_; }

 private:
  struct Task {
    size_t sheet = 0;
    const pair::Matching* matching = nullptr;
    const pair::RecordPair* pair = nullptr;
    Row* row = nullptr;
  };

  [[nodiscard]] bool can_be_sent(const Task& task) const;
  [[nodiscard]] PairPlace place_of(const Task& task) const;
  [[nodiscard]] std::string pack(const Part& part) const;
  void add_files(Part* part) const;
  void take(const Part& part, PartRunner::Outcome outcome);
  void refuse(const Part& part, const Error& why);

  const run::Run& golden_;
  const run::Run& mine_;
  const CompareOptions& options_;
  const PairComparer& comparer_;
  std::vector<Task> tasks_;
  uint64_t compared_bytes_ = 0;
  size_t unfinished_ = 0;
};

/// Compares the pairs of a part.
///
/// request   PartRunner::Request::body, of the same version of this program; nothing in it is
///           trusted
/// options   conventions, algorithms, jobs and max_memory of this process; the rest is in the part
/// errors    Invalid (another version's, or damaged), Interrupted
[[nodiscard]] Result<std::string> run_part(ByteSpan request, CompareOptions options);

/// Rows of a part, in the order of its pairs.
struct PartRows {
  std::vector<Row> rows;
  uint64_t compared_bytes = 0;
  std::vector<run::Damage> golden_damage;
  std::vector<run::Damage> my_damage;
};
/// errors   Invalid: no answer of run_part() of this version
[[nodiscard]] Result<PartRows> unpack_rows(ByteSpan answer);

}  // namespace assay::compare
