// SPDX-License-Identifier: Apache-2.0
// Comparison for Python: two runs by path, two arrays in memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "compare/dispatch.hpp"
#include "engines/engines.hpp"
#include "locate/verdict/locate.hpp"
#include "measure/text_metrics.hpp"
#include "python/module.hpp"
#include "python/table_rows.hpp"
#include "report/files.hpp"
#include "report/html/comparison_page.hpp"
#include "report/table.hpp"
#include "report/terminal.hpp"
#include "tensor/convert.hpp"
#include "vendor/compat.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {

using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;

/// A view of a foreign array's memory: no copy. The array must outlive the view.
TensorView view_of(const AnyArray& array) {
  const std::optional<DType> dtype =
      dtype_from_dlpack(array.dtype().code, array.dtype().bits, array.dtype().lanes);
  if (!dtype)
    raise(
        {Errc::Unsupported, {}, std::nullopt, "the array has an element type that no tensor has"});
  Dims shape;
  Dims strides;
  // Negative strides reach below the first element, so the storage starts at the lowest address.
  int64_t lowest = 0;
  int64_t highest = 0;
  bool is_empty = false;
  for (size_t i = 0; i < array.ndim(); ++i) {
    const auto size = static_cast<int64_t>(array.shape(i));
    const int64_t stride = array.stride(i);
    shape.push_back(size);
    strides.push_back(stride);
    is_empty = is_empty || size == 0;
    if (size > 0) (stride < 0 ? lowest : highest) += (size - 1) * stride;
  }
  const auto element_bytes = static_cast<int64_t>(info(*dtype).element_bits / 8);
  const auto* first = static_cast<const std::byte*>(array.data());
  ByteSpan storage;
  if (!is_empty) {
    storage = {first + lowest * element_bytes,
               static_cast<size_t>((highest - lowest + 1) * element_bytes)};
  }
  return value_or_raise(make_view(*dtype, shape, strides, storage, is_empty ? 0 : -lowest));
}

