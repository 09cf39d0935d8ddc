// SPDX-License-Identifier: Apache-2.0
// The first wrong operator of a run.   docs/localisation.md
#pragma once
#include <atomic>
#include <functional>

#include "locate/judge/own_error.hpp"
#include "locate/noise/floors.hpp"
#include "locate/program/engine.hpp"
#include "locate/replay/walk.hpp"
#include "pair/correspondence.hpp"

namespace assay::locate {

/// What the command that asks for a verdict does besides, so that the next one is another.
struct Asked {
  bool tables = false;          // `assay compare`: every tensor against golden's
  bool why = false;             // --why
  bool page = false;            // --html
  bool golden_weights = false;  // --golden-weights
  bool floors = false;          // --floor-run, --floor
  /// What decides the verdict, as options of `assay locate` with a blank before each.
  std::string options = {};
};

struct SeenValues;  // nan_origin.hpp

struct LocateOptions {
  bool own_error = true;  // --own-error off
  /// Measured noise, for runs without a program: --floor FILE, or of --floor-run pairs.
  const FloorProfile* floors = nullptr;
  /// Only what the named output depends on: a module path, "path:slot", or "step 3"; empty:
  /// everything.
  std::string slice;
  /// Who judges operators by themselves, in parts (judge/operator_parts.hpp); null: this process.
  run::PartRunner* parts = nullptr;
  int jobs = 0;
  uint64_t max_memory = uint64_t{2} << 30;  // of working tensors; an eighth more of file pages
  std::function<void(std::string_view stage, size_t done, size_t total)> progress;
  const std::atomic<bool>* interrupted = nullptr;
  Engines engines = {};
  Asked asked = {};
  const SeenValues* seen = nullptr;  // of mine; null: nothing
};

enum class VerdictOutcome : uint8_t {
  // candidates[0]; without an order of execution (Verdict::order_known) each of them is wrong, none
  // first
  FirstWrong,
  Clean,        // all obligations hold
  CannotJudge,  // `reason` says why
};
[[nodiscard]] std::string_view outcome_name(
    VerdictOutcome outcome,
    bool order_known = true);  // "first_wrong" ("wrong") "clean" "cannot_judge"

/// What a verdict rests on; the letters stand in reports.
enum class JudgedBy : char {
  Identity = '-',   // nothing but values that are golden's bit for bit
  Operators = 'O',  // operators of mine, computed again
  Leaves = 'L',   // golden's program, replayed between values: of modules without modules in them,
  Modules = 'M',  // of modules,
  Layers = 'B',   // of layers
  MeasuredValues = 'N',      // what healthy runs differ by, in values
  MeasuredStatistics = 'S',  // and in statistics
};
[[nodiscard]] constexpr char letter_of(JudgedBy level) { return static_cast<char>(level); }
[[nodiscard]] JudgedBy judged_by(CaptureLevel level);
[[nodiscard]] constexpr bool is_measured(JudgedBy level) {
  return level == JudgedBy::MeasuredValues || level == JudgedBy::MeasuredStatistics;
}

/// Where the limits of a verdict are from.
enum class Floor : uint8_t { None, Model, Measured, Exact };
[[nodiscard]] std::string_view floor_name(Floor floor);  // "" "model" "measured" "exact"

struct Coverage {
  size_t judged = 0;  // operators (or values, for levels below O) that were judged
  size_t judgeable = 0;
  size_t weights_compared = 0, weights = 0;
  size_t weights_refuted = 0;  // of them: not golden's, and the outcome is the same
  /// Of `weights`: golden has them in other pieces (LoRA merged), and every value on the way to the
  /// outputs is golden's.
  size_t weights_by_function = 0;
  std::map<std::string, size_t> unjudged;  // reason -> count
  size_t operators = 0;                    // of mine
  size_t paired = 0;                       // of them, with a partner in golden
  size_t values = 0;  // levels L, M, B: values of mine that golden's program was replayed for
  size_t unjudged_before = 0;  // operators before candidates[0] that were not judged
  // Level O, where golden's program was replayed between values that were judged:
  size_t judged_around = 0;    // of `judged`: operators of mine that were not recomputed
  size_t without_partner = 0;  // operators of golden that mine was not seen to run
  [[nodiscard]] size_t around() const { return judged_around + without_partner; }
};

/// How a choice that is not golden's came about.   docs/localisation.md, "Tokens"
enum class ChoiceKind : uint8_t {
  NearTie,      // golden's best two are within the noise of each other
  Chance,       // they are not, but of so many choices one may be decided so by noise
  Unexplained,  // no noise of this size decides so
};
[[nodiscard]] std::string_view choice_name(ChoiceKind kind);  // "near_tie" "chance" "unexplained"

/// A position at which the two runs' logits choose differently.
struct TokenChoice {
  int64_t step = -1;  // -1: none
  int64_t sequence = 0;
  int64_t position = 0;  // of the sequence, in this step
  int64_t golden_token = -1, mine_token = -1;
  double margin = NAN;      // top1 - top2 of golden
  double gap = NAN;         // golden's logit of its own choice minus that of mine's
  double difference = NAN;  // largest |delta logit| over the two ids
  double noise = NAN;       // what logits of the position differ by
  double divergence = NAN;  // KL(golden || mine) of the position, nats
  ChoiceKind kind = ChoiceKind::Unexplained;
};

/// What the two runs choose at every position whose logits both have.
struct TokenChoices {
  int64_t positions = 0;  // compared; padding is not
  int64_t padding = 0;
  int64_t not_finite = 0;  // with NaN or infinity that is no mask: not compared
  /// From this step on mine was given other inputs, so that nothing is compared; -1: none.
  int64_t other_inputs_from = -1;
  int64_t near_ties = 0, chances = 0, unexplained = 0;  // that chose another token
  double largest_near_tie = NAN;  // margin of the near ties, in units of the noise
  double limit = NAN;             // gap in units of the noise from which a choice is unexplained
  /// KL(golden || mine) in nats, over all positions, and over those that are no near tie above.
  double kl_mean = NAN, kl_max = NAN;
  double kl_mean_without_ties = NAN, kl_max_without_ties = NAN;
  std::vector<TokenChoice> choices;  // the first kListedChoices of them
  /// The first of a sequence's last position, whatever the inputs were: a run that goes on with the
  /// token chosen there is given others from then on.
  TokenChoice first;
  [[nodiscard]] int64_t other_choices() const { return near_ties + chances + unexplained; }
};
inline constexpr size_t kListedChoices = 1000;

/// A value after the first wrong one, on the way to the output.
struct ChainLink {
  std::string module;
  int64_t step = 0;
  double err_out = NAN;  // relative L2 against golden's
};

/// Findings of one kind at the same place of several layers.
struct Systematic {
  std::string pattern;  // "model.layers.*.mlp aten.mm.default"
  size_t members = 0;   // layers that have it
  size_t layers = 0;    // layers that could
  FindingKind kind = FindingKind::OwnError;
};

/// One thing that must hold before a run may be called clean.
struct Obligation {
  std::string name;  // "inputs are equal"
  std::string open;  // why it does not hold, one clause; empty: it holds
};

/// An error larger than this share of the size of any value on the way to the outputs would have
/// been seen, where something is wrong of any value before it.
struct Power {
  double error = NAN;  // relative L2; NaN: not known
  std::string module;  // where it would have to be the largest, in units of what its type may have
  int64_t step = 0;
  double allowed = 1;    // the largest error that may pass unseen there
  std::string why = {};  // what makes it as large; "" unless it is known
  /// Beside it: results that cancel, so that their rounding is as large as they are.
  size_t cancelled = 0;
};

/// Which of the runs has the steps.
enum class StepsOf : uint8_t { Both, Golden, Mine };
[[nodiscard]] std::string_view steps_of_name(StepsOf of);  // "both" "golden" "mine"

/// Steps that were not held against the other run's.   locate/verdict/unjudged_steps.hpp
struct UnjudgedSteps {
  StepsOf of = StepsOf::Both;  // Both: with other tokens
  std::vector<int64_t> steps;  // ascending, one at least
};

struct Verdict {
  VerdictOutcome outcome = VerdictOutcome::CannotJudge;
  std::vector<Finding> candidates;  // in the run under test's execution order; [0] is the verdict
  std::vector<Finding> suspicions;  // refuted or undecidable, for people
  std::vector<Finding> golden_findings;     // golden itself is not clean: said first
  std::vector<CoarseGroup> coarse;          // kernels that are coarse in all layers: information
  std::vector<Systematic> systematic;       // the same finding in three layers or more
  std::vector<ChainLink> chain;             // from candidates[0] to the output
  Confidence confidence = Confidence::Low;  // of candidates[0], or of clean
  bool order_known = true;                  // run::Run::order_known of mine
  CaptureLevel golden_level = CaptureLevel::Nothing, mine_level = CaptureLevel::Nothing;
  JudgedBy level = JudgedBy::Identity;
  Coverage coverage;
  Floor floor = Floor::None;
  /// Of weights that are golden's within the rounding of the types that the run under test's file
  /// holds them in; empty: none.
  std::string quantisation;  // "29 of 38 weights are q8_0, within its rounding"
  std::string cache_blocks;  // Program::cache_blocks of mine
  std::string products;      // "products in bf16", where operands of float32 are narrowed; or empty
  TokenChoices tokens;
  std::vector<std::string> notes;         // "program differs here, cannot judge: ..."
  std::vector<std::string> failed_parts;  // of LocateOptions::parts: a sentence a reason
  std::vector<Obligation> obligations;    // without candidates: what clean stands on
  Power power;                            // of Clean and FirstWrong
  std::string reason;                     // of CannotJudge: the first open obligation
  /// Of Clean: from this step on the runs have other tokens, or one of them has none, and nothing
  /// can be compared. -1: none.
  int64_t clean_up_to = -1;
  std::vector<UnjudgedSteps> unjudged_steps;
  /// The one command that goes on from here: locate/verdict/next_command.hpp.
  std::string next;
  std::string next_at_hand;  // the same without another capture
  // Every judged output, for the columns of the table: by index into its records.
  struct RecordJudgement {
    double err_in = NAN, err_out = NAN, err_own = NAN, noise_floor = NAN, amplification = NAN;
    OwnSource own_source = OwnSource::None;
    RowJudgement verdict = RowJudgement::None;
    std::string confidence;
  };
  std::map<size_t, RecordJudgement> records;
};

/// The verdict on runs of which one is known to be damaged: payloads are held against their records
/// while they are read. Nothing: none is.
[[nodiscard]] std::optional<Verdict> refuse_damaged(const run::Run& golden, const run::Run& mine);

/// pairs   of these runs
/// errors  Interrupted | Usage (the slice names nothing; a rank or step of the user is in no run)
[[nodiscard]] Result<Verdict> locate(const run::Run& golden, const run::Run& mine,
                                     const pair::Correspondence& pairs,
                                     const LocateOptions& options);

}  // namespace assay::locate
