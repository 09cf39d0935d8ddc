// SPDX-License-Identifier: Apache-2.0
// Runs of one program held against the first of them.
#include <memory>

#include "engines/engines.hpp"
#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "repeat/outcome.hpp"
#include "repeat/steps.hpp"
#include "repeat/tokens.hpp"
#include "report/html/repeat_page.hpp"
#include "report/html/scenarios_page.hpp"
#include "report/repeat_text.hpp"
#include "report/rows_json.hpp"
#include "run/open.hpp"

namespace py = assay::binding;
using namespace py::literals;

namespace assay::python {
namespace {

std::shared_ptr<const run::Run> opened(const std::string& path) {
  return std::make_shared<const run::Run>(read_without_gil([&] { return run::open_run(path); }));
}

/// What `assay repeat` does with the runs of a program.
class RepeatedRuns {
 public:
  explicit RepeatedRuns(const std::string& first) {
    groups_.push_back(std::make_unique<repeat::Repetition>(opened(first)));
  }
  RepeatedRuns(const RepeatedRuns&) = delete;
  RepeatedRuns& operator=(const RepeatedRuns&) = delete;
  ~RepeatedRuns() = default;

  bool add(const std::string& path) {
    const std::shared_ptr<const run::Run> run = opened(path);
    const py::GilReleased released;
    return groups_.front()->add(run, groups_.front()->run_count());
  }

  /// False: they do not differ in the way of the first finding.
  bool look_at_values(const std::string& first, const std::string& other) {
    const std::shared_ptr<const run::Run> golden = opened(first);
    const std::shared_ptr<const run::Run> mine = opened(other);
    const repeat::Place place = groups_.front()->findings().front().difference.place;
    elements_ = read_without_gil(
        [&] { return repeat::compare_elements(*golden, *mine, place, engines::all()); });
    return elements_.has_value();
  }

  [[nodiscard]] py::Str json(const std::string& note, const std::string& next) const {
    return to_str(report::repeat_json(outcome(note, next)));
  }
  [[nodiscard]] py::Str text(const std::string& note, const std::string& next) const {
    return to_message(report::repeat_text(outcome(note, next), kWidth) + "next: " + next + "\n");
  }
  void write_page(const std::string& note, const std::string& next, const std::string& path) const {
    const Status written =
        report::html::write_page(report::html::repeat_page(outcome(note, next)), path);
    if (!written) raise(written.error());
  }

 private:
  static constexpr int kWidth = 100;

  [[nodiscard]] repeat::Outcome outcome(const std::string& note, const std::string& next) const {
    repeat::Outcome made = repeat::make_outcome(groups_, {}, {});
    made.elements = elements_;
    made.elements_note = note;
    made.next = next;
    return made;
  }

  std::vector<std::unique_ptr<repeat::Repetition>> groups_;  // one
  std::optional<repeat::Elements> elements_;
};

/// The run of a scenario: one of its own, or some steps of that of a process that ran several.
class ScenarioRun {
 public:
  /// steps  -1: all of the run
  ScenarioRun(const std::string& path, int64_t first_step, int64_t steps) {
    std::shared_ptr<const run::Run> run = opened(path);
    const py::GilReleased released;
    if (steps >= 0)
      run = std::make_shared<const run::Run>(repeat::steps_of(*run, first_step, steps));
    run_ = run;
    execution_ = std::make_shared<const repeat::Execution>(std::move(run));
  }
  ScenarioRun(const ScenarioRun&) = delete;
  ScenarioRun& operator=(const ScenarioRun&) = delete;
  ~ScenarioRun() = default;

  [[nodiscard]] const repeat::Execution& execution() const { return *execution_; }
  [[nodiscard]] std::shared_ptr<const repeat::Execution> shared() const { return execution_; }
  [[nodiscard]] py::Str places() const { return to_str(report::places_json(*execution_)); }
  [[nodiscard]] py::Str repeated(const ScenarioRun& other) const {
    const py::GilReleased released;
    repeat::Repetition pair(run_);
    pair.add(other.run_, 1);
    const std::string json = report::pair_json(pair);
    const py::GilHeld acquired;
    return to_str(json);
  }
  [[nodiscard]] int64_t step_count() const { return repeat::step_count(*run_); }
  [[nodiscard]] const run::Run& run() const { return *run_; }

