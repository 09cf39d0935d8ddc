// SPDX-License-Identifier: Apache-2.0
#include "report/html/comparison_page.hpp"

#include <map>
#include <set>

#include "base/text.hpp"
#include "locate/noise/record_distance.hpp"
#include "locate/verdict/sentence.hpp"
#include "report/html/place.hpp"
#include "report/html/sides.hpp"
#include "report/html/table_data.hpp"
#include "report/judged_rows.hpp"
#include "report/style.hpp"
#include "report/terminal.hpp"
#include "report/verdict_json.hpp"

namespace assay::report::html {
namespace {

using compare::Row;
using compare::Sheet;

/// A row of the page: a pair of tensors, once however many sheets show it.
struct PageRow {
  const Row* row = nullptr;
  const RowVerdict* verdict = nullptr;        // null: none was asked for
  const run::TensorRecord* record = nullptr;  // of mine; null: rows are weights
  std::string levels = {};                    // "layer module api"
  std::string module = {};                    // "model.layers.0.mlp"
};

Cell text_cell(std::string_view text) { return Cell::of(text); }

// Where a row stands in the model, which its label says in words for people.
Cells place_cells(const PageRow& row) {
  const Cell rounding = Cell::of(locate::rounding_of(dtype_from_name(row.row->golden.dtype),
                                                     dtype_from_name(row.row->mine.dtype)));
  if (row.record == nullptr)
    return {text_cell(row.levels), text_cell(row.module), {}, {}, {}, {}, rounding};
  const run::TensorRecord& record = *row.record;
  return {text_cell(row.levels),
          text_cell(row.module),
          text_cell(operator_of(record)),
          text_cell(run::role_name(record.role)),
          text_cell(record.slot),
          Cell::of(record.call),
          rounding};
}
constexpr std::array kPlaceColumns = {"level", "module", "operator", "role",
                                      "slot",  "call",   "rounding"};

class Rows {
 public:
  explicit Rows(const ComparisonPage& input) : input_(input) {
    for (const Sheet& sheet : input.comparison.sheets) {
      verdicts_.push_back(input.verdict != nullptr && has_pairs(sheet)
                              ? judge_rows(*input.verdict, input.mine, sheet)
                              : std::vector<RowVerdict>());
      add(sheet, verdicts_.back());
    }
    std::ranges::stable_sort(rows_, {}, [](const PageRow& row) { return row.row->order; });
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].record != nullptr) row_of_record_.try_emplace(index_of(*rows_[i].record), i);
    }
  }

  [[nodiscard]] Table table() const {
    const Columns<JudgedRow> columns =
        columns_of(input_.comparison, kOurStyle, input_.verdict != nullptr);
    Table table{"rows", names_of(columns), {}};
    table.columns.insert(table.columns.end(), kPlaceColumns.begin(), kPlaceColumns.end());
    for (const PageRow& row : rows_) {
      Cells cells = cells_of(columns, {*row.row, row.verdict});
      std::ranges::move(place_cells(row), std::back_inserter(cells));
      table.rows.push_back(std::move(cells));
    }
    return table;
  }

  /// Row of a record of mine, or null.
  [[nodiscard]] Json row_of(size_t record) const {
    const auto found = row_of_record_.find(record);
    return found != row_of_record_.end() ? Json(found->second) : Json(nullptr);
  }

 private:
  static bool has_pairs(const Sheet& sheet) {
    return sheet.matching.pairs.size() == sheet.rows.size();
  }
  size_t index_of(const run::TensorRecord& record) const {
    return static_cast<size_t>(&record - input_.mine.records.data());
  }

  void add(const Sheet& sheet, const std::vector<RowVerdict>& verdicts) {
    for (size_t i = 0; i < sheet.rows.size(); ++i) {
      const Row& row = sheet.rows[i];
      if (row.filtered) continue;
      PageRow added{.row = &row, .levels = sheet.name};
      if (!verdicts.empty()) added.verdict = &verdicts[i];
      if (!has_pairs(sheet) || input_.comparison.weights) {
        added.module = row.label;
        rows_.push_back(std::move(added));
        continue;
      }
      const pair::RecordPair& pair = sheet.matching.pairs[i];
      const auto [known, is_new] = known_.try_emplace({pair.golden, pair.mine}, rows_.size());
      if (!is_new) {
        rows_[known->second].levels += " " + sheet.name;
        continue;
      }
      added.record = &input_.mine.records[pair.mine];
      added.module = module_of(input_.mine, *added.record);
      rows_.push_back(std::move(added));
    }
  }

  const ComparisonPage& input_;
  std::vector<std::vector<RowVerdict>> verdicts_;  // one list a sheet
  std::vector<PageRow> rows_;
  std::map<std::pair<size_t, size_t>, size_t> known_;  // records of golden and mine -> row
  std::map<size_t, size_t> row_of_record_;
};

