// SPDX-License-Identifier: Apache-2.0
// Comparison for Python: two runs by path, two arrays in memory.
#include <algorithm>
#include <memory>

#include "app/verdict.hpp"
#include "compare/comparability.hpp"
#include "compare/dispatch.hpp"
#include "engines/engines.hpp"
#include "measure/text_metrics.hpp"
#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "python/table_rows.hpp"
#include "python/tensor_array.hpp"
#include "report/files.hpp"
#include "report/html/comparison_page.hpp"
#include "report/table.hpp"
#include "report/terminal.hpp"
#include "tensor/convert.hpp"
#include "vendor/compat.hpp"

namespace py = assay::binding;
using namespace py::literals;

namespace assay::python {
namespace {

py::Dict metrics_dict(const measure::PairMetrics& m) {
  static constexpr const char* kStates[] = {"compared", "empty", "count_mismatch", "non_finite"};
  py::Dict out;
  out["state"] = kStates[static_cast<size_t>(m.state)];
  const std::pair<const char*, int64_t> counts[] = {
      {"value_count", m.value_count},
      {"compared_count", m.compared_count},
      {"masked_count", m.masked_count},
      {"nan_only_in_golden", m.nan_only_in_golden},
      {"nan_only_in_mine", m.nan_only_in_mine},
      {"nan_in_both", m.nan_in_both},
      {"inf_only_in_golden", m.inf_only_in_golden},
      {"inf_only_in_mine", m.inf_only_in_mine},
      {"inf_in_both", m.inf_in_both},
      {"inf_sign_mismatches", m.inf_sign_mismatches},
      {"worst_absolute_index", m.worst_absolute_index},
      {"worst_relative_index", m.worst_relative_index}};
  for (const auto& [name, value] : counts) out[name] = value;
  for (const auto& [name, field] : measure::kMetricFields) out[name] = m.*field;
  out["kl_row_mean"] = m.kl_row_mean;
  out["kl_row_max"] = m.kl_row_max;
  out["identical"] = m.is_identical();
  return out;
}

// A callable of the user: (golden, mine) as flat float32 arrays to a number, a text, or a number
// and a text. Called with the GIL held, one call at a time.
class CallableAlgorithm final : public compare::Algorithm {
 public:
  CallableAlgorithm(std::string name, py::Object function)
      : name_(std::move(name)), function_(std::move(function)) {}
  ~CallableAlgorithm() override {
    const py::GilHeld gil;
    function_.reset();
  }
  CallableAlgorithm(const CallableAlgorithm&) = delete;
  CallableAlgorithm& operator=(const CallableAlgorithm&) = delete;

  [[nodiscard]] const std::string& name() const override { return name_; }

  [[nodiscard]] compare::AlgorithmValue compute(const TensorView& golden,
                                                const TensorView& mine) override {
    std::vector<float> golden_values = floats_of(golden);
    std::vector<float> mine_values = floats_of(mine);
    const py::GilHeld gil;
    compare::AlgorithmValue out;
    try {
      const py::Object result = function_(array_of(golden_values), array_of(mine_values));
      if (py::is_instance<py::Tuple>(result) || py::is_instance<py::List>(result)) {
        store(result[0], &out);
        out.message = py::cast<std::string>(py::checked(PyObject_Str(result[1].ptr())));
      } else {
        store(result, &out);
      }
    } catch (const std::exception& problem) {
      out.message = name_ + ": " + problem.what();
    }
    return out;
  }

 private:
  static std::vector<float> floats_of(const TensorView& view) {
    const int64_t elements = view.element_count();
    std::vector<double> values(static_cast<size_t>(elements * values_per_element(view.dtype)));
    read_values(view, 0, elements, values);
    return {values.begin(), values.end()};
  }
  static py::Object array_of(std::vector<float>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const int64_t stride = 1;
    const py::ElementType type{py::ElementType::Float, 32};
    const auto* const data = reinterpret_cast<const std::byte*>(values.data());
    return py::lend_to_numpy(data, type, {&count, 1}, {&stride, 1}, py::none()).attr("copy")();
  }
  static void store(const py::Object& value, compare::AlgorithmValue* out) {
    if (py::is_instance<py::Str>(value)) {
      out->value = py::cast<std::string>(value);
    } else if (py::is_instance<int64_t>(value)) {
      out->value = py::cast<int64_t>(value);
    } else {
      out->value = py::cast<double>(py::checked(PyNumber_Float(value.ptr())));
    }
  }

