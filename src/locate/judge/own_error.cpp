// SPDX-License-Identifier: Apache-2.0
// All operators of a program: evaluated from their own inputs and judged, streamed over all cores.
#include "locate/judge/own_error.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>

#include "base/interruption.hpp"
#include "base/memory_budget.hpp"
#include "base/thread_pool.hpp"
#include "locate/judge/judge_exact.hpp"
#include "locate/judge/judge_output.hpp"
#include "locate/judge/judge_sums.hpp"
#include "locate/judge/narrow_kernels.hpp"
#include "locate/judge/operator_parts.hpp"
#include "locate/judge/strict_kernels.hpp"
#include "locate/program/collectives.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/equal_bytes.hpp"

namespace assay::locate {
namespace {

using reference::aten::Call;
using reference::aten::OperatorClass;

/// A product that takes more than this share of a thread's work gets all threads.
constexpr double kShareOfOneThread = 0.5;
/// Of a view that is checked in parts: one row in 16, in pieces that fill lines of the cache.
constexpr int64_t kLargeView = int64_t{1} << 18;
constexpr int64_t kPartRows = 16;
constexpr int64_t kPartDistance = 16 * kPartRows;
/// What sums over its columns cost of a product: three in 64.
constexpr double kShareOfSums = 0.05;
/// Of a sampled product.
constexpr int64_t kFewestRows = 16;

std::optional<DType> dtype_of(const Program& program, const Use& use) {
  if (use.record >= program.run->records.size()) return std::nullopt;
  return program.run->records[use.record].dtype;
}

double elements_of(const Program& program, const Use& use) {
  if (use.record >= program.run->records.size()) return 0;
  return static_cast<double>(locate::elements_of(program.run->records[use.record]));
}

bool has_float_output(const Program& program, const Operator& one) {
  return std::ranges::any_of(one.outputs,
                             [&](const Use& use) { return float_type(program, use).has_value(); });
}

/// What one operator costs, roughly: for an even spread over threads and a bounded memory.
struct Cost {
  double multiplications = 0;  // of products; otherwise a multiple of the elements
  uint64_t bytes = 0;          // of working tensors
};

/// [m, k] . [k, n] takes m k n: the root of the three sizes multiplied, k twice among them as m and
/// n are.
double multiplications_of(const Program& program, const Operator& one) {
  double first = 0;
  double second = 0;
  for (const Use& use : one.inputs) {
    const double elements = elements_of(program, use);
    second = std::max(second, std::min(first, elements));
    first = std::max(first, elements);
  }
  return one.outputs.empty() ? 0 : std::sqrt(first * second * elements_of(program, one.outputs[0]));
}

Cost cost_of(const Program& program, const Operator& one, bool by_sums) {
  double inputs = 0;
  double outputs = 0;
  for (const Use& use : one.inputs) inputs += elements_of(program, use);
  for (const Use& use : one.outputs) outputs += elements_of(program, use);
  const OperatorClass kind = reference::aten::class_of(one.name);
  const bool moves = kind == OperatorClass::Move;
  const bool is_cheap = by_sums && kind == OperatorClass::Product && !one.outputs.empty() &&
                        dtype_of(program, one.outputs[0]) == DType::Float32;
  Cost cost;
  cost.multiplications = (moves ? 1 : 16) * (inputs + outputs);
  if (kind == OperatorClass::Product || kind == OperatorClass::Attention)
    cost.multiplications += multiplications_of(program, one) * (is_cheap ? kShareOfSums : 1);
  cost.bytes = static_cast<uint64_t>((moves ? 2 : 24) * outputs + (moves ? 0 : 8) * inputs);
  return cost;
}

OwnError unjudged(size_t op, size_t use, OwnError::State state, std::string reason) {
  OwnError error;
  error.op = op;
  error.output = use;
  error.state = state;
  error.reason = std::move(reason);
  return error;
}

OwnError unjudged(size_t op, size_t use, const Error& error) {
  using State = OwnError::State;
  const auto as = [&](State state, std::string reason) {
    OwnError one = unjudged(op, use, state, std::move(reason));
    one.reason_is_named = error.named;
    return one;
  };
  switch (error.code) {
    case Errc::NotFound:
      return as(State::NotCaptured, error.message);
    case Errc::Random:
      return as(State::NotPredictable, error.message);
    case Errc::Unsupported:
      return as(State::NoReference, error.message);
    default:
      return as(State::Failed, error.describe());
  }
}

class OwnErrorJob {
 public:
  OwnErrorJob(const Program& program, const OwnErrorOptions& options)
      : program_(program), options_(options) {}