std::string_view tone_of(const ComparisonPage& input) {
  const compare::Comparison& comparison = input.comparison;
  if (input.verdict != nullptr) {
    switch (input.verdict->outcome) {
      case locate::VerdictOutcome::FirstWrong:
        return "bad";
      case locate::VerdictOutcome::Clean:
        return "good";
      case locate::VerdictOutcome::CannotJudge:
        return "open";
    }
  }
  if (comparison.judged) return comparison.is_within_limits() ? "good" : "bad";
  const compare::Comparison::Counts counts = comparison.counts();
  return counts.pairs > 0 && counts.identical == counts.pairs && comparison.gaps.empty() ? "good"
                                                                                         : "open";
}

Json verdict_of(const locate::Verdict& verdict, const Rows& rows) {
  Json json = Json::parse(verdict_json(verdict));
  json["remarks"] = texts_json(locate::remarks(verdict));
  Json places = Json::array();
  for (const locate::Finding& finding : verdict.candidates)
    places.push_back(rows.row_of(finding.mine_record));
  json["candidate_rows"] = std::move(places);
  return json;
}

Json levels_of(const compare::Comparison& comparison) {
  Json list = Json::array();
  for (const Sheet& sheet : comparison.sheets) {
    list.push_back({{"name", repair_utf8(sheet.name)},
                    {"pairs", sheet.rows.size()},
                    {"matched_percent", sheet.matching.coverage_percent()},
                    {"unmatched", sheet.matching.unmatched.size()}});
  }
  return list;
}

Json unmatched_of(const ComparisonPage& input) {
  constexpr size_t kMost = 1000;
  Json list = Json::array();
  if (input.comparison.sheets.empty()) return list;
  for (const Cells& cells :
       build_unmatched_table(input.comparison.sheets.back(), input.golden, input.mine).rows) {
    if (list.size() == kMost) break;
    Json texts = Json::array();
    for (const Cell& cell : cells) texts.push_back(repair_utf8(cell.csv_text()));
    list.push_back(std::move(texts));
  }
  return list;
}

}  // namespace

Page comparison_page(const ComparisonPage& input) {
  const compare::Comparison& comparison = input.comparison;
  const compare::Comparison::Counts counts = comparison.counts();
  const Rows rows(input);
  Page page;
  page.title = "assay: " + input.mine.path + " against " + input.golden.path;
  page.sentence = input.verdict != nullptr ? locate::sentence(*input.verdict) : verdict(comparison);
  Json& json = page.content;
  json["format"] = 1;
  json["kind"] = "comparison";
  json["title"] = repair_utf8(page.title);
  json["sentence"] = repair_utf8(page.sentence);
  json["tone"] = tone_of(input);
  json["counts_sentence"] = repair_utf8(verdict(comparison));
  json["verdict"] = input.verdict != nullptr ? verdict_of(*input.verdict, rows) : Json(nullptr);
  json["counts"] = {{"pairs", counts.pairs},
                    {"identical", counts.identical},
                    {"failed", counts.failed},
                    {"unreadable", counts.unreadable},
                    {"filtered", counts.filtered},
                    {"judged", comparison.judged},
                    {"statistics", comparison.statistics},
                    {"weights", comparison.weights}};
  json["levels"] = levels_of(comparison);
  json["order_known"] = comparison.order_known;
  json["notes"] = texts_json(comparison.notes);
  for (const std::string& note : input.notes) json["notes"].push_back(repair_utf8(note));
  json["warnings"] = texts_json(comparison.warnings);
  json["gaps"] = texts_json(comparison.gaps);
  json["sides"] = {side_json(input.golden, "golden"), side_json(input.mine, "mine")};
  json["unmatched"] = unmatched_of(input);
  json["table"] = add_table(rows.table(), "c", &page.blobs);
  return page;
}

}  // namespace assay::report::html
