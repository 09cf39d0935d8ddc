// SPDX-License-Identifier: Apache-2.0
// Comparing two runs: pairs become rows with metrics, rows are judged, sheets are collected.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/interned_text.hpp"
#include "base/rare_pointer.hpp"
#include "base/rare_text.hpp"
#include "base/rare_value.hpp"
#include "compare/algorithms.hpp"
#include "compare/limits.hpp"
#include "measure/pair_picture.hpp"
#include "pair/match.hpp"
#include "pair/weight_names.hpp"
#include "run/manual_mapping.hpp"
#include "run/parts.hpp"
#include "tensor/node.hpp"

namespace assay::compare {

/// What the path columns say of a tensor, in sixteen bytes: of a million rows hardly two are equal,
/// while the names that they are made of are.
class RecordPath {
 public:
  RecordPath() = default;
  RecordPath(InternedText text) : name_(text) {}
  RecordPath(const std::string& text) : name_(text) {}
  RecordPath(const char* text) : name_(text) {}
  /// Its file, "file:member" inside a container, "token/node/output_0" when it has no data of its
  /// own.
  explicit RecordPath(const run::TensorRecord& record);

  [[nodiscard]] std::string str() const;
  [[nodiscard]] bool empty() const { return form_ == Form::Text && name_.empty(); }
  /// Those of two records are equal where they were made from equal names.
  bool operator==(const RecordPath&) const = default;
  [[nodiscard]] size_t hash() const;
  /// Its names and numbers, for those who write and read them; what was read is checked.
  void transfer_parts(auto transfer) { transfer(name_, node_, slot_, role_, form_); }
  void transfer_parts(auto transfer) const { transfer(name_, node_, slot_, role_, form_); }
  [[nodiscard]] bool is_valid() const { return role_ <= Role::Buffer && form_ <= Form::Place; }

  friend std::string operator+(const std::string& a, const RecordPath& b) { return a + b.str(); }
  friend std::ostream& operator<<(std::ostream& out, const RecordPath& path) {
    return out << path.str();
  }

 private:
  enum class Form : uint8_t {
    Text,    // name
    Member,  // name:node
    Slot,    // name:node.role.slot
    Place,   // name/node/role_slot
  };

  InternedText name_, node_, slot_;
  Role role_ = Role::Input;
  Form form_ = Form::Text;
};

/// What a report says about one side of a row. Numbers that are not known are NaN.
struct SideSummary {
  RecordPath path;       // the file; for a container "file:node.role.slot"
  InternedText op_type;  // module class
  InternedText dtype;    // "torch.float16"; empty when not known
  InternedText shape;    // "[1, 4096]"
  double max = NAN;      // NaN and infinities take part, as in torch
  double min = NAN;
  double mean = NAN;
  double l2_norm = NAN;
};

/// The path column of a record.
[[nodiscard]] inline std::string record_path(const run::TensorRecord& record) {
  return RecordPath(record).str();
}

enum class Outcome : uint8_t { NotJudged, Pass, Fail };
[[nodiscard]] std::string_view outcome_name(Outcome outcome);  // "" "pass" "fail"

/// Few bytes: a report may have a million.
struct Row {
  int64_t token_id = 0;
  int64_t data_id = 0;  // unique over all sheets of a comparison
  uint64_t order = 0;   // execution order within mine
  int rank = 0;
  InternedText label;     // "model.layers.0.mlp output 0": for people
  double confidence = 1;  // of matched_by, (0, 1]
  pair::Rule matched_by = pair::Rule::None;
  Outcome outcome = Outcome::NotJudged;
  bool identical = false;   // digests, statistics or every position equal
  bool comparable = false;  // metrics or summary hold numbers, or both sides are empty
  /// What a csv leaves out; a style of report may keep these rows in its workbook.
  bool filtered = false;
  std::optional<ShapeRelation> shape_relation;  // when both shapes are known
  InternedText note;          // things worth knowing that are no failure: "dtype differs"
  InternedText quantisation;  // "int8 per channel"; weights only
  SideSummary golden;
  SideSummary mine;
  std::optional<measure::PairNumbers> metrics;  // of tensors
  RareValue<measure::Patterns> patterns;        // with metrics; null: all values are finite
  double golden_norm = NAN;                     // with metrics: L2 norm of golden's finite values
  RareValue<measure::SummaryErrors> summary;    // of statistics
  RareText fail_reason;                         // column cmp_fail_reason; empty when all is well
  RareText exceeded;                            // the limit that failed: "rel_l2 0.0012 > 0.001"
  int64_t outside_tolerance = -1;  // elements with |m - g| > atol + rtol |g|; -1 when not counted
  double sqnr_db = NAN;            // 10 log10(sum g^2 / sum (m - g)^2); weights only
  /// One an algorithm, in the order of CompareOptions; behind them what Conventions::more_values
  /// gave.
  RareVector<AlgorithmValue> custom;
  /// Where and how the tensors differ; null: they do not, or it was not asked for
  /// (CompareOptions::pictures).
  RarePointer<const measure::PairPicture> picture;