  /// One result an output; an operator without captured outputs gives one, too.
  [[nodiscard]] std::vector<OwnError> judge(size_t op, int jobs) const {
    const Operator& one = program_.operators[op];
    std::vector<OwnError> errors;
    try {
      judge_into(op, one, jobs, &errors);
    } catch (const std::exception& exception) {  // memory that cannot be had
      errors.clear();
      errors.push_back(unjudged(op, 0, OwnError::State::Failed, exception.what()));
    }
    for (OwnError& error : errors) {
      if (error.output >= one.outputs.size()) continue;
      error.dtype = dtype_of(program_, one.outputs[error.output]).value_or(error.dtype);
    }
    return errors;
  }

 private:
  void judge_into(size_t op, const Operator& one, int jobs, std::vector<OwnError>* errors) const {
    const auto give_up = [&](const auto&... why) {
      for (size_t use = 0; use < std::max<size_t>(one.outputs.size(), 1); ++use)
        errors->push_back(unjudged(op, use, why...));
    };
    using State = OwnError::State;
    if (!one.problem.empty())
      return give_up(one.input_missing ? State::NotCaptured : State::Failed, one.problem);
    switch (is_collective(one) ? OperatorClass::Reduction : reference::aten::class_of(one.name)) {
      case OperatorClass::Unknown:
        return give_up(State::NoReference, std::string("no reference"));
      case OperatorClass::Fused:
        return give_up(State::NoReference, std::string("simulated floor only"));
      case OperatorClass::Random:
        return give_up(State::NotPredictable, std::string("random values"));
      case OperatorClass::Allocation:
        return give_up(State::NotPredictable, std::string("undefined values"));
      default:
        break;
    }
    if (one.outputs.empty()) return give_up(State::NotCaptured, std::string("no outputs"));
    const Result<Call> call = load_call(program_, one);
    if (!call) return give_up(call.error());
    const double work = multiplications_of(program_, one);
    if (options_.sample_above > 0 && work > static_cast<double>(options_.sample_above) &&
        one.outputs.size() == 1) {
      const double share = static_cast<double>(options_.sample_above) / work;
      if (std::optional<OwnError> sampled = judge_rows(op, one, *call, share, jobs)) {
        errors->push_back(*std::move(sampled));
        return;
      }
    }
    if (options_.by_sums && one.outputs.size() == 1) {
      if (std::optional<OwnError> judged = judge_sums(op, one, *call, work, jobs)) {
        errors->push_back(*std::move(judged));
        return;
      }
    }
    const Result<std::vector<Tensor>> results = reference::aten::evaluate(*call, {.jobs = jobs});
    if (!results) return give_up(results.error());
    if (options_.by_sums && one.outputs.size() == 1 && reference::aten::is_view(one.name)) {
      if (std::optional<OwnError> judged = judge_parts(op, one, *results)) {
        errors->push_back(*std::move(judged));
        return;
      }
    }
    for (size_t use = 0; use < one.outputs.size(); ++use)
      errors->push_back(judge_use(op, use, one, *call, *results, jobs));
  }

  [[nodiscard]] OwnError judge_use(size_t op, size_t use, const Operator& one, const Call& call,
                                   const std::vector<Tensor>& results, int jobs) const {
    const Result<Tensor> mine = load_use(program_, one.outputs[use]);
    if (!mine) return unjudged(op, use, mine.error());
    Result<OwnError> judged =
        judge_output(call, results, result_of(one.outputs[use], use), mine->view, jobs);
    if (!judged) return unjudged(op, use, judged.error());
    judged->op = op;
    judged->output = use;
    return *std::move(judged);
  }

