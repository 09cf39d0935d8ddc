// SPDX-License-Identifier: Apache-2.0
// Runs of one program held against the first of them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>

#include "engines/engines.hpp"
#include "python/module.hpp"
#include "repeat/outcome.hpp"
#include "report/html/repeat_page.hpp"
#include "report/repeat_text.hpp"
#include "report/rows_json.hpp"

namespace nb = nanobind;
using namespace nb::literals;

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
    const nb::gil_scoped_release released;
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

  [[nodiscard]] nb::str json(const std::string& note, const std::string& next) const {
    return to_str(report::repeat_json(outcome(note, next)));
  }
  [[nodiscard]] nb::str text(const std::string& note, const std::string& next) const {
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

/// One row of a batch in runs of one program, by what two runs of equal rows tell of the tensors.
class Rows {
 public:
  Rows(const std::string& few, const std::string& more, int64_t rows)
      : few_(opened(few)), more_(opened(more)), splits_(few_, more_, rows) {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  ~Rows() = default;

  /// A row of -1: the run has the row alone.
  [[nodiscard]] nb::str compare(const std::string& first, int64_t row, const std::string& other,
                                int64_t other_row) const {
    const repeat::Execution golden(opened(first));
    const repeat::Execution mine(opened(other));
    const repeat::RowComparison found = read_without_gil(
        [&] { return repeat::compare_rows(place(golden, row), place(mine, other_row), splits_); });
    return to_str(report::rows_json(found));
  }

 private:
  static repeat::RowPlace place(const repeat::Execution& run, int64_t row) {
    return {&run, std::max<int64_t>(row, 0), row < 0};
  }

  repeat::Execution few_;
  repeat::Execution more_;
  repeat::Splits splits_;
};

}  // namespace

void bind_repeat(nb::module_& m) {
  nb::class_<RepeatedRuns>(m, "_RepeatedRuns")
      .def(nb::init<const std::string&>(), "first"_a)
      .def("add", &RepeatedRuns::add, "path"_a,
           "Whether the run is equal to the first one bit for bit.")
      .def("look_at_values", &RepeatedRuns::look_at_values, "first"_a, "other"_a,
           "Whether two runs that kept values differ as the first finding says.")
      .def("json", &RepeatedRuns::json, "note"_a, "next"_a)
      .def("text", &RepeatedRuns::text, "note"_a, "next"_a)
      .def("write_page", &RepeatedRuns::write_page, "note"_a, "next"_a, "path"_a);
  nb::class_<Rows>(m, "_Rows")
      .def(nb::init<const std::string&, const std::string&, int64_t>(), "few"_a, "more"_a, "rows"_a)
      .def("compare", &Rows::compare, "first"_a, "row"_a, "other"_a, "other_row"_a,
           "Where the row has equal inputs and another output in the other run; -1: it is alone.");
}

}  // namespace assay::python
