// SPDX-License-Identifier: Apache-2.0
// Pairs that several sheets show are one row. Then come graph and links, and pictures are completed
// for rows around the suspect and the worst ones.
#include "report/html/comparison_page.hpp"

#include <unordered_map>

#include "base/text.hpp"
#include "locate/noise/record_distance.hpp"
#include "locate/verdict/sentence.hpp"
#include "report/html/details.hpp"
#include "report/html/flow_blobs.hpp"
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
  size_t sheet = 0;                           // the row's place
  size_t index = 0;
  std::string levels = {};  // "layer module api"
  std::string module = {};  // "model.layers.0.mlp"
};

const run::TensorRecord* mine_record(const PageRow& row) { return row.record; }

// Where a row stands in the model, which its label says in words for people.
Columns<PageRow> place_columns() {
  using R = run::TensorRecord;
  return {{"level", [](const PageRow& row) { return Cell::of(row.levels); }},
          {"module", [](const PageRow& row) { return Cell::of(row.module); }},
          {"operator", of(mine_record, operator_of)},
          {"role", of(mine_record, [](const R& one) { return role_name(one.role); })},
          {"slot", of(mine_record, &R::slot)},
          {"call", of(mine_record, &R::call)},
          {"rounding", [](const PageRow& row) {
             return Cell::of(locate::rounding_of(dtype_from_name(row.row->golden.dtype),
                                                 dtype_from_name(row.row->mine.dtype)));
           }}};
}

// What reports of tensors leave out and a page has room for.
Columns<PageRow> norm_columns() {
  return {
      {"golden_l2norm_value", [](const PageRow& row) { return Cell::of(row.row->golden.l2_norm); }},
      {"my_l2norm_value", [](const PageRow& row) { return Cell::of(row.row->mine.l2_norm); }}};
}

