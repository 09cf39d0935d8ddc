// SPDX-License-Identifier: Apache-2.0
// A case is evaluated by its row of the table, and each output measured against one candidate after
// the other until one passes. Cases run on several threads within a budget of memory, and are
// reported in their order.
#include "opcheck/check.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>

#include "base/interruption.hpp"
#include "base/memory_budget.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "opcheck/parts.hpp"
#include "reference/wide.hpp"
#include "run/load.hpp"
#include "run/record.hpp"

namespace assay::opcheck {
namespace {

constexpr double kMaxElementError = 1.0;
// Inputs and outputs are widened to eight bytes an element, and a golden of the same size is made.
constexpr uint64_t kWorkingBytesPerByte = 6;

std::string tensor_name(const char* kind, size_t index) { return kind + std::to_string(index); }

/// The tensors of a case as they were dumped. An operation asks for some of them several times, and
/// an output is looked at again when it is judged; each is loaded once.
class LoadedTensors {
 public:
  Result<Tensor> load(const run::TensorRecord& record) {
    const std::lock_guard lock(mutex_);
    if (const auto known = tensors_.find(&record); known != tensors_.end()) return known->second;
    Result<Tensor> loaded = run::load_tensor(record);
    if (loaded) tensors_.emplace(&record, *loaded);
    return loaded;
  }

 private:
  std::mutex mutex_;
  std::map<const run::TensorRecord*, Tensor> tensors_;
};

/// The tensors of an entry, converted as -pmode asks.
class DumpedOperands final : public Operands {
 public:
  DumpedOperands(const CaseTensors& tensors, PrecisionMode mode, LoadedTensors* loaded)
      : tensors_(tensors), mode_(mode), loaded_(loaded) {}

  size_t input_count() const override { return tensors_.inputs.size(); }
  size_t output_count() const override { return tensors_.outputs.size(); }
  bool has_input(size_t index) const override { return input_record(index) != nullptr; }
  bool has_output(size_t index) const override { return output_record(index) != nullptr; }
  bool has_before() const override {
    return std::any_of(tensors_.inputs.begin(), tensors_.inputs.end(),
                       [](const CaseTensors::Slot& slot) { return slot.before != nullptr; });
  }

  Result<Tensor> input(size_t index) const override {
    return load(input_record(index), tensor_name("intensor", index));
  }
  Result<Tensor> output(size_t index) const override {
    return load(output_record(index), tensor_name("outtensor", index));
  }
  Result<Tensor> input_after(size_t index) const override {
    return load(after_record(index), tensor_name("intensor", index) + " after the operation");
  }
  bool is_nz_input(size_t index) const override { return is_nz(input_record(index)); }
  bool is_nz_output(size_t index) const override { return is_nz(output_record(index)); }

  [[nodiscard]] const run::TensorRecord* output_record(size_t index) const {
    return index < tensors_.outputs.size() ? tensors_.outputs[index] : nullptr;
  }
  [[nodiscard]] const run::TensorRecord* after_record(size_t index) const {
    return index < tensors_.inputs.size() ? tensors_.inputs[index].after : nullptr;
  }

 private:
  [[nodiscard]] const run::TensorRecord* input_record(size_t index) const {
    if (index >= tensors_.inputs.size()) return nullptr;
    const CaseTensors::Slot& slot = tensors_.inputs[index];
    return slot.before != nullptr ? slot.before : slot.after;
  }

  static bool is_nz(const run::TensorRecord* record) {
    return record != nullptr && record->memory_format == "fractal_nz";
  }

  Result<Tensor> load(const run::TensorRecord* record, const std::string& what) const {
    if (record == nullptr) return fail(Errc::NotFound, what + " is not in the dump");
    if (!record->problem.empty()) return fail(Errc::Invalid, what + ": " + record->problem);
    if (!record->bytes)
      return fail(Errc::NotFound,
                  what + " was dumped without its values (statistics or description only)");
    Result<Tensor> loaded = loaded_->load(*record);
    if (!loaded) {
      loaded.error().message = what + ": " + loaded.error().message;
      return loaded;
    }
    const DType dtype = loaded->view.dtype;
    const bool is_converted =
        mode_ != PrecisionMode::KeepOrigin &&
        (dtype == DType::Float32 || dtype == DType::Float16 || dtype == DType::BFloat16);
    if (!is_converted) return loaded;
    const DType wanted = mode_ == PrecisionMode::ForceFp16 ? DType::Float16 : DType::Float32;
    return dtype == wanted ? loaded : reference::narrow(loaded->view, wanted);
  }