  [[nodiscard]] bool has_pattern_mismatch() const {
    return patterns && patterns->has_pattern_mismatch();
  }
  [[nodiscard]] bool differs_in_count() const {
    return metrics && metrics->state == measure::PairState::CountMismatch;
  }
};

/// Names a pair of tensors over all sheets: a pair that several levels look at is one pair. The
/// label tells tensors apart whose statistics are in one file.
struct PairKey {
  explicit PairKey(const Row& row);
  int rank;
  int64_t token_id;
  RecordPath golden, mine;
  InternedText label;
  bool operator==(const PairKey&) const = default;
};
struct HashOfPairKey {
  size_t operator()(const PairKey& key) const;
};
using PairKeys = std::unordered_set<PairKey, HashOfPairKey>;

/// Both sides are integers of 32 or 64 bits: ids of tokens, positions, lengths.
[[nodiscard]] bool holds_indices(const Row& row);

struct Sheet {
  std::string name;  // "layer", "module", "api", "weights", "manual"; of graph mode "rank0 graph1"
  std::optional<pair::Level> level = {};  // of a sheet of one level
  int rank = -1;                          // graph mode: of this report; -1: the dump has no ranks
  int graph = -1;                         // graph mode: place among the graphs; -1 in other modes
  pair::Matching matching;
  std::vector<Row> rows;  // in execution order of mine
};

struct Comparison;

/// What a comparison after another program's rules does otherwise; the defaults are ours. A value,
/// so that a vendor's room can hand in its own.
struct Conventions {
  measure::MetricRules rules = measure::MetricRules::Corrected;
  /// Pairs, types and files are taken as they are: nothing is doubted, held against what the
  /// capture recorded, brought into the other side's order or called a gap.
  bool trusting = false;
  /// Pairs of nodes and operators; null: ours.
  const pair::LiteralRules* pairs = nullptr;
  /// Pairs of weights, of sides whose tensors are taken as they are stored and of which mine is its
  /// first file alone, computed as torch computes. Null: by names, codings and what the format GGUF
  /// changes.
  std::vector<pair::WeightPair> (*weight_pairs)(const pair::CheckpointSide& golden,
                                                pair::CheckpointSide* mine) = nullptr;
  /// Values of a pair that has metrics, for Row::custom; null: none.
  std::vector<AlgorithmValue> (*more_values)(const TensorView& golden,
                                             const TensorView& mine) = nullptr;
  /// Leaves out rows, changes what they say; called before rows are counted.   null: nothing
  void (*finish)(const run::Run& golden, const run::Run& mine, Comparison* comparison) = nullptr;
};

/// Which rows that differ get a picture; made while they are compared.
struct PictureOptions {
  size_t worst = 0;  // so many with the largest errors, in the order of Comparison::worst_rows()
  /// And those whose path, node or "/" + node matches one of these shell patterns; the first
  /// `most_matching` pairs in execution order, of more a note of the comparison tells.
  std::vector<std::string> patterns = {};
  size_t most_matching = 500;
};

struct CompareOptions {
  std::vector<pair::Level> levels = {pair::Level::Api};  // one sheet each
  bool statistics = false;                               // compare statistics instead of tensors
  Conventions conventions;
  pair::UserRules user;
  pair::Engines engines = {};
  /// Shell patterns on a node, a path or a key: tensors of golden that need no partner.
  std::vector<std::string> allow_unmatched = {};
  pair::MappingTables tables = pair::builtin_tables();
  Limits limits;
  std::vector<std::shared_ptr<Algorithm>> algorithms;  // of the user; one column each
  PictureOptions pictures;
  /// Who compares the pairs, in parts (parts.hpp); null: the threads of this process.
  run::PartRunner* parts = nullptr;
  int jobs = 0;  // <= 0: one per core
  /// Mapped file pages kept resident, in bytes. What is above is given back to the page cache.
  uint64_t max_memory = uint64_t{256} << 20;
  /// Of two whole runs: called when they are paired, before rows take room.   null: nothing
  /// errors   end the comparison
  std::function<Status(const run::Run& golden, const run::Run& mine,
                       const pair::Correspondence& pairs)>
      when_paired = nullptr;
  /// Called with (done, total) pairs from any thread, one call at a time; may be empty.
  std::function<void(size_t done, size_t total)> progress;
  /// Set by a signal handler: the comparison stops at the next block with Errc::Interrupted.
  const std::atomic<bool>* interrupted = nullptr;
};

struct Comparison {
  std::string golden_path;
  std::string mine_path;
  run::Layout golden_layout = run::Layout::None;
  run::Layout mine_layout = run::Layout::None;
  bool named_pairs = false;    // of tensors that the user named with dump_data()
  pair::Correspondence pairs;  // of two runs: what the rows rest on
  size_t golden_records = 0;
  size_t mine_records = 0;
  bool statistics = false;
  bool weights = false;     // rows are weights of two checkpoints
  bool judged = false;      // limits were given
  bool order_known = true;  // rows are in the order of execution: run::Run::order_known of mine
  std::vector<std::string> algorithms;  // names of the custom columns
  std::vector<Sheet> sheets;
  std::vector<std::string> warnings;  // of the runs: truncated lines, unreadable folders
  std::vector<std::string> notes;     // what was aligned and what one side lacks as a whole
  uint64_t compared_bytes = 0;        // payload of both sides
  /// Why the runs are not comparable as a whole (find_damage(), find_gaps()), one sentence each.
  std::vector<std::string> gaps;
  bool damaged = false;  // a side is damaged: so say the first gaps
  /// By rank of mine: its places in the groups of the job, where they are known.
  std::map<int, native::ParallelPlaces> parallel;
  /// Pairs that were not compared because the user stopped it; a gap says so, too.
  size_t unfinished_pairs = 0;