  /// A part of a large product; nothing when its rows cannot be had alone.
  [[nodiscard]] std::optional<OwnError> judge_rows(size_t op, const Operator& one, const Call& call,
                                                   double share, int jobs) const {
    if (reference::aten::class_of(one.name) != OperatorClass::Product) return std::nullopt;
    const Result<Tensor> mine = load_use(program_, one.outputs[0]);
    if (!mine) return unjudged(op, 0, mine.error());
    const Dims& shape = mine->view.shape;
    const int64_t last = shape.empty() ? 1 : std::max<int64_t>(shape[shape.size() - 1], 1);
    const auto wanted =
        static_cast<int64_t>(share * static_cast<double>(mine->view.element_count() / last));
    Result<OwnError> judged = judge_product_rows(
        call, mine->view, sample_rows(mine->view, std::max(wanted, kFewestRows)), jobs);
    if (!judged) return std::nullopt;
    judged->op = op;
    return *std::move(judged);
  }

  /// A product whose sums are right; nothing when only the product itself can tell.
  [[nodiscard]] std::optional<OwnError> judge_sums(size_t op, const Operator& one, const Call& call,
                                                   double work, int jobs) const {
    const Result<Tensor> mine = load_use(program_, one.outputs[0]);
    if (!mine || !can_judge_by_sums(call, mine->view, work)) return std::nullopt;
    Result<std::optional<OwnError>> judged = judge_by_sums(call, mine->view, jobs);
    if (!judged || !*judged) return std::nullopt;
    (*judged)->op = op;
    return **std::move(judged);
  }

  /// Rows of a large view, at even distances; nothing when it is small, or not all of them are
  /// equal.
  [[nodiscard]] std::optional<OwnError> judge_parts(size_t op, const Operator& one,
                                                    const std::vector<Tensor>& results) const {
    const Result<Tensor> mine = load_use(program_, one.outputs[0]);
    if (!mine || results.size() != 1) return std::nullopt;
    const TensorView& expected = results[0].view;
    if (!(expected.shape == mine->view.shape) || expected.shape.size() < 2 ||
        expected.element_count() < kLargeView)
      return std::nullopt;
    const int64_t rows = expected.shape[0];
    if (rows < kPartDistance) return std::nullopt;
    for (int64_t first = 0; first < rows; first += kPartDistance) {
      const int64_t count = std::min(kPartRows, rows - first);
      if (!has_equal_bytes(reference::section(expected, 0, first, count),
                           reference::section(mine->view, 0, first, count)))
        return std::nullopt;
    }
    OwnError judged;
    judged.op = op;
    judged.state = OwnError::State::Exact;
    judged.sampled = true;
    return judged;
  }

