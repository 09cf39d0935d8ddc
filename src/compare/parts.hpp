// SPDX-License-Identifier: Apache-2.0
// A comparison in parts (run/parts.hpp), whose answers are rows.   docs/scale.md
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compare/compare.hpp"
#include "compare/pair_comparer.hpp"

namespace assay::compare {

/// Begins the parts of a comparison.
inline constexpr std::string_view kPairsMark = "assay pairs 1";

/// Pairs of a comparison, and who compares them: a run::PartRunner those whose records can be sent,
/// this process the others.
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
  /// errors   of run::PartRunner::run()
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
  [[nodiscard]] run::TaskPlace place_of(const Task& task) const;
  [[nodiscard]] std::string pack(const run::Part& part) const;
  [[nodiscard]] std::vector<std::string> files_of(const run::Part& part) const;
  void take(const run::Part& part, run::PartRunner::Outcome outcome);
  void refuse(const run::Part& part, const Error& why);

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
/// request   run::PartRunner::Request::body, of the same version of this program; nothing in it is
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