 private:
  std::shared_ptr<const run::Run> run_;
  std::shared_ptr<const repeat::Execution> execution_;
};

repeat::RowPlace place(const ScenarioRun& run, int64_t row) {
  return {&run.execution(), std::max<int64_t>(row, 0), row < 0};
}

/// Twelve numbers a pair of calls: see python/assay/invariance.py, _call_pairs().
using Numbers = std::vector<int64_t>;

repeat::Window window_of(const Numbers& numbers, size_t at) {
  return {numbers.at(at), numbers.at(at + 1), numbers.at(at + 2), numbers.at(at + 3),
          numbers.at(at + 4)};
}

std::vector<repeat::CallPair> pairs_of(const std::vector<Numbers>& pairs) {
  std::vector<repeat::CallPair> calls;
  for (const Numbers& one : pairs)
    calls.push_back({one.at(0), one.at(1), window_of(one, 2), window_of(one, 7)});
  return calls;
}

/// One row of a batch in runs of one program, by what two runs of equal rows tell of the tensors.
class Rows {
 public:
  /// lengths  four numbers a step: repeat::Lengths
  Rows(const ScenarioRun& few, const ScenarioRun& more, int64_t rows,
       const std::vector<Numbers>& lengths)
      : few_(few.shared()),
        more_(more.shared()),
        splits_(*few_, *more_, rows, lengths_of(lengths)) {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  ~Rows() = default;

  /// A row of -1: the run has the row alone.
  [[nodiscard]] py::Str compare(const ScenarioRun& first, int64_t row, const ScenarioRun& other,
                                int64_t other_row) const {
    const repeat::RowComparison found = read_without_gil(
        [&] { return repeat::compare_rows(place(first, row), place(other, other_row), splits_); });
    return to_str(report::rows_json(found));
  }

  /// `first` has the row alone and without padding.
  [[nodiscard]] py::Str compare_padded(const ScenarioRun& first, const ScenarioRun& other,
                                       int64_t row, const std::vector<Numbers>& pairs) const {
    const std::vector<repeat::CallPair> calls = pairs_of(pairs);
    const repeat::RowComparison found = read_without_gil([&] {
      return repeat::compare_tokens(first.execution(), place(other, row), calls, &splits_);
    });
    return to_str(report::rows_json(found));
  }

 private:
  static std::vector<repeat::Lengths> lengths_of(const std::vector<Numbers>& lengths) {
    std::vector<repeat::Lengths> made;
    for (const Numbers& one : lengths) made.push_back({one.at(0), one.at(1), one.at(2), one.at(3)});
    return made;
  }

  std::shared_ptr<const repeat::Execution> few_, more_;
  repeat::Splits splits_;  // of these two
};

/// Both have the row alone, `other` in other calls.
py::Str compare_calls(const ScenarioRun& first, const ScenarioRun& other,
                      const std::vector<Numbers>& pairs) {
  const std::vector<repeat::CallPair> calls = pairs_of(pairs);
  const repeat::RowComparison found = read_without_gil(
      [&] { return repeat::compare_tokens(first.execution(), place(other, -1), calls, nullptr); });
  return to_str(report::rows_json(found));
}

int64_t step_count(const std::string& path) { return repeat::step_count(*opened(path)); }

void write_scenarios_page(const std::string& parts, const ScenarioRun& alone,
                          const std::string& path) {
  const Status written =
      report::html::write_page(report::html::scenarios_page(parts, alone.run()), path);
  if (!written) raise(written.error());
}

}  // namespace

void bind_repeat(py::Module& m) {
  py::Class<RepeatedRuns>(m, "_RepeatedRuns")
      .def(py::Init<const std::string&>(), "first"_a)
      .def("add", &RepeatedRuns::add, "path"_a,
           "Whether the run is equal to the first one bit for bit.")
      .def("look_at_values", &RepeatedRuns::look_at_values, "first"_a, "other"_a,
           "Whether two runs that kept values differ as the first finding says.")
      .def("json", &RepeatedRuns::json, "note"_a, "next"_a)
      .def("text", &RepeatedRuns::text, "note"_a, "next"_a)
      .def("write_page", &RepeatedRuns::write_page, "note"_a, "next"_a, "path"_a);
  py::Class<ScenarioRun>(m, "_ScenarioRun")
      .def(py::Init<const std::string&, int64_t, int64_t>(), "path"_a, "first_step"_a = 0,
           "steps"_a = -1)
      .def("places", &ScenarioRun::places, "The place of each operator, in the order of execution.")
      .def("repeated", &ScenarioRun::repeated, "other"_a, "What `assay repeat` says of the two.")
      .def("step_count", &ScenarioRun::step_count);
  py::Class<Rows>(m, "_Rows")
      .def(py::Init<const ScenarioRun&, const ScenarioRun&, int64_t, const std::vector<Numbers>&>(),
           "few"_a, "more"_a, "rows"_a, "lengths"_a = std::vector<Numbers>())
      .def("compare", &Rows::compare, "first"_a, "row"_a, "other"_a, "other_row"_a,
           "Where the row has equal inputs and another output in the other run; -1: it is alone.")
      .def("compare_padded", &Rows::compare_padded, "first"_a, "other"_a, "row"_a, "pairs"_a,
           "The same of a row behind padding, position by position.");
  m.def("_compare_calls", &compare_calls, "first"_a, "other"_a, "pairs"_a,
        "The same of a row whose tokens came in other calls.");
  m.def("_step_count", &step_count, "path"_a);
  m.def("_write_scenarios_page", &write_scenarios_page, "parts"_a, "alone"_a, "path"_a);
}

}  // namespace assay::python