class Rows {
 public:
  explicit Rows(const ComparisonPage& input) : input_(input) {
    for (size_t i = 0; i < input.comparison.sheets.size(); ++i) {
      const Sheet& sheet = input.comparison.sheets[i];
      verdicts_.push_back(input.verdict != nullptr && has_pairs(sheet)
                              ? judge_rows(*input.verdict, input.mine, sheet)
                              : std::vector<RowVerdict>());
      add(i, verdicts_.back());
    }
    std::ranges::stable_sort(rows_, {}, [](const PageRow& row) { return row.row->order; });
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].record != nullptr) row_of_record_.try_emplace(index_of(*rows_[i].record), i);
    }
  }

  [[nodiscard]] Json add_to(Page* page) const {
    std::vector<PageColumn> columns =
        page_columns(columns_of(input_.comparison, kOurStyle, input_.verdict != nullptr),
                     [this](size_t row) { return JudgedRow{*rows_[row].row, rows_[row].verdict}; });
    const auto append = [&](const Columns<PageRow>& more) {
      std::ranges::move(
          page_columns(more, [this](size_t row) -> const PageRow& { return rows_[row]; }),
          std::back_inserter(columns));
    };
    append(place_columns());
    if (!input_.comparison.statistics) append(norm_columns());
    return add_table(rows_.size(), columns, "c", &page->blobs);
  }

  /// Row of a record of mine, or null.
  [[nodiscard]] Json row_of(size_t record) const {
    const auto found = row_of_record_.find(record);
    return found != row_of_record_.end() ? Json(found->second) : Json(nullptr);
  }

  [[nodiscard]] const std::vector<PageRow>& all() const { return rows_; }

  /// The rows of the records of mine, with what is said of them.
  [[nodiscard]] RecordRows record_rows() const {
    RecordRows rows;
    for (const auto& [record, row] : row_of_record_) {
      RecordRow& added = rows[record];
      added.row = static_cast<int64_t>(row);
      if (rows_[row].verdict != nullptr && !rows_[row].row->identical)
        added.verdict = rows_[row].verdict->verdict;
    }
    return rows;
  }

 private:
  static bool has_pairs(const Sheet& sheet) {
    return sheet.matching.pairs.size() == sheet.rows.size();
  }
  size_t index_of(const run::TensorRecord& record) const {
    return static_cast<size_t>(&record - input_.mine.records.data());
  }

  /// Unique among the pairs of the two runs.
  uint64_t number_of(const pair::RecordPair& pair) const {
    return uint64_t{pair.golden} * input_.mine.records.size() + pair.mine;
  }

  void add(size_t place, const std::vector<RowVerdict>& verdicts) {
    const Sheet& sheet = input_.comparison.sheets[place];
    for (size_t i = 0; i < sheet.rows.size(); ++i) {
      const Row& row = sheet.rows[i];
      if (row.filtered) continue;
      PageRow added{.row = &row, .sheet = place, .index = i, .levels = sheet.name};
      if (!verdicts.empty()) added.verdict = &verdicts[i];
      if (!has_pairs(sheet) || input_.comparison.weights) {
        added.module = row.label;
        rows_.push_back(std::move(added));
        continue;
      }
      const pair::RecordPair& pair = sheet.matching.pairs[i];
      const auto [known, is_new] = known_.try_emplace(number_of(pair), rows_.size());
      if (!is_new) {
        rows_[known->second].levels += " " + sheet.name;
        // A later sheet has more of the inputs that a judgement from outside rests on.
        if (!verdicts.empty()) rows_[known->second].verdict = &verdicts[i];
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
  std::unordered_map<uint64_t, size_t> known_;  // number of a pair -> row
  std::unordered_map<size_t, size_t> row_of_record_;
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

// Programs read the JSON of a verdict, people a page: names have nothing in them that turns the
// direction of writing.
void make_printable(Json* json) {
  if (json->is_string()) *json = printable(json->get<std::string>());
  if (json->is_structured()) {
    for (Json& part : *json) make_printable(&part);
  }
}

Json verdict_of(const locate::Verdict& verdict, const Rows& rows) {
  Json json = Json::parse(verdict_json(verdict));
  make_printable(&json);
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
    list.push_back({{"name", printable(sheet.name)},
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
  const TableRows rows =
      build_unmatched_table(input.comparison.sheets.back(), input.golden, input.mine).rows;
  for (size_t row = 0; row < std::min(rows.size(), kMost); ++row) {
    Json texts = Json::array();
    for (const Cell& cell : rows[row]) texts.push_back(printable(cell.csv_text()));
    list.push_back(std::move(texts));
  }
  return list;
}

/// The row of the page that shows this pair, or null.
const PageRow* shown(const Rows& rows, const Row& wanted) {
  for (const PageRow& row : rows.all()) {
    if (row.row->order == wanted.order && row.row->label == wanted.label) return &row;
  }
  return nullptr;
}

/// Adds the graph and the links of rows. Returns the rows around the suspect.
std::vector<size_t> add_flow_of(const ComparisonPage& input, const Rows& rows,
                                const std::vector<const Row*>& worst, std::vector<Blob>* blobs) {
  FlowOfPage flow{.mine = input.mine};
  const auto record_of = [&](const PageRow& row) {
    return static_cast<size_t>(row.record - input.mine.records.data());
  };
  if (input.verdict != nullptr && !input.verdict->candidates.empty())
    flow.suspect = &input.verdict->candidates.front();
  if (!worst.empty()) {
    const PageRow* row = shown(rows, *worst.front());
    if (row != nullptr && row->record != nullptr) flow.worst_record = record_of(*row);
  }
  for (const PageRow& row : rows.all()) {
    if (row.record == nullptr) continue;
    flow.records.push_back(record_of(row));
    if (row.row->picture) flow.always.push_back(record_of(row));
  }
  const RecordRows record_rows = rows.record_rows();
  std::vector<size_t> around;
  for (const size_t record : add_flow(flow, record_rows, blobs)) {
    if (const auto found = record_rows.find(record); found != record_rows.end())
      around.push_back(static_cast<size_t>(found->second.row));
  }
  return around;
}

/// Reads pairs once more that have no picture and should have one: those around the suspect, and
/// the worst where none were made while comparing.
void complete_pictures(const ComparisonPage& input, const Rows& rows,
                       const std::vector<size_t>& around, const std::vector<const Row*>& worst) {
  constexpr size_t kMostAround = 24;
  if (input.options == nullptr) return;
  const auto complete = [&](const PageRow& row) {
    if (row.record == nullptr || row.row->picture || !row.row->metrics || row.row->identical)
      return;
    compare::add_picture(input.golden, input.mine, *input.options,
                         &input.comparison.sheets[row.sheet], row.index);
  };
  for (size_t i = 0; i < std::min(around.size(), kMostAround); ++i) complete(rows.all()[around[i]]);
  if (input.options->pictures.worst > 0) return;
  for (const Row* row : worst) {
    if (const PageRow* place = shown(rows, *row)) complete(*place);
  }
}

void add_details(const Rows& rows, std::vector<Blob>* blobs) {
  for (size_t i = 0; i < rows.all().size(); ++i) {
    if (const auto& picture = rows.all()[i].row->picture)
      blobs->push_back({"details-" + std::to_string(i), details_json(*picture).dump()});
  }
}

}  // namespace

Page comparison_page(const ComparisonPage& input) {
  const compare::Comparison& comparison = input.comparison;
  const compare::Comparison::Counts counts = comparison.counts();
  const Rows rows(input);
  const std::string counted = verdict(comparison, input.verdict);
  Page page = begin_page(
      "comparison", "assay: " + input.mine.path + " against " + input.golden.path,
      input.verdict != nullptr ? locate::sentence(*input.verdict) : counted, tone_of(input));
  Json& json = page.content;
  json["counts_sentence"] = printable(counted);
  if (input.verdict != nullptr) json["verdict"] = verdict_of(*input.verdict, rows);
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
  for (const std::string& note : input.notes) json["notes"].push_back(printable(note));
  json["warnings"] = texts_json(comparison.warnings);
  json["gaps"] = texts_json(comparison.gaps);
  json["sides"] = {side_json(input.golden, "golden"), side_json(input.mine, "mine")};
  json["unmatched"] = unmatched_of(input);
  json["table"] = rows.add_to(&page);
  const std::vector<const Row*> worst = comparison.worst_rows(kPagePictures);
  const std::vector<size_t> around = add_flow_of(input, rows, worst, &page.blobs);
  complete_pictures(input, rows, around, worst);
  add_details(rows, &page.blobs);
  return page;
}

}  // namespace assay::report::html