  const CaseTensors& tensors_;
  const PrecisionMode mode_;
  LoadedTensors* loaded_;
};

OutputRow failed_row(const Error& error) {
  OutputRow row;
  row.outcome = error.code == Errc::Unsupported ? CheckOutcome::NotSupported : CheckOutcome::Error;
  row.reason = error.describe();
  return row;
}

void add_note(const std::string& note, OutputRow* row) {
  if (note.empty()) return;
  if (!row->note.empty()) row->note += "; ";
  row->note += note;
}

/// One case from its tensors to its rows.
class Checker {
 public:
  Checker(const CaseList& cases, const CheckOptions& options, std::mutex* custom_mutex)
      : cases_(cases), options_(options), custom_mutex_(custom_mutex) {}

  CaseResult check(const CaseEntry& entry, int jobs) const {
    const auto start = std::chrono::steady_clock::now();
    CaseResult result;
    result.description = entry.description;
    result.bytes = entry.bytes;
    try {
      check_into(entry, jobs, &result);
    } catch (const Interrupted&) {
      throw;
    } catch (
        const std::exception& exception) {  // memory that cannot be had; a shape nobody foresaw
      result.rows = {failed_row({Errc::Internal,
                                 {},
                                 std::nullopt,
                                 std::string("cannot be computed: ") + exception.what()})};
    }
    if (entry.op != nullptr)
      result.unknown_parameters = entry.parameters.unknown(entry.op->parameters);
    for (const OutputRow& row : result.rows)
      result.outcome =
          &row == result.rows.data() ? row.outcome : worse(result.outcome, row.outcome);
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

 private:
  void check_into(const CaseEntry& entry, int jobs, CaseResult* result) const {
    const Result<Evaluation> evaluation = evaluate(entry, jobs);
    if (!evaluation) {
      result->rows.push_back(failed_row(evaluation.error()));
      return;
    }
    result->variant = evaluation->variant;
    check_outputs(entry, *evaluation, result);
  }

  Result<Evaluation> evaluate(const CaseEntry& entry, int jobs) const {
    if (!entry.unsupported.empty()) return fail(Errc::Unsupported, entry.unsupported);
    if (entry.op == nullptr)
      return fail(Errc::Unsupported,
                  entry.description.op_type + " is not in the table of operations");
    if (!entry.description.parameter_error.empty())
      return fail(Errc::Invalid, entry.description.parameter_error);
    operands_.push_back(operands_of(entry));
    Case one;
    one.op_type = entry.evaluated_as;
    one.parameters = entry.parameters;
    one.operands = operands_.back().get();
    one.jobs = jobs;
    one.peers = [&](int64_t rank_count) -> Result<std::vector<Case::Peer>> {
      ASSAY_TRY(const auto entries, cases_.peers_of(entry, rank_count));
      std::vector<Case::Peer> peers;
      for (const CaseEntry* peer : entries) {
        operands_.push_back(operands_of(*peer));
        peers.push_back({peer->parameters, operands_.back().get()});
      }
      return peers;
    };
    Result<Evaluation> evaluation = entry.op->evaluate(one);
    // A kernel may view its tensors otherwise than its operation does.
    if (!evaluation && entry.is_kernel && evaluation.error().code != Errc::Unsupported)
      return fail(Errc::Unsupported, "the kernel's tensors are not those of its operation: " +
                                         evaluation.error().message);
    return evaluation;
  }

  [[nodiscard]] std::unique_ptr<DumpedOperands> operands_of(const CaseEntry& entry) const {
    return std::make_unique<DumpedOperands>(entry.tensors, options_.precision_mode, &loaded_);
  }

  void check_outputs(const CaseEntry& entry, const Evaluation& evaluation,
                     CaseResult* result) const {
    std::vector<bool> expected(entry.tensors.outputs.size(), false);
    for (const Expectation& expectation : evaluation.outputs) {
      result->rows.push_back(check_output(entry, expectation));
      if (!expectation.in_place && expectation.index < expected.size())
        expected[expectation.index] = true;
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] || entry.tensors.outputs[i] == nullptr) continue;
      OutputRow row;
      row.index = i;
      set_place(entry.tensors.outputs[i], &row);
      row.outcome = CheckOutcome::Failed;
      row.reason = "the dump has outtensor" + std::to_string(i) + ", which " + entry.evaluated_as +
                   " with these parameters does not have";
      result->rows.push_back(std::move(row));
    }
    if (result->rows.empty())
      result->rows.push_back(failed_row({Errc::Unsupported,
                                         {},
                                         std::nullopt,
                                         "the operation has no outputs that can be judged"}));
    std::stable_sort(result->rows.begin(), result->rows.end(),
                     [](const OutputRow& a, const OutputRow& b) {
                       if (a.in_place != b.in_place) return !a.in_place;
                       return a.index < b.index;
                     });
  }