nb::dict metrics_dict(const measure::PairMetrics& m) {
  static constexpr const char* kStates[] = {"compared", "empty", "count_mismatch", "non_finite"};
  nb::dict out;
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
  CallableAlgorithm(std::string name, nb::object function)
      : name_(std::move(name)), function_(std::move(function)) {}
  ~CallableAlgorithm() override {
    const nb::gil_scoped_acquire gil;
    function_.reset();
  }
  CallableAlgorithm(const CallableAlgorithm&) = delete;
  CallableAlgorithm& operator=(const CallableAlgorithm&) = delete;

  [[nodiscard]] const std::string& name() const override { return name_; }

  [[nodiscard]] compare::AlgorithmValue compute(const TensorView& golden,
                                                const TensorView& mine) override {
    std::vector<float> golden_values = floats_of(golden);
    std::vector<float> mine_values = floats_of(mine);
    const nb::gil_scoped_acquire gil;
    compare::AlgorithmValue out;
    try {
      const nb::object result = function_(array_of(golden_values), array_of(mine_values));
      if (nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result)) {
        store(result[0], &out);
        out.message = nb::cast<std::string>(nb::str(result[1]));
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
  static nb::object array_of(std::vector<float>& values) {
    return nb::cast(nb::ndarray<nb::numpy, float>(values.data(), {values.size()}),
                    nb::rv_policy::copy);
  }
  static void store(const nb::object& value, compare::AlgorithmValue* out) {
    if (nb::isinstance<nb::str>(value)) {
      out->value = nb::cast<std::string>(value);
    } else if (nb::isinstance<nb::int_>(value)) {
      out->value = nb::cast<int64_t>(value);
    } else {
      out->value = nb::cast<double>(nb::float_(value));
    }
  }

  std::string name_;
  nb::object function_;
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
  [[nodiscard]] nb::list worst(size_t count) const {
    nb::list rows;
    for (const compare::Row* row : comparison.worst_rows(count)) {
      compare::Sheet one;
      one.name = sheet_of(row).name;
      one.rows.push_back(*row);
      rows.extend(table_rows(report::build_table(comparison, one, {.style = style}), true));
    }
    return rows;
  }

  [[nodiscard]] nb::dict counts() const {
    const compare::Comparison::Counts found = comparison.counts();
    nb::dict dict;
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
  std::vector<std::pair<std::string, nb::object>> algorithms;
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
    locate::LocateOptions options;
    options.engines = engines::all();
    options.jobs = self.jobs;
    options.asked = {.tables = true, .page = true};
    Result<locate::Verdict> found =
        locate::locate(self.golden, self.mine, self.comparison.pairs, options);
    if (found) {
      verdict = *std::move(found);
      page.verdict = &*verdict;
    } else {
      page.notes.push_back("no verdict: " + found.error().describe());
    }
  }
  return report::html::write_page(report::html::comparison_page(page), path);
}

}  // namespace

void bind_compare(nb::module_& m) {
  nb::class_<ComparisonObject>(m, "_Comparison")
      .def("rows",
           [](const ComparisonObject& self) {
             nb::list rows;
             for (const compare::Sheet& sheet : self.comparison.sheets) {
               rows.extend(table_rows(
                   report::build_table(self.comparison, sheet, {.style = self.style}), true));
             }
             return rows;
           })
      .def("unmatched",
           [](const ComparisonObject& self) {
             if (self.comparison.sheets.empty()) return nb::list();
             return table_rows(report::build_unmatched_table(self.comparison.sheets.back(),
                                                             self.golden, self.mine),
                               false);
           })
      .def("worst", &ComparisonObject::worst, nb::arg("count"))
      .def("counts", &ComparisonObject::counts)
      .def_prop_ro("coverage",
                   [](const ComparisonObject& self) {
                     return self.comparison.sheets.empty()
                                ? 0.0
                                : self.comparison.sheets.back().matching.coverage_percent();
                   })
      .def_prop_ro("verdict",
                   [](const ComparisonObject& self) { return report::verdict(self.comparison); })
      .def_prop_ro("passed",
                   [](const ComparisonObject& self) -> std::optional<bool> {
                     if (!self.comparison.judged) return std::nullopt;
                     return self.comparison.is_within_limits();
                   })
      .def_prop_ro("gaps", [](const ComparisonObject& self) { return self.comparison.gaps; })
      .def_prop_ro("warnings",
                   [](const ComparisonObject& self) { return self.comparison.warnings; })
      .def_prop_ro("notes",
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
          nb::arg("width"))
      .def(
          "write",
          [](const ComparisonObject& self, const std::string& path) {
            Status status;
            {
              const nb::gil_scoped_release release;
              status = report::write_report(self.comparison, path, self.style);
            }
            value_or_raise(status);
          },
          nb::arg("path"))
      .def(
          "write_page",
          [](ComparisonObject& self, const std::string& path) {
            Status status;
            {
              const nb::gil_scoped_release release;
              status = write_page(self, path);
            }
            value_or_raise(status);
          },
          nb::arg("path"));

  m.def(
      "compare_runs",
      [](const std::string& golden, const std::string& mine, const std::string& level, bool stats,
         bool weights, const std::string& compat, std::optional<double> atol,
         std::optional<double> rtol, std::optional<double> cos, std::optional<double> rel_l2,
         const std::string& thresholds, const std::string& map, const std::string& mapping_file,
         std::vector<std::string> algorithm_files,
         std::vector<std::pair<std::string, nb::object>> algorithms,
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
      nb::arg("golden"), nb::arg("mine"), nb::kw_only(), nb::arg("level") = "api",
      nb::arg("stats") = false, nb::arg("weights") = false, nb::arg("compat") = "none",
      nb::arg("atol") = nb::none(), nb::arg("rtol") = nb::none(), nb::arg("cos") = nb::none(),
      nb::arg("rel_l2") = nb::none(), nb::arg("thresholds") = "", nb::arg("map") = "",
      nb::arg("mapping_file") = "", nb::arg("algorithm_files") = std::vector<std::string>{},
      nb::arg("algorithms") = std::vector<std::pair<std::string, nb::object>>{},
      nb::arg("token_map") = std::vector<std::pair<int64_t, int64_t>>{},
      nb::arg("ranks") = std::vector<int>{}, nb::arg("parallel") = "",
      nb::arg("allow_unmatched") = std::vector<std::string>{}, nb::arg("jobs") = 0,
      nb::arg("max_memory") = 0, "Compares two runs by path; thresholds and map are JSON texts.");

  m.def(
      "compare_arrays",
      [](const AnyArray& golden, const AnyArray& mine, const std::string& compat,
         bool kl_divergence, int jobs) {
        const TensorView golden_view = view_of(golden);
        const TensorView mine_view = view_of(mine);
        const measure::MetricOptions options{
            .rules = value_or_raise(vendor::compat(compat)).conventions.rules,
            .kl_divergence = kl_divergence,
            .jobs = jobs};
        measure::PairMetrics metrics;
        {
          const nb::gil_scoped_release release;
          metrics = measure::compare_tensors(golden_view, mine_view, options);
        }
        nb::dict out = metrics_dict(metrics);
        if (options.rules == measure::MetricRules::Float32)
          out["cmp_fail_reason"] = measure::fail_reason(metrics, options.rules);
        return out;
      },
      nb::arg("golden"), nb::arg("mine"), nb::kw_only(), nb::arg("compat") = "none",
      nb::arg("kl_divergence") = true, nb::arg("jobs") = 1,
      "All metrics of one pair of arrays as a dict. Nothing is copied; the GIL is released.");
  m.def(
      "text_metrics",
      [] {
        nb::list out;
        for (const measure::CaseMetric& metric : measure::case_metrics())
          out.append(nb::make_tuple(metric.name, metric.threshold, metric.largest_threshold,
                                    metric.is_integer(), metric.is_small_good()));
        return out;
      },
      "Each metric of texts: name, limit, largest limit, whether scores are whole, whether small "
      "is good.");
  m.def(
      "text_score",
      [](std::string_view name, const nb::bytes& output, const nb::bytes& expected) {
        const measure::CaseMetric metric = value_or_raise(measure::parse_case_metric(name));
        const Result<double> score = measure::case_score(metric, {output.c_str(), output.size()},
                                                         {expected.c_str(), expected.size()});
        if (!score) throw nb::value_error(score.error().message.c_str());
        return *score;
      },
      nb::arg("name"), nb::arg("output"), nb::arg("expected"),
      "The score of a text, both in UTF-8. ValueError: a text without words has no rates.");
}

}  // namespace assay::python
