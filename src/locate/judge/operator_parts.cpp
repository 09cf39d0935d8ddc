// SPDX-License-Identifier: Apache-2.0
// A part is a run of its own: some operators with their records. The process that has it makes a
// program of it, as of any run.
#include "locate/judge/operator_parts.hpp"

#include <algorithm>

#include "locate/program/collectives.hpp"
#include "run/do_parts.hpp"
#include "run/part_archive.hpp"

namespace assay::locate {

/// But for the operator, which the part knows.
template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, OwnError>
void transfer(Archive& archive, Any& error) {
  archive(error.output, error.state, error.dtype, error.z, error.e, error.e2, error.zr, error.worst,
          error.worst_ulp, error.allowed_ulp, error.relative_l2, error.floor_l2, error.wrong,
          error.sampled, error.by_sums, error.reason, error.reason_is_named);
  run::check_range(archive, error.state <= OwnError::State::Failed &&
                                static_cast<int>(error.dtype) < kDTypeCount);
}

namespace {

constexpr std::string_view kAnswerMark = "assay errors 1";

class Elsewhere {
 public:
  Elsewhere(const Program& program, const OwnErrorOptions& options,
            std::vector<std::vector<OwnError>>* by_operator)
      : program_(program),
        options_(options),
        by_operator_(by_operator),
        operations_(operations_in_order(*program.run)) {}

  Result<OperatorsElsewhere> judge() {
    ASSAY_TRY(result_.here,
              run::do_parts(*options_.parts,
                            {.count = program_.operators.size(),
                             .can_be_sent = [&](size_t op) { return can_be_sent(op); },
                             .place_of = [&](size_t op) { return place_of(op); },
                             .files_of = [&](const run::Part& part) { return files_of(part); },
                             .pack = [&](const run::Part& part) { return pack(part); },
                             .take =
                                 [&](const run::Part& part, run::PartRunner::Outcome outcome) {
                                   take(part, std::move(outcome));
                                 },
                             .progress = options_.progress}));
    return std::move(result_);
  }

 private:
  template <typename Use>
  static void for_each_record(const Operator& one, Use&& use) {
    for (const auto& input : one.inputs) use(input.record);
    for (const auto& output : one.outputs) use(output.record);
  }

  /// Not those of an engine, which knows values that were not copied, not those that a program was
  /// given beside the run's, and not those that several ranks had together.
  [[nodiscard]] bool can_be_sent(size_t op) const {
    if (program_.engine != nullptr || op >= operations_.size()) return false;
    const Operator& one = program_.operators[op];
    if (is_collective(one)) return false;
    const run::OperationRecord& operation = *operations_[op];
    bool is_plain =
        one.node == operation.node && one.rank == operation.rank && one.time == operation.order;
    for_each_record(one, [&](size_t record) {
      is_plain &=
          record < program_.run->records.size() && program_.run->records[record].made() == nullptr;
    });
    return is_plain;
  }

  [[nodiscard]] uint64_t size_of(size_t record) const {
    const run::MaybeLocation& bytes = program_.run->records[record].bytes;
    return bytes ? bytes->size_bytes : 0;
  }

  [[nodiscard]] run::TaskPlace place_of(size_t op) const {
    const Operator& one = program_.operators[op];
    run::TaskPlace place{.rank = one.rank, .step = one.step};
    for_each_record(one, [&](size_t record) { place.bytes += size_of(record); });
    return place;
  }

  [[nodiscard]] std::vector<std::string> files_of(const run::Part& part) const {
    run::PartFiles files;
    for (const size_t op : part.tasks)
      for_each_record(program_.operators[op],
                      [&](size_t record) { files.add(program_.run->records[record]); });
    return files.list();
  }

  [[nodiscard]] std::string pack(const run::Part& part) const {
    std::vector<run::OperationRecord> operations;
    std::vector<size_t> numbers;
    for (const size_t op : part.tasks) {
      operations.push_back(*operations_[op]);
      for_each_record(program_.operators[op], [&](size_t record) { numbers.push_back(record); });
    }
    std::ranges::sort(numbers);  // a program goes by their order
    run::SomeRecords records(*program_.run);
    for (const size_t number : numbers) records.place_of(number);
    ByteWriter out;
    out(std::string(kOperatorsMark), options_.sample_above, options_.by_sums, operations);
    records.write(out);
    return out.take();
  }

  void take(const run::Part& part, run::PartRunner::Outcome outcome) {
    Status taken;
    if (outcome) {
      taken = unpack(as_bytes(*outcome), part);
    } else {
      taken = fail(outcome.error());
    }
    if (taken) return;
    if (taken.error().code == Errc::Interrupted) {
      result_.interrupted = true;
      return;
    }
    const std::string why = taken.error().describe();
    result_.failed[why] += part.tasks.size();
    for (const size_t op : part.tasks) {
      std::vector<OwnError>& errors = (*by_operator_)[op];
      for (size_t i = 0; i < std::max<size_t>(program_.operators[op].outputs.size(), 1); ++i) {
        OwnError& error = errors.emplace_back();
        error.op = op;
        error.output = i;
        error.state = OwnError::State::Failed;
        error.reason = "not checked: " + why;
      }
    }
  }

  Status unpack(ByteSpan answer, const run::Part& part) {
    if (run::mark_of(answer) != kAnswerMark)
      return fail(Errc::Invalid, "the answer is of another version of assay");
    ArchiveReader archive(answer);
    std::string mark;
    std::vector<std::vector<OwnError>> found;
    std::vector<run::Damage> damage;
    archive(mark, found, damage);
    ASSAY_TRY_STATUS(archive.status());
    if (found.size() != part.tasks.size())
      return fail(Errc::Invalid, "the answer has other operators than the part");
    for (size_t i = 0; i < found.size(); ++i) {
      const size_t op = part.tasks[i];
      for (OwnError& error : found[i]) error.op = op;
      (*by_operator_)[op] = std::move(found[i]);
    }
    for (run::Damage& one : damage) program_.run->found_damage->add(std::move(one));
    return {};
  }

  const Program& program_;
  const OwnErrorOptions& options_;
  std::vector<std::vector<OwnError>>* by_operator_;
  const std::vector<const run::OperationRecord*> operations_;
  OperatorsElsewhere result_;
};

}  // namespace

Result<OperatorsElsewhere> judge_elsewhere(const Program& program, const OwnErrorOptions& options,
                                           std::vector<std::vector<OwnError>>* by_operator) {
  return Elsewhere(program, options, by_operator).judge();
}

Result<std::string> run_part(ByteSpan request, OwnErrorOptions options) {
  if (run::mark_of(request) != kOperatorsMark)
    return fail(Errc::Invalid, "the part is of another version of assay");
  ArchiveReader archive(request);
  std::string mark;
  run::Run run;
  archive(mark, options.sample_above, options.by_sums, run.operations);
  run::read_run(archive, &run);
  ASSAY_TRY_STATUS(archive.status());
  const Program program = make_program(run);
  if (!archive.is_at_end() || program.operators.size() != run.operations.size())
    return fail(Errc::Invalid, "the part is not of operators");
  options.parts = nullptr;
  ASSAY_TRY(const auto by_operator, judge_operators(program, options));
  ByteWriter out;
  out(std::string(kAnswerMark), by_operator, run.found_damage->list());
  return out.take();
}

}  // namespace assay::locate