  static void set_place(const run::TensorRecord* record, OutputRow* row) {
    if (record == nullptr || !record->bytes) return;
    row->file = record->bytes->file.str();
    row->slot = record->slot.str();
  }

  OutputRow check_output(const CaseEntry& entry, const Expectation& expectation) const {
    const DumpedOperands operands(entry.tensors, options_.precision_mode, &loaded_);
    Result<Tensor> mine = expectation.mine       ? Result<Tensor>(*expectation.mine)
                          : expectation.in_place ? operands.input_after(expectation.index)
                                                 : operands.output(expectation.index);
    OutputRow row;
    if (!mine) {
      row = failed_row(mine.error());
    } else if (Status judged = compare(expectation, *mine, &row); !judged) {
      row = failed_row(judged.error());
    }
    row.index = expectation.index;
    row.in_place = expectation.in_place;
    // What is judged in place of the output, values at its indices, has a type of its own.
    if (expectation.mine && !row.dtype.empty()) {
      if (const Result<Tensor> dumped = expectation.in_place
                                            ? operands.input_after(expectation.index)
                                            : operands.output(expectation.index))
        row.dtype = std::string(name(dumped->view.dtype));
    }
    set_place(expectation.in_place ? operands.after_record(expectation.index)
                                   : operands.output_record(expectation.index),
              &row);
    row.partial = expectation.partial;
    row.accuracy = expectation.accuracy;
    add_note(expectation.note, &row);
    return row;
  }

  /// Judges mine against each candidate until one passes (or all, when the best counts).
  [[nodiscard]] Status compare(const Expectation& expectation, const Tensor& mine,
                               OutputRow* row) const {
    std::optional<OutputRow> best;
    std::optional<Error> trouble;
    bool kept_passed = false;
    for (const Candidate& candidate : expectation.candidates) {
      Result<Tensor> golden = candidate.golden();
      Result<OutputRow> judged = golden ? judge_one(expectation, candidate, *golden, mine)
                                        : Result<OutputRow>(fail(golden.error()));
      if (!judged) {
        if (!trouble) trouble = judged.error();
        continue;
      }
      const bool passed = judged->outcome == CheckOutcome::Pass;
      const bool is_better = !best || (passed && !kept_passed) ||
                             (passed == kept_passed && judged->measures.rmse < best->measures.rmse);
      if (is_better && (expectation.try_all || !best || passed)) {
        best = *std::move(judged);
        kept_passed = passed;
        if (!candidate.label.empty()) {
          best->note.clear();
          add_note((passed ? "matches " : "compared with ") + candidate.label, &*best);
        }
      }
      if (passed && !expectation.try_all) break;
    }
    if (!best)
      return fail(
          trouble.value_or(Error{Errc::Internal, {}, std::nullopt, "nothing to compare with"}));
    *row = *std::move(best);
    return {};
  }

