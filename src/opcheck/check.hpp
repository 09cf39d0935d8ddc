// SPDX-License-Identifier: Apache-2.0
// Recomputing the operations of a run and judging what they produced.   docs/commands/opcheck.md
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "measure/measures.hpp"
#include "measure/standards.hpp"
#include "opcheck/cases.hpp"
#include "run/parts.hpp"

namespace assay::opcheck {

enum class CheckOutcome : uint8_t { Pass, Failed, NotSupported, Error };
[[nodiscard]] std::string_view outcome_name(
    CheckOutcome outcome);  // "PASS" "FAILED" "NOT_SUPPORTED" "ERROR"

/// The one that decides of a case with both.
[[nodiscard]] CheckOutcome worse(CheckOutcome a, CheckOutcome b);

inline constexpr size_t kStandardCount = 5;

/// A metric of the user, beside ours.
struct CustomMetric {
  std::string name;  // column
  struct Value {
    std::variant<std::monostate, double, int64_t, std::string> value;
    std::string message;  // joins the reason; also when the metric failed
  };
  /// Called from one thread at a time. Golden comes in the dtype of the output.
  std::function<Value(const TensorView& golden, const TensorView& mine)> compute;
};

/// How a captured operator was judged: against what rounding explains, no standard.
///   docs/localisation.md
struct RoundingMeasures {
  std::string module;    // path of the module in whose call it ran
  uint32_t call = 0;     // of that module within the step
  bool judged = false;   // the numbers below hold
  double z = 0;          // root mean square error over what rounding makes of it
  double e = 0;          // largest error of an element over the largest that rounding allows
  double worst_ulp = 0;  // that error, in units of the last place
  double allowed_ulp = 0;
  double relative_l2 = 0;
  double noise_floor = 0;            // what rounding makes of it
  std::vector<int64_t> worst_index;  // empty: equal everywhere, or no element is the worst
  std::string_view extent = "all";  // what was compared: "all", "sample" of rows, "sums" of columns
};

/// One output of one case.
struct OutputRow {
  size_t index = 0;  // number of the output, or of the input when in_place
  bool in_place = false;
  std::string name;                            // where it has one: "output 1"
  std::string file;                            // of mine; empty when it is not in the dump
  std::string slot;                            // likewise, of its record
  CheckOutcome outcome = CheckOutcome::Error;  // under CheckOptions::standard
  std::string reason;    // of everything but a pass without remarks; a sentence
  std::string note;      // which candidate matched, what was not judged, ties
  bool partial = false;  // PASS (written part only)
  // Empty unless the output was compared:
  bool compared = false;
  std::string dtype;  // of mine: "float16"
  Dims shape;         // of mine
  Accuracy accuracy;
  measure::Measures measures;
  std::array<measure::Judgement, kStandardCount> judgements;  // by measure::Standard
  std::optional<measure::LegacyLimits> legacy;                // of O4, for `precision_standard`
  measure::Neighbourhood worst;                               // when measures.worst_index >= 0
  std::vector<CustomMetric::Value> custom;
  std::optional<RoundingMeasures> rounding;  // instead of measures and judgements
};

struct CaseResult {
  CaseDescription description;
  std::string variant;                          // "prenorm"; empty when it was not recognised
  std::vector<std::string> unknown_parameters;  // keys that we do not know
  /// At least one row: an operation that is not supported or cannot be read has one with the
  /// reason.
  std::vector<OutputRow> rows;
  CheckOutcome outcome =
      CheckOutcome::Error;  // the worst of the rows: ERROR, FAILED, NOT_SUPPORTED, PASS
  double seconds = 0;       // of computing and judging; not in reports that must repeat
  uint64_t bytes = 0;       // of inputs and outputs read
};

enum class PrecisionMode : uint8_t { KeepOrigin, ForceFp16, ForceFp32 };

struct CheckOptions {
  measure::Standard standard = measure::Standard::Atb;
  PrecisionMode precision_mode = PrecisionMode::KeepOrigin;
  bool kl_divergence = false;  // -metric kl
  std::vector<CustomMetric> custom;
  int jobs = 0;                             // <= 0: one per core
  uint64_t max_memory = uint64_t{2} << 30;  // of working tensors; one case may exceed it alone
  /// Who checks the cases, in parts (parts.hpp); null: the threads of this process.
  run::PartRunner* parts = nullptr;
  /// Called with results in the order of the cases, as soon as they and all before them are done;
  /// one call at a time.
  std::function<void(const CaseResult& result)> finished;
  std::function<void(size_t done, size_t total)> progress;
  const std::atomic<bool>* interrupted = nullptr;
};

struct Report {
  std::string path;
  std::vector<CaseResult> cases;  // by rank, step, natural order of ids
  /// Operations without a row: graphs, and types that no table lists, with how often they occur.
  std::vector<std::pair<std::string, size_t>> unlisted;
  std::vector<std::string> warnings;
  std::string nothing_matched;  // of a choice of ids or names that leaves no case: a sentence
  measure::Standard standard = measure::Standard::Atb;
  bool by_rounding = false;  // operators, with OutputRow::rounding; no standard
  std::string coverage;      // of operators, one sentence
  double seconds = 0;
  bool interrupted = false;

  struct Counts {
    size_t passed = 0, failed = 0, not_supported = 0, errors = 0;  // cases
    size_t outputs = 0;
  };
  [[nodiscard]] Counts counts() const;
};

/// Results do not depend on jobs, max_memory or parts.
/// errors   of run::PartRunner::run()
[[nodiscard]] Result<Report> check_cases(const CaseList& cases, const CheckOptions& options);

}  // namespace assay::opcheck