  /// Of pairs of tensors, each once however many sheets show it.
  struct Counts {
    size_t pairs = 0;       // in the report
    size_t identical = 0;   // equal in every value
    size_t failed = 0;      // beyond a limit
    size_t unreadable = 0;  // no numbers: unreadable file, other shape
    size_t filtered = 0;    // rows left out
  };
  [[nodiscard]] Counts counts() const;

  /// The `count` rows with the largest error, worst first, each pair of tensors once and equal ones
  /// never: rows without numbers, then NaN and infinities at other places, then by relative L2
  /// distance (statistics: relative error of the L2 norm), then in execution order; indices behind
  /// all others.
  [[nodiscard]] std::vector<const Row*> worst_rows(size_t count) const;
  /// Nothing is beyond a limit, something was compared, and nothing of golden is missing.
  [[nodiscard]] bool is_within_limits() const;
  /// The failed row that comes first in execution order, nullptr when none failed.
  [[nodiscard]] const Row* first_failed_row() const;
};

/// One pair of tensors in memory, judged as a row of a report; paths and labels are the caller's.
[[nodiscard]] Row compare_pair(const TensorView& golden, const TensorView& mine,
                               const CompareOptions& options);

/// The same into a row whose paths and labels the caller has filled; what describes the tensors in
/// it is replaced.
///
/// jobs      threads for this pair, instead of options.jobs
/// subject   what limits with patterns are tested against
void compare_pair_into(const TensorView& golden, const TensorView& mine,
                       const CompareOptions& options, int jobs, const LimitSubject& subject,
                       Row* row);
/// Sets the outcome of a row that has no tensors to compare: it fails when a limit applies to it.
void judge_row(const CompareOptions& options, const LimitSubject& subject, Row* row);

/// Matches and compares two runs. Tensors are mapped one pair a thread at a time; a pair that
/// cannot be read becomes a row with its reason. errors  of match_runs(); Interrupted
[[nodiscard]] Result<Comparison> compare_runs(const run::Run& golden, const run::Run& mine,
                                              const CompareOptions& options);

/// Gives a row of a sheet its picture: the pair is read once more. Nothing where it has none.
/// options   those of the comparison
void add_picture(const run::Run& golden, const run::Run& mine, const CompareOptions& options,
                 Sheet* sheet, size_t row);

/// Compares the pairs that the user named with dump_data(); one sheet "manual".
[[nodiscard]] Result<Comparison> compare_manual(const run::ManualMapping& mapping,
                                                const CompareOptions& options);

}  // namespace assay::compare