  Result<OutputRow> judge_one(const Expectation& expectation, const Candidate& candidate,
                              const Tensor& golden, const Tensor& mine) const {
    OutputRow row;
    row.dtype = std::string(name(mine.view.dtype));
    row.shape = mine.view.shape;
    if (golden.view.element_count() != mine.view.element_count()) {
      row.outcome = CheckOutcome::Failed;
      row.reason = "shape " + list_text(mine.view.shape.span()) + ", expected " +
                   list_text(golden.view.shape.span());
      return row;
    }
    if (!(golden.view.shape == mine.view.shape))
      add_note("shape " + list_text(mine.view.shape.span()) + ", expected " +
                   list_text(golden.view.shape.span()) + ": compared in element order",
               &row);
    const measure::AtbLimits limits = measure::atb_limits(expectation.accuracy, mine.view.dtype);
    const measure::MeasureOptions measuring{
        .atb_error = limits.error,
        .kl_divergence = options_.kl_divergence,
        .kolmogorov_smirnov = expectation.accuracy.precision == Precision::Rand};
    ASSAY_TRY(row.measures, measure::measures_of(golden.view, mine.view, measuring));
    std::optional<measure::Measures> second;
    if (candidate.second) {
      ASSAY_TRY(const Tensor model, candidate.second());
      if (model.view.element_count() == golden.view.element_count()) {
        ASSAY_TRY(second, measure::measures_of(golden.view, model.view,
                                               {.atb_error = 0, .kl_divergence = false}));
      }
    }
    for (size_t i = 0; i < kStandardCount; ++i)
      row.judgements[i] = measure::judge(static_cast<measure::Standard>(i), row.measures,
                                         expectation.accuracy, second ? &*second : nullptr);
    row.legacy = measure::legacy_limits(measure::Standard::LegacyO4, mine.view.dtype);
    const measure::Judgement& judgement = row.judgements[static_cast<size_t>(options_.standard)];
    row.compared = true;
    row.outcome = judgement.passed ? CheckOutcome::Pass : CheckOutcome::Failed;
    row.reason = judgement.reason;
    add_note(judgement.remark, &row);
    if (row.measures.worst_index >= 0 || row.measures.first_pattern_mismatch >= 0)
      row.worst = measure::neighbourhood_of(golden.view, mine.view,
                                            row.measures.first_pattern_mismatch >= 0
                                                ? row.measures.first_pattern_mismatch
                                                : row.measures.worst_index);
    if (expectation.before_rounding) add_ties(*expectation.before_rounding, mine, &row);
    if (!options_.custom.empty()) {
      ASSAY_TRY_STATUS(add_custom(golden, mine, &row));
    }
    return row;
  }

  /// Says of a quantised output how many elements are one off, and of these how many were near a
  /// half.
  static void add_ties(const Tensor& before_rounding, const Tensor& mine, OutputRow* row);

  [[nodiscard]] Status add_custom(const Tensor& golden, const Tensor& mine, OutputRow* row) const {
    ASSAY_TRY(const Tensor same_type, reference::narrow(golden.view, mine.view.dtype));
    const std::lock_guard lock(*custom_mutex_);
    for (const CustomMetric& metric : options_.custom)
      row->custom.push_back(metric.compute(same_type.view, mine.view));
    return {};
  }

  const CaseList& cases_;
  const CheckOptions& options_;
  std::mutex* custom_mutex_;
  mutable LoadedTensors loaded_;                                   // of the case at hand
  mutable std::vector<std::unique_ptr<DumpedOperands>> operands_;  // of the case at hand
};

void Checker::add_ties(const Tensor& before_rounding, const Tensor& mine, OutputRow* row) {
  constexpr double kTie = 0x1p-8;
  Result<reference::Wide> exact = reference::widen(before_rounding.view);
  Result<reference::Wide> found = reference::widen(mine.view);
  if (!exact || !found || exact->size() != found->size()) return;
  int64_t one_off = 0;
  int64_t ties = 0;
  for (size_t i = 0; i < exact->values.size(); ++i) {
    const double value = exact->values[i];
    if (std::fabs(found->values[i] - reference::quantise_int8(value)) != kMaxElementError) continue;
    ++one_off;
    if (std::fabs(std::fabs(value - std::floor(value)) - 0.5) <= kTie) ++ties;
  }
  if (one_off > 0)
    add_note(std::to_string(one_off) + " elements one off, of which " + std::to_string(ties) +
                 " are ties",
             row);
}

}  // namespace

CheckOutcome worse(CheckOutcome a, CheckOutcome b) {
  // From the best to the worst. What was not judged weighs more than a pass.
  constexpr std::array<CheckOutcome, 4> kOrder = {CheckOutcome::Pass, CheckOutcome::NotSupported,
                                                  CheckOutcome::Failed, CheckOutcome::Error};
  const auto place = [&](CheckOutcome outcome) {
    return std::find(kOrder.begin(), kOrder.end(), outcome);
  };
  return place(a) < place(b) ? b : a;
}

