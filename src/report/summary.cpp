// SPDX-License-Identifier: Apache-2.0
// Each section is a group of rows of one table; names in it link to the rows of the other sheets.
#include "report/summary.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/text.hpp"
#include "locate/verdict/sentence.hpp"
#include "report/terminal.hpp"
#include "report/terminal_text.hpp"
#include "run/layers.hpp"

namespace assay::report {
namespace {

using compare::Comparison;
using compare::Row;

constexpr size_t kWorstRows = 10;
constexpr size_t kWorstOfMetric = 5;

struct Metric {
  std::string name;
  bool smaller_is_worse;
  std::function<double(const Row&)> value;
};

double metric_of(const Row& row, double measure::PairNumbers::* field) {
  return row.metrics && row.comparable && !holds_indices(row) ? (*row.metrics).*field : NAN;
}

std::vector<Metric> tensor_metrics() {
  std::vector<Metric> metrics;
  for (const measure::MetricField& metric : measure::kMetricFields) {
    metrics.push_back({metric.name, metric.value == &measure::PairNumbers::cosine_similarity,
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
  if (row.metrics) return metric_of(row, &measure::PairNumbers::relative_euclidean_distance);
  return summary_error(row, &measure::SummaryErrors::l2_norm);
}

std::vector<const Row*> distinct_rows(const Comparison& comparison) {
  compare::PairKeys known;
  std::vector<const Row*> rows;
  for (const compare::Sheet& sheet : comparison.sheets) {
    for (const Row& row : sheet.rows) {
      if (row.filtered) continue;
      if (known.emplace(row).second) rows.push_back(&row);
    }
  }
  return rows;
}

// "model.layers.5" of "model.layers.5.mlp output"; empty outside of layers.
std::string layer_of(const std::string& label) {
  const auto layer = run::layer_of_node(node_of_label(label));
  return layer ? layer->name() : std::string();
}

// The colour of the sentence.
Mark mark_of(const locate::Verdict& verdict) {
  switch (verdict.outcome) {
    case locate::VerdictOutcome::FirstWrong:
      return Mark::Bad;
    case locate::VerdictOutcome::Clean:
      return Mark::Good;
    case locate::VerdictOutcome::CannotJudge:
      break;
  }
  return Mark::Doubt;
}

Mark mark_of(const Comparison& comparison) {
  const Comparison::Counts counts = comparison.counts();
  if (counts.failed > 0) return Mark::Bad;
  const bool all_equal = counts.pairs > 0 && counts.identical == counts.pairs;
  const bool good =
      comparison.judged ? comparison.is_within_limits() : all_equal && comparison.gaps.empty();
  return good && counts.unreadable == 0 ? Mark::Good : Mark::Doubt;
}

// By address of a row: its place in the tables of the comparison's sheets.
class RowPlaces {
 public:
  explicit RowPlaces(const Comparison& comparison) : comparison_(comparison) {
    for (const compare::Sheet& sheet : comparison.sheets) {
      std::vector<size_t>& places = places_.emplace_back();
      size_t listed = 0;
      for (const Row& row : sheet.rows)
        places.push_back(is_listed(comparison, row) ? listed++ : listed);
    }
  }

  // A link of a cell of the summary.
  [[nodiscard]] Link link(size_t summary_row, size_t column, const Row& row) const {
    Link link{.row = summary_row, .column = column};
    while (!holds(comparison_.sheets[link.table], row)) ++link.table;
    const auto place = static_cast<size_t>(&row - comparison_.sheets[link.table].rows.data());
    link.target = places_[link.table][place];
    return link;
  }

 private:
  static bool holds(const compare::Sheet& sheet, const Row& row) {
    return std::less_equal<>{}(sheet.rows.data(), &row) &&
           std::less<>{}(&row, sheet.rows.data() + sheet.rows.size());
  }

  const Comparison& comparison_;
  std::vector<std::vector<size_t>> places_;  // of each sheet's rows
};

// The row of a record of the run under test, in the sheet that shows most; null: none does.
const Row* row_of_record(const Comparison& comparison, size_t mine_record) {
  for (auto sheet = comparison.sheets.rbegin(); sheet != comparison.sheets.rend(); ++sheet) {
    for (size_t i = 0; i < sheet->rows.size() && i < sheet->matching.pairs.size(); ++i) {
      if (sheet->matching.pairs[i].mine == mine_record && !sheet->rows[i].filtered)
        return &sheet->rows[i];
    }
  }
  return nullptr;
}

class Summary {
 public:
  Summary(const Comparison& comparison, const locate::Verdict* verdict)
      : comparison_(comparison),
        verdict_(verdict),
        rows_(distinct_rows(comparison)),
        places_(comparison) {
    table_.name = "summary";
    table_.columns = {"section",     "name",     "value",      "pairs",
                      "failed",      "token_id", "worst_node", "golden_data_path",
                      "my_data_path"};
    table_.title = verdict != nullptr
                       ? Cell::of(locate::sentence(*verdict)).marked(mark_of(*verdict))
                       : Cell::of(report::verdict(comparison)).marked(mark_of(comparison));
  }

  Table build() {
    add_first_bad();
    add_counts();
    add_sheets();
    add_remarks();
    add_worst_rows();
    for (const Metric& metric : comparison_.statistics ? statistics_metrics() : tensor_metrics())
      add_worst_of_metric(metric);
    add_groups("operator type", [](const Row& row) {
      return !row.mine.op_type.empty() ? row.mine.op_type : row.golden.op_type;
    });
    add_groups("layer", [](const Row& row) { return layer_of(row.label); });
    return std::move(table_);
  }

 private:
  static constexpr size_t kNameColumn = 1;
  static constexpr size_t kNodeColumn = 6;

  void add(const std::string& section, const std::string& name, Cell value,
           Mark mark = Mark::None) {
    std::vector<Cell> cells = {Cell::of(section), Cell::of(name).marked(mark), std::move(value)};
    cells.resize(table_.columns.size());
    table_.rows.push_back(std::move(cells));
  }

  void add_count(const std::string& name, size_t count, Mark mark = Mark::None) {
    add("count", name, Cell::of(count).marked(count > 0 ? mark : Mark::None));
  }

  // `worst` is the row that the link leads to.
  void add_row(const std::string& section, Cell name, double value, Cell pairs, Cell failed,
               const Row& worst) {
    table_.links.push_back(places_.link(table_.rows.size(), kNodeColumn, worst));
    table_.rows.push_back({Cell::of(section), std::move(name), Cell::of(value), std::move(pairs),
                           std::move(failed), Cell::of(worst.token_id), Cell::of(worst.label),
                           Cell::of(worst.golden.path.str()), Cell::of(worst.mine.path.str())});
  }

  void add_first_bad() {
    if (verdict_ == nullptr || verdict_->candidates.empty()) return;
    const locate::Finding& finding = verdict_->candidates.front();
    const Row* row = row_of_record(comparison_, finding.mine_record);
    if (row == nullptr) return;
    add_row(verdict_->order_known ? "first bad" : "bad", Cell::of(error_name(*row)), error_of(*row),
            {}, {}, *row);
  }

  void add_counts() {
    const Comparison::Counts counts = comparison_.counts();
    add_count("pairs", counts.pairs);
    add_count("identical", counts.identical);
    if (comparison_.judged) add_count("beyond limits", counts.failed, Mark::Bad);
    add_count("unreadable", counts.unreadable, Mark::Doubt);
    add_count("unmatched", unmatched_count(), Mark::Doubt);
    if (counts.filtered > 0) add_count("left out", counts.filtered);
    if (verdict_ != nullptr)
      add("tables", report::verdict(comparison_, verdict_), {}, mark_of(comparison_));
    for (const std::string& gap : comparison_.gaps) add("not comparable", gap, {}, Mark::Doubt);
  }

  // The last level shows most; sheets of graphs show one graph each.
  [[nodiscard]] size_t unmatched_count() const {
    if (comparison_.sheets.empty()) return 0;
    size_t count = 0;
    for (const compare::Sheet& sheet : comparison_.sheets) {
      const bool counts = sheet.graph >= 0 || &sheet == &comparison_.sheets.back();
      count += counts ? sheet.matching.unmatched.size() : 0;
    }
    return count;
  }

  void add_sheets() {
    add("side", "golden", Cell::of(comparison_.golden_path));
    add("side", "mine", Cell::of(comparison_.mine_path));
    for (size_t i = 0; i < comparison_.sheets.size(); ++i) {
      const compare::Sheet& sheet = comparison_.sheets[i];
      table_.links.push_back({.row = table_.rows.size(), .column = kNameColumn, .table = i});
      add("coverage percent", sheet.name, Cell::of(sheet.matching.coverage_percent()));
      add("pairs", sheet.name, Cell::of(sheet.rows.size()));
      add("unmatched", sheet.name, Cell::of(sheet.matching.unmatched.size()));
    }
  }

  void add_remarks() {
    for (const std::string& note : comparison_.notes) add("note", note, {});
    for (const std::string& warning : comparison_.warnings)
      add("warning", warning, {}, Mark::Doubt);
    if (verdict_ == nullptr) return;
    // "then: model.norm ...", a colon behind what it is
    for (const std::string& remark : locate::remarks(*verdict_)) {
      const size_t colon = remark.find(": ");
      add(remark.substr(0, colon), remark.substr(colon + 2), {});
    }
    add("next", verdict_->next, {});
  }

  // What error_of() of a row is, or why it has none.
  [[nodiscard]] std::string error_name(const Row& row) const {
    if (!row.comparable) return row.fail_reason;
    return comparison_.statistics ? "l2norm_stat_relative_error" : "relative_euclidean_distance";
  }

  void add_worst_rows() {
    for (const Row* row : comparison_.worst_rows(kWorstRows)) {
      Cell name = Cell::of(error_name(*row)).marked(row->comparable ? Mark::None : Mark::Doubt);
      Cell failed = Cell::of(row->outcome == compare::Outcome::Fail ? 1 : 0);
      add_row("worst", std::move(name), error_of(*row), {},
              comparison_.judged ? std::move(failed) : Cell{}, *row);
    }
  }

  void add_worst_of_metric(const Metric& metric) {
    std::vector<std::pair<double, const Row*>> found;
    for (const Row* row : rows_) {
      const double value = metric.value(*row);
      if (!std::isnan(value)) found.emplace_back(value, row);
    }
    std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
      return metric.smaller_is_worse ? a.first < b.first : a.first > b.first;
    });
    for (size_t i = 0; i < std::min(kWorstOfMetric, found.size()); ++i)
      add_row("worst by metric", Cell::of(metric.name), found[i].first, {}, {}, *found[i].second);
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
      add_row(section, Cell::of(key), group.worst_error, Cell::of(group.pairs),
              comparison_.judged ? Cell::of(group.failed) : Cell{}, *group.worst);
    }
  }

  const Comparison& comparison_;
  const locate::Verdict* verdict_;
  std::vector<const Row*> rows_;
  RowPlaces places_;
  Table table_;
};

}  // namespace

Table build_summary_table(const Comparison& comparison, const locate::Verdict* verdict) {
  return Summary(comparison, verdict).build();
}

}  // namespace assay::report