  const Program& program_;
  const OwnErrorOptions& options_;
};

/// Operators in the order in which they are worked on: the dearest first, so that no thread ends
/// long after the others.
struct Schedule {
  std::vector<size_t> alone;     // with all threads each
  std::vector<size_t> together;  // one thread each
  std::vector<Cost> costs;       // by operator
};

Schedule make_schedule(const Program& program, std::vector<size_t> order, unsigned jobs,
                       bool by_sums) {
  Schedule schedule;
  double sum = 0;
  schedule.costs.resize(program.operators.size());
  for (const size_t op : order) {
    schedule.costs[op] = cost_of(program, program.operators[op], by_sums);
    sum += schedule.costs[op].multiplications;
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return schedule.costs[a].multiplications > schedule.costs[b].multiplications;
  });
  const double large = kShareOfOneThread * sum / jobs;
  for (const size_t op : order) {
    const bool is_large = jobs > 1 && schedule.costs[op].multiplications > large;
    (is_large ? schedule.alone : schedule.together).push_back(op);
  }
  return schedule;
}

/// A view that moved nothing and was not copied: there is nothing to judge.
bool is_alias_only(const Program& program, const Operator& one) {
  return program.engine != nullptr && reference::aten::is_view(one.name) &&
         std::ranges::none_of(one.outputs, [&](const Use& use) {
           return use.record < program.run->records.size() &&
                  program.run->records[use.record].bytes.has_value();
         });
}

/// Why an output was not judged, with its operator's name.
std::string reason_of(const Operator& one, const OwnError& error) {
  return error.reason_is_named ? error.reason : one.name + ": " + error.reason;
}

void count(const Program& program, const std::vector<std::vector<OwnError>>& by_operator,
           OwnErrors* result) {
  for (size_t op = 0; op < by_operator.size(); ++op) {
    if (by_operator[op].empty()) continue;  // interrupted before its turn
    const Operator& one = program.operators[op];
    // Of allocations there is nothing to judge; the first that writes into one is.
    const bool judgeable = has_float_output(program, one) &&
                           reference::aten::class_of(one.name) != OperatorClass::Allocation &&
                           !is_alias_only(program, one);
    bool any = false;
    std::string reason;
    std::string unpredictable;
    for (const OwnError& error : by_operator[op]) {
      if (!is_float(error.dtype)) continue;
      using State = OwnError::State;
      if (error.state == State::Judged || error.state == State::Exact)
        any = true;
      else if (error.state == State::NotPredictable)
        unpredictable = reason_of(one, error);
      else if (reason.empty())
        reason = reason_of(one, error);
    }
    // A debug mask beside a result that was judged does not matter.
    if (!any && reason.empty()) reason = unpredictable;
    if (!judgeable) continue;
    ++result->judgeable;
    if (reason.empty()) {
      ++result->judged;
    } else {
      ++result->unjudged[reason];
      result->unjudged_operators.emplace(op, std::move(reason));
    }
  }
}

/// Judges the operators of these numbers, unless it is interrupted: then those it came to.
void judge_here(const Program& program, const OwnErrorOptions& options,
                const std::vector<size_t>& numbers,
                std::vector<std::vector<OwnError>>* by_operator) {
  const unsigned jobs = resolve_job_count(options.jobs);
  const Schedule schedule = make_schedule(program, numbers, jobs, options.by_sums);
  const OwnErrorJob job(program, options);
  std::mutex progress_mutex;
  size_t done = by_operator->size() - numbers.size();
  const auto judge = [&](size_t op, int own_jobs) {
    try {
      const InterruptScope scope(options.interrupted);
      throw_if_interrupted();
      (*by_operator)[op] = job.judge(op, own_jobs);
    } catch (const Interrupted&) {
      return;
    }
    const std::lock_guard lock(progress_mutex);
    ++done;
    if (options.progress) options.progress(done, by_operator->size());
  };
  for (const size_t op : schedule.alone) judge(op, static_cast<int>(jobs));
  MemoryBudget budget(options.max_memory);
  parallel_for(schedule.together.size(), jobs, [&](size_t i) {
    const size_t op = schedule.together[i];
    budget.acquire(i, schedule.costs[op].bytes);
    judge(op, 1);
    budget.release(schedule.costs[op].bytes);
  });
}

bool was_interrupted(const OwnErrorOptions& options) {
  return options.interrupted != nullptr && options.interrupted->load();
}

std::vector<size_t> all_of(const Program& program) {
  std::vector<size_t> numbers(program.operators.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  return numbers;
}

}  // namespace

size_t result_of(const Use& use, size_t place) {
  size_t number = 0;
  const std::string_view slot = use.slot;
  const char* end = slot.data() + slot.size();
  const auto read = std::from_chars(slot.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? number : place;
}

Result<std::vector<std::vector<OwnError>>> judge_operators(const Program& program,
                                                           const OwnErrorOptions& options) {
  std::vector<std::vector<OwnError>> by_operator(program.operators.size());
  judge_here(program, options, all_of(program), &by_operator);
  if (was_interrupted(options)) return fail(Errc::Interrupted, "interrupted");
  return by_operator;
}

Result<OwnErrors> own_errors(const Program& program, const OwnErrorOptions& options) {
  std::vector<std::vector<OwnError>> by_operator(program.operators.size());
  OwnErrors result;
  OperatorsElsewhere elsewhere{.here = all_of(program)};
  if (options.parts != nullptr) {
    ASSAY_TRY(elsewhere, judge_elsewhere(program, options, &by_operator));
  }
  if (!elsewhere.interrupted) judge_here(program, options, elsewhere.here, &by_operator);
  result.failed_parts = std::move(elsewhere.failed);
  result.interrupted = elsewhere.interrupted || was_interrupted(options);
  if (result.interrupted && !options.keeps_what_is_done)
    return fail(Errc::Interrupted, "interrupted");
  if (!result.interrupted) judge_narrow_kernels(program, options, &by_operator, &result);
  count(program, by_operator, &result);
  for (std::vector<OwnError>& errors : by_operator)
    result.outputs.insert(result.outputs.end(), std::make_move_iterator(errors.begin()),
                          std::make_move_iterator(errors.end()));
  find_wrong_operators(program, &result);
  return result;
}

}  // namespace assay::locate