std::string_view outcome_name(CheckOutcome outcome) {
  switch (outcome) {
    case CheckOutcome::Pass:
      return "PASS";
    case CheckOutcome::Failed:
      return "FAILED";
    case CheckOutcome::NotSupported:
      return "NOT_SUPPORTED";
    case CheckOutcome::Error:
      return "ERROR";
  }
  return "";
}

Report::Counts Report::counts() const {
  Counts counts;
  for (const CaseResult& one : cases) {
    counts.outputs += one.rows.size();
    switch (one.outcome) {
      case CheckOutcome::Pass:
        ++counts.passed;
        break;
      case CheckOutcome::Failed:
        ++counts.failed;
        break;
      case CheckOutcome::NotSupported:
        ++counts.not_supported;
        break;
      case CheckOutcome::Error:
        ++counts.errors;
        break;
    }
  }
  return counts;
}

namespace {

/// Results as they come, reported in the order of the cases.
class Results {
 public:
  Results(size_t count, const CheckOptions& options) : options_(options), results_(count) {}

  /// nothing   the case was given up
  void add(size_t number, std::optional<CaseResult> result) {
    std::unique_lock lock(mutex_);
    is_complete_ &= result.has_value();
    results_[number] = std::move(result);
    ++done_;
    if (options_.progress) options_.progress(done_, results_.size());
    report(&lock);
  }
  [[nodiscard]] bool is_complete() const { return is_complete_; }
  [[nodiscard]] std::vector<CaseResult> take() {
    std::vector<CaseResult> taken;
    for (std::optional<CaseResult>& result : results_) {
      if (result) taken.push_back(*std::move(result));
    }
    return taken;
  }

 private:
  /// Reports what is next. A report takes as long as a small case, so others do not wait for it:
  /// what they add meanwhile is reported by the thread that is at it.
  void report(std::unique_lock<std::mutex>* lock) {
    if (is_reporting_ || !options_.finished) return;
    is_reporting_ = true;
    for (; reported_ < results_.size() && results_[reported_]; ++reported_) {
      const CaseResult& next = *results_[reported_];  // stays as it is from now on
      lock->unlock();
      options_.finished(next);
      lock->lock();
    }
    is_reporting_ = false;
  }

  const CheckOptions& options_;
  std::mutex mutex_;
  std::vector<std::optional<CaseResult>> results_;
  bool is_reporting_ = false;
  size_t reported_ = 0;
  size_t done_ = 0;
  bool is_complete_ = true;
};

/// The cases of these numbers, in this process.
void check_here(const CaseList& cases, const CheckOptions& options,
                const std::vector<size_t>& numbers, Results* results) {
  MemoryBudget budget(options.max_memory);
  std::mutex custom_mutex;
  const unsigned jobs = resolve_job_count(options.jobs);
  // Few cases leave threads over, which a large product can use.
  const bool one_by_one = numbers.size() < jobs;
  parallel_for(numbers.size(), one_by_one ? 1 : jobs, [&](size_t i) {
    const CaseEntry& entry = cases.entries()[numbers[i]];
    const uint64_t bytes = entry.bytes * kWorkingBytesPerByte;
    budget.acquire(i, bytes);
    std::optional<CaseResult> result;
    try {
      const InterruptScope scope(options.interrupted);
      throw_if_interrupted();
      result = Checker(cases, options, &custom_mutex)
                   .check(entry, one_by_one ? static_cast<int>(jobs) : 1);
    } catch (const Interrupted&) {  // what is half done is no result
    }
    budget.release(bytes);
    results->add(numbers[i], std::move(result));
  });
}

}  // namespace

Result<Report> check_cases(const CaseList& cases, const CheckOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Report report;
  report.path = cases.path;
  report.unlisted = cases.unlisted;
  report.warnings = cases.warnings;
  report.nothing_matched = cases.nothing_matched;
  report.standard = options.standard;
  Results results(cases.entries().size(), options);
  std::vector<size_t> here(cases.entries().size());
  std::iota(here.begin(), here.end(), size_t{0});
  if (options.parts != nullptr) {
    ASSAY_TRY(here,
              check_elsewhere(cases, options, [&](size_t number, std::optional<CaseResult> result) {
                results.add(number, std::move(result));
              }));
  }
  check_here(cases, options, here, &results);
  report.interrupted =
      !results.is_complete() || (options.interrupted != nullptr && options.interrupted->load());
  report.cases = results.take();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace assay::opcheck
