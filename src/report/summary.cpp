// SPDX-License-Identifier: Apache-2.0
#include "report/summary.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/text.hpp"
#include "report/terminal_text.hpp"
#include "run/layers.hpp"

namespace assay::report {
namespace {

using compare::Comparison;
using compare::Row;

constexpr size_t kWorstRows = 5;

struct Metric {
  std::string name;
  bool smaller_is_worse;
  std::function<double(const Row&)> value;
};

double metric_of(const Row& row, double measure::PairMetrics::* field) {
  return row.metrics && row.comparable && !holds_indices(row) ? (*row.metrics).*field : NAN;
}

std::vector<Metric> tensor_metrics() {
  std::vector<Metric> metrics;
  for (const measure::MetricField& metric : measure::kMetricFields) {
    metrics.push_back({metric.name, metric.value == &measure::PairMetrics::cosine_similarity,
                       [field = metric.value](const Row& row) { return metric_of(row, field); }});
  }
  return metrics;
}

double summary_error(const Row& row, measure::SummaryError measure::SummaryErrors::* field) {
  return row.summary && row.comparable && !holds_indices(row) ? ((*row.summary).*field).relative
                                                              : NAN;
}

std::vector<Metric> statistics_metrics() {
  std::vector<Metric> metrics;
  for (const measure::SummaryField& field : measure::kSummaryFields) {
    metrics.push_back(
        {std::string(field.name) + "_stat_relative_error", false,
         [errors = field.errors](const Row& row) { return summary_error(row, errors); }});
  }
  return metrics;
}

// The one number by which rows of a group are held against each other.
double error_of(const Row& row) {
  if (row.metrics) return metric_of(row, &measure::PairMetrics::relative_euclidean_distance);
  return summary_error(row, &measure::SummaryErrors::l2_norm);
}

std::vector<const Row*> distinct_rows(const Comparison& comparison) {
  std::set<std::tuple<int, int64_t, std::string_view, std::string_view, std::string_view>> known;
  std::vector<const Row*> rows;
  for (const compare::Sheet& sheet : comparison.sheets) {
    for (const Row& row : sheet.rows) {
      if (row.filtered) continue;
      if (known.emplace(row.rank, row.token_id, row.golden.path, row.mine.path, row.label).second)
        rows.push_back(&row);
    }
  }
  return rows;
}

// "model.layers.5" of "model.layers.5.mlp output"; empty outside of layers.
std::string layer_of(const std::string& label) {
  const auto layer = run::layer_of_node(node_of_label(label));
  return layer ? layer->name() : std::string();
}

class Summary {
 public:
  explicit Summary(const Comparison& comparison)
      : comparison_(comparison), rows_(distinct_rows(comparison)) {
    table_.name = "summary";
    table_.columns = {"section",     "name",     "value",      "pairs",
                      "failed",      "token_id", "worst_node", "golden_data_path",
                      "my_data_path"};
  }

  Table build() {
    add_sides();
    add_worst_rows(comparison_.statistics ? statistics_metrics() : tensor_metrics());
    add_groups("operator type", [](const Row& row) {
      return !row.mine.op_type.empty() ? row.mine.op_type : row.golden.op_type;
    });
    add_groups("layer", [](const Row& row) { return layer_of(row.label); });
    return std::move(table_);
  }

 private:
  void add(const std::string& section, const std::string& name, Cell value) {
    std::vector<Cell> cells = {Cell::of(section), Cell::of(name), std::move(value)};
    cells.resize(table_.columns.size());
    table_.rows.push_back(std::move(cells));
  }

  void add_sides() {
    add("side", "golden", Cell::of(comparison_.golden_path));
    add("side", "mine", Cell::of(comparison_.mine_path));
    for (const compare::Sheet& sheet : comparison_.sheets) {
      add("coverage percent", sheet.name, Cell::of(sheet.matching.coverage_percent()));
      add("pairs", sheet.name, Cell::of(static_cast<int64_t>(sheet.rows.size())));
      add("unmatched", sheet.name, Cell::of(static_cast<int64_t>(sheet.matching.unmatched.size())));
    }
    for (const std::string& note : comparison_.notes) add("note", note, {});
    for (const std::string& warning : comparison_.warnings) add("warning", warning, {});
  }

  void add_row(const std::string& section, const std::string& name, double value, Cell pairs,
               Cell failed, const Row& worst) {
    table_.rows.push_back({Cell::of(section), Cell::of(name), Cell::of(value), std::move(pairs),
                           std::move(failed), Cell::of(worst.token_id), Cell::of(worst.label),
                           Cell::of(worst.golden.path), Cell::of(worst.mine.path)});
  }

  void add_worst_rows(const std::vector<Metric>& metrics) {
    for (const Metric& metric : metrics) {
      std::vector<std::pair<double, const Row*>> found;
      for (const Row* row : rows_) {
        const double value = metric.value(*row);
        if (!std::isnan(value)) found.emplace_back(value, row);
      }
      std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
        return metric.smaller_is_worse ? a.first < b.first : a.first > b.first;
      });
      for (size_t i = 0; i < std::min(kWorstRows, found.size()); ++i)
        add_row("worst by metric", metric.name, found[i].first, {}, {}, *found[i].second);
    }
  }

  template <typename KeyOf>
  void add_groups(const std::string& section, const KeyOf& key_of) {
    struct Group {
      int64_t pairs = 0;
      int64_t failed = 0;
      double worst_error = -1;
      const Row* worst = nullptr;
    };
    std::vector<std::string> order;  // of first sight: execution order
    std::map<std::string, Group> groups;
    for (const Row* row : rows_) {
      const std::string key = key_of(*row);
      if (key.empty()) continue;
      const auto [found, is_new] = groups.try_emplace(key);
      if (is_new) order.push_back(key);
      Group& group = found->second;
      ++group.pairs;
      group.failed += row->outcome == compare::Outcome::Fail ? 1 : 0;
      const double error = row->comparable ? error_of(*row) : HUGE_VAL;
      if (group.worst == nullptr || error > group.worst_error) {
        group.worst = row;
        group.worst_error = error;
      }
    }
    for (const std::string& key : order) {
      const Group& group = groups.at(key);
      add_row(section, key, group.worst_error, Cell::of(group.pairs),
              comparison_.judged ? Cell::of(group.failed) : Cell{}, *group.worst);
    }
  }

  const Comparison& comparison_;
  std::vector<const Row*> rows_;
  Table table_;
};

}  // namespace

Table build_summary_table(const Comparison& comparison) { return Summary(comparison).build(); }

}  // namespace assay::report