  std::string name_;
  py::Object function_;
};

/// The result together with the runs, whose records the list of unmatched tensors names.
struct ComparisonObject {
  run::Run golden;
  run::Run mine;
  compare::Comparison comparison;
  std::vector<std::string> path_notes;
  report::Style style;
  bool programs = false;  // compare::ComparedPaths::programs
  int jobs = 0;

  /// The sheet that a row stands in.
  [[nodiscard]] const compare::Sheet& sheet_of(const compare::Row* wanted) const {
    for (const compare::Sheet& sheet : comparison.sheets) {
      for (const compare::Row& row : sheet.rows)
        if (&row == wanted) return sheet;
    }
    return comparison.sheets.front();
  }

  /// As in rows(), of the rows with the largest errors only.
  [[nodiscard]] py::List worst(size_t count) const {
    py::List rows;
    for (const compare::Row* row : comparison.worst_rows(count)) {
      compare::Sheet one;
      one.name = sheet_of(row).name;
      one.rows.push_back(*row);
      rows.extend(table_rows(report::build_table(comparison, one, {.style = style}), true));
    }
    return rows;
  }

  [[nodiscard]] py::Dict counts() const {
    const compare::Comparison::Counts found = comparison.counts();
    py::Dict dict;
    dict["pairs"] = found.pairs;
    dict["identical"] = found.identical;
    dict["beyond_limits"] = found.failed;
    dict["unreadable"] = found.unreadable;
    dict["unmatched"] =
        comparison.sheets.empty() ? 0 : comparison.sheets.back().matching.unmatched.size();
    return dict;
  }
};

struct PythonOptions {
  std::string compat, thresholds, map, mapping_file;
  bool stats = false;
  bool weights = false;
  std::vector<std::string> algorithm_files;
  std::vector<std::pair<std::string, py::Object>> algorithms;
  std::optional<double> atol, rtol, cos, rel_l2;
  std::vector<std::pair<int64_t, int64_t>> token_map;
  std::vector<int> ranks;
  std::string parallel;
  std::vector<std::string> allow_unmatched;
  int jobs = 0;
  uint64_t max_memory = 0;
};

compare::CompareOptions native_options(const PythonOptions& options) {
  compare::CompareOptions native;
  native.engines = engines::for_pairing();
  native.conventions = value_or_raise(vendor::compat(options.compat)).conventions;
  native.statistics = options.stats;
  native.limits.fallback = {options.atol, options.rtol, options.cos, options.rel_l2};
  if (std::string problem = compare::limit_problem(native.limits.fallback); !problem.empty())
    value_or_raise(Result<int>(fail(Errc::Usage, std::move(problem))));
  if (!options.thresholds.empty()) {
    native.limits.rules = value_or_raise(compare::parse_limit_rules(options.thresholds));
  }
  if (!options.map.empty()) {
    native.user.explicit_pairs = value_or_raise(pair::parse_explicit_pairs(options.map));
  }
  if (!options.mapping_file.empty())
    native.tables = value_or_raise(pair::tables_with_user_file(options.mapping_file));
  if (!options.algorithm_files.empty())
    native.algorithms = value_or_raise(compare::load_algorithms(options.algorithm_files));
  for (const auto& [name, function] : options.algorithms)
    native.algorithms.push_back(std::make_shared<CallableAlgorithm>(name, function));
  native.user.token_map = options.token_map;
  native.user.ranks = options.ranks;
  if (!options.parallel.empty())
    native.user.parallel = value_or_raise(run::parse_parallel(options.parallel));
  native.allow_unmatched = options.allow_unmatched;
  native.jobs = options.jobs;
  if (options.max_memory > 0) native.max_memory = options.max_memory;
  return native;
}

// With a verdict where the two are programs; one that cannot be found leaves the page a note.
Status write_page(ComparisonObject& self, const std::string& path) {
  compare::CompareOptions reading;  // of the pairs of which the page says where they differ
  reading.engines = engines::for_pairing();
  reading.jobs = self.jobs;
  report::html::ComparisonPage page{self.comparison, self.golden, self.mine};
  page.options = &reading;
  page.notes = self.path_notes;
  std::optional<locate::Verdict> verdict;
  if (self.programs) {
    const app::VerdictRequest request{.jobs = self.jobs, .asked = {.tables = true, .page = true}};
    Result<locate::Verdict> found =
        app::find_verdict(self.golden, self.mine, self.comparison.pairs, request, &page.notes);
    if (found) {
      verdict = *std::move(found);
      // As `assay compare` does: equal values are an answer, and leave a verdict nothing to judge.
      if (verdict->outcome != locate::VerdictOutcome::CannotJudge ||
          !report::is_same(self.comparison))
        page.verdict = &*verdict;
    } else {
      page.notes.push_back("no verdict: " + found.error().describe());
    }
  }
  return report::html::write_page(report::html::comparison_page(page), path);
}

}  // namespace

void bind_compare(py::Module& m) {
  py::Class<ComparisonObject>(m, "_Comparison")
      .def("rows",
           [](const ComparisonObject& self) {
             py::List rows;
             for (const compare::Sheet& sheet : self.comparison.sheets) {
               rows.extend(table_rows(
                   report::build_table(self.comparison, sheet, {.style = self.style}), true));
             }
             return rows;
           })
      .def("unmatched",
           [](const ComparisonObject& self) {
             if (self.comparison.sheets.empty()) return py::List();
             return table_rows(report::build_unmatched_table(self.comparison.sheets.back(),
                                                             self.golden, self.mine),
                               false);
           })
      .def("worst", &ComparisonObject::worst, "count"_a)
      .def("counts", &ComparisonObject::counts)
      .property("coverage",
                [](const ComparisonObject& self) {
                  return self.comparison.sheets.empty()
                             ? 0.0
                             : self.comparison.sheets.back().matching.coverage_percent();
                })
      .property("verdict",
                [](const ComparisonObject& self) { return report::verdict(self.comparison); })
      .property("passed",
                [](const ComparisonObject& self) { return compare::limits_hold(self.comparison); })
      // As `assay compare` does: equal values are an answer, and leave a verdict nothing to judge.
      .property("is_open_to_verdict",
                [](const ComparisonObject& self) {
                  return self.programs && !self.comparison.damaged &&
                         !report::is_same(self.comparison);
                })
      .property("gaps", [](const ComparisonObject& self) { return self.comparison.gaps; })
      .property("warnings", [](const ComparisonObject& self) { return self.comparison.warnings; })
      .property("notes",
                [](const ComparisonObject& self) {
                  std::vector<std::string> notes = self.path_notes;
                  notes.insert(notes.end(), self.comparison.notes.begin(),
                               self.comparison.notes.end());
                  return notes;
                })
      .def(
          "text",
          [](const ComparisonObject& self, int width) {
            return report::terminal_report(self.comparison,
                                           {.width = std::max(width, 60), .files = {}});
          },
          "width"_a)
      .def(
          "write",
          [](const ComparisonObject& self, const std::string& path) {
            Status status;
            {
              const py::GilReleased release;
              status = report::write_report(self.comparison, path, self.style);
            }
            value_or_raise(status);
          },
          "path"_a)
      .def(
          "write_page",
          [](ComparisonObject& self, const std::string& path) {
            Status status;
            {
              const py::GilReleased release;
              status = write_page(self, path);
            }
            value_or_raise(status);
          },
          "path"_a);

  m.def(
      "compare_runs",
      [](const std::string& golden, const std::string& mine, const std::string& level, bool stats,
         bool weights, const std::string& compat, std::optional<double> atol,
         std::optional<double> rtol, std::optional<double> cos, std::optional<double> rel_l2,
         const std::string& thresholds, const std::string& map, const std::string& mapping_file,
         std::vector<std::string> algorithm_files,
         std::vector<std::pair<std::string, py::Object>> algorithms,
         std::vector<std::pair<int64_t, int64_t>> token_map, std::vector<int> ranks,
         const std::string& parallel, std::vector<std::string> allow_unmatched, int jobs,
         uint64_t max_memory) {
        const std::optional<compare::LevelChoice> choice = compare::level_choice(level);
        if (!choice) {
          raise({Errc::Usage,
                 {},
                 std::nullopt,
                 "level must be 'layer', 'module', 'api' or 'all', not '" + level + "'"});
        }
        compare::CompareOptions options = native_options(
            {compat, thresholds, map, mapping_file, stats, weights, std::move(algorithm_files),
             std::move(algorithms), atol, rtol, cos, rel_l2, std::move(token_map), std::move(ranks),
             parallel, std::move(allow_unmatched), jobs, max_memory});
        const vendor::Compat named = value_or_raise(vendor::compat(compat));
        const compare::LevelChoice wanted =
            *choice == compare::LevelChoice::Default ? named.level : *choice;
        compare::ComparedPaths paths = read_without_gil(
            [&] { return compare::compare_paths(golden, mine, {wanted, weights}, options); });
        return ComparisonObject{std::move(paths.golden),
                                std::move(paths.mine),
                                std::move(paths.comparison),
                                std::move(paths.notes),
                                named.style,
                                paths.programs && compat == "none",
                                jobs};
      },
      "golden"_a, "mine"_a, py::KeywordOnly{}, "level"_a = "api", "stats"_a = false,
      "weights"_a = false, "compat"_a = "none", "atol"_a = py::none(), "rtol"_a = py::none(),
      "cos"_a = py::none(), "rel_l2"_a = py::none(), "thresholds"_a = "", "map"_a = "",
      "mapping_file"_a = "", "algorithm_files"_a = std::vector<std::string>{},
      "algorithms"_a = std::vector<std::pair<std::string, py::Object>>{},
      "token_map"_a = std::vector<std::pair<int64_t, int64_t>>{}, "ranks"_a = std::vector<int>{},
      "parallel"_a = "", "allow_unmatched"_a = std::vector<std::string>{}, "jobs"_a = 0,
      "max_memory"_a = 0, "Compares two runs by path; thresholds and map are JSON texts.");

  m.def(
      "compare_arrays",
      [](const ReadOnlyArray& golden, const ReadOnlyArray& mine, const std::string& compat,
         bool kl_divergence, int jobs) {
        const TensorView golden_view = value_or_raise(view_of(golden));
        const TensorView mine_view = value_or_raise(view_of(mine));
        const measure::MetricOptions options{
            .rules = value_or_raise(vendor::compat(compat)).conventions.rules,
            .kl_divergence = kl_divergence,
            .jobs = jobs};
        measure::PairMetrics metrics;
        {
          const py::GilReleased release;
          metrics = measure::compare_tensors(golden_view, mine_view, options);
        }
        py::Dict out = metrics_dict(metrics);
        if (options.rules == measure::MetricRules::Float32)
          out["cmp_fail_reason"] = measure::fail_reason(metrics);
        return out;
      },
      "golden"_a, "mine"_a, py::KeywordOnly{}, "compat"_a = "none", "kl_divergence"_a = true,
      "jobs"_a = 1,
      "All metrics of one pair of arrays as a dict. Nothing is copied; the GIL is released.");
  m.def(
      "text_metrics",
      [] {
        py::List out;
        for (const measure::CaseMetric& metric : measure::case_metrics())
          out.append(py::tuple_of(metric.name, metric.threshold, metric.largest_threshold,
                                  metric.is_integer(), metric.is_small_good()));
        return out;
      },
      "Each metric of texts: name, limit, largest limit, whether scores are whole, whether small "
      "is good.");
  m.def(
      "text_score",
      [](const std::string& name, const py::Bytes& output, const py::Bytes& expected) {
        const measure::CaseMetric metric = value_or_raise(measure::parse_case_metric(name));
        const Result<double> score = measure::case_score(metric, output.view(), expected.view());
        if (!score) throw std::invalid_argument(score.error().message);
        return *score;
      },
      "name"_a, "output"_a, "expected"_a,
      "The score of a text, both in UTF-8. ValueError: a text without words has no rates.");
}

}  // namespace assay::python
