// SPDX-License-Identifier: Apache-2.0
// Which parameter or buffer of one program is which of the other's.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pair/programs.hpp"
#include "pair/weight_names.hpp"
#include "run/run.hpp"

namespace assay::pair {

/// By the name of a parameter or buffer ("model.norm.weight"): an index into Run::records.
using LeafRecords = std::map<std::string, size_t, std::less<>>;

/// The parameters and buffers of a program as a checkpoint lists them: which of them hold a weight
/// in codes, which its scales and zero points.
class CodedLeaves {
 public:
  CodedLeaves() : CodedLeaves({}, {}) {}
  CodedLeaves(const run::Run& run, const LeafRecords& leaves, std::optional<CodeNames> own = {});

  /// The weight that a leaf holds the codes of: "q_proj.weight" of "q_proj.weight_packed"; nullptr
  /// for other leaves.
  [[nodiscard]] const Weight* weight_at(std::string_view leaf) const;
  /// The weight in codes of that name; nullptr: there is none.
  [[nodiscard]] const Weight* find(std::string_view weight) const;
  /// Scales, zero points and the like of a weight in codes.
  [[nodiscard]] bool is_part(std::string_view leaf) const { return parts_.contains(leaf); }
  /// Of Weight::record, scale, zero ...
  [[nodiscard]] const run::TensorRecord& record(size_t index) const { return side_->record(index); }

 private:
  std::unique_ptr<run::Run> names_;  // the leaves' records, by their names
  std::optional<CheckpointSide> side_;
  std::set<std::string, std::less<>> parts_;
};

/// An operator reads a parameter or buffer that no operator before it has written.
struct LeafRead {
  size_t op = 0;  // index into the program's operators
  std::string_view slot;
  std::string_view leaf;
};

struct ProgramLeaves {
  const LeafRecords& records;
  std::span<const LeafRead> reads;  // by operator; empty below the level of operators
};

struct LeafPair {
  std::string_view name;  // in the run under test
  size_t golden = kNoPartner;
  size_t mine = kNoPartner;  // both are records
};

/// Names are those of the programs.
struct LeafPairs {
  std::vector<LeafPair> pairs;  // by name
  /// Mine's that golden has nothing for under any name; scales and the like are none of them.
  std::vector<std::string_view> lonely;
  /// Those that golden's operators read and mine has nothing for.
  std::vector<std::string_view> missing;
  size_t judged = 0;  // of the run under test: with a partner, or that ought to have one
};

/// By name; else by the operators that read them, where these are paired: the same operand. A
/// weight in codes by the name of the weight that its codes stand for.
///
/// operators  pairs of the operators that the reads speak of
[[nodiscard]] LeafPairs pair_leaves(const ProgramLeaves& golden, const ProgramLeaves& mine,
                                    const CodedLeaves& coded, const OperatorPairs& operators);

}  // namespace assay::pair
