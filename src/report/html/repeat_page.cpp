// SPDX-License-Identifier: Apache-2.0
// A row is an operator in a run, computed when it is asked for. Runs that differ are taken first,
// as many as the page has room for.
#include "report/html/repeat_page.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/text.hpp"
#include "report/html/findings.hpp"
#include "report/html/place.hpp"
#include "report/html/sides.hpp"
#include "report/html/table_data.hpp"

namespace assay::report::html {
namespace {

using repeat::Finding;
using repeat::GridRun;
using repeat::Outcome;
using repeat::Place;
using repeat::State;

constexpr size_t kMostRows = 1'000'000;
constexpr size_t kListed = 200;

/// An operator in a run.
struct GridRow {
  const Place& place;
  const GridRun& run;
  State state;
  const Finding* finding;  // of a state of Origin
};

/// The runs of the page, and which operator differs why.
class Rows {
 public:
  explicit Rows(const Outcome& outcome) : outcome_(outcome) {
    choose_runs();
    add(outcome.findings);
    for (const repeat::ThreadGroup& group : outcome.threads) add(group.against_first);
  }

  [[nodiscard]] size_t count() const {
    return (outcome_.grid.operators.size() + of_others_.size()) * runs_.size();
  }
  [[nodiscard]] size_t run_count() const { return runs_.size(); }

  /// Operators in the order of execution, each in all runs; behind them those that only other runs
  /// than the first have.
  [[nodiscard]] GridRow at(size_t row) const {
    const size_t op = row / runs_.size();
    const GridRun& run = *runs_[row % runs_.size()];
    const size_t of_first = outcome_.grid.operators.size();
    if (op >= of_first) {
      const Finding& lonely = *of_others_[op - of_first];
      const bool is_there = std::ranges::find(lonely.runs, run.number) != lonely.runs.end();
      return {lonely.difference.place, run, is_there ? State::Origin : State::Same,
              is_there ? &lonely : nullptr};
    }
    const auto found = findings_.find({op, run.number});
    return {outcome_.grid.operators[op], run, (*run.states)[op],
            found == findings_.end() ? nullptr : found->second};
  }

  /// Null: the page has no such row.
  [[nodiscard]] Json row_of(const Finding& finding) const {
    const std::optional<size_t> op = operator_of(finding.difference.place);
    const auto run = std::ranges::find_if(runs_, [&](const GridRun* one) {
      return std::ranges::find(finding.runs, one->number) != finding.runs.end();
    });
    if (!op || run == runs_.end()) return nullptr;
    return *op * runs_.size() + static_cast<size_t>(run - runs_.begin());
  }

 private:
  static bool differs(const GridRun& run) {
    return std::ranges::any_of(
        *run.states, [](State one) { return one != State::Same && one != State::Unseen; });
  }

  /// Those that differ, then as many others as there is room for.
  void choose_runs() {
    const size_t most = kMostRows / std::max<size_t>(outcome_.grid.operators.size(), 1) + 1;
    for (const bool different : {true, false}) {
      for (const GridRun& run : outcome_.grid.runs) {
        if (runs_.size() < most && differs(run) == different) runs_.push_back(&run);
      }
    }
    std::ranges::sort(runs_, {}, &GridRun::number);
  }

  /// A finding of another run than the first is by that one's numbers.
  [[nodiscard]] std::optional<size_t> operator_of(const Place& place) const {
    const std::vector<Place>& all = outcome_.grid.operators;
    const auto is_it = [&](const Place& one) {
      return one.rank == place.rank && one.step == place.step && one.call == place.call &&
             one.node == place.node;
    };
    if (place.index < all.size() && is_it(all[place.index])) return place.index;
    if (const auto found = std::ranges::find_if(all, is_it); found != all.end())
      return static_cast<size_t>(found - all.begin());
    const auto lonely = std::ranges::find_if(
        of_others_, [&](const Finding* one) { return is_it(one->difference.place); });
    if (lonely == of_others_.end()) return std::nullopt;
    return all.size() + static_cast<size_t>(lonely - of_others_.begin());
  }

  void add(const std::vector<Finding>& findings) {
    for (const Finding& one : findings) {
      const std::optional<size_t> op = operator_of(one.difference.place);
      if (!op) of_others_.push_back(&one);
      for (const size_t run : one.runs) {
        if (op) findings_.try_emplace({*op, run}, &one);
      }
    }
  }

  const Outcome& outcome_;
  std::vector<const GridRun*> runs_;
  std::vector<const Finding*> of_others_;  // of operators that the first run does not have
  std::map<std::pair<size_t, size_t>, const Finding*> findings_;  // by operator and run
};

std::string verdict_of(const GridRow& row) {
  if (row.state != State::Origin) return std::string(repeat::state_name(row.state));
  if (row.finding == nullptr) return std::string(repeat::cause_name(repeat::Cause::Operator));
  return std::string(repeat::cause_name(row.finding->difference.cause));
}

Columns<GridRow> grid_columns() {
  using R = GridRow;
  return {
      {"run", [](const R& row) { return Cell::of(row.run.number); }},
      {"token_id", [](const R& row) { return Cell::of(row.place.step); }},
      {"node", [](const R& row) { return Cell::of(row.place.node); }},
      {"op_type", [](const R& row) { return Cell::of(row.place.operation); }},
      {"verdict", [](const R& row) { return Cell::of(verdict_of(row)); }},
      {"slot",
       [](const R& row) { return row.finding ? Cell::of(row.finding->difference.slot) : Cell{}; }},
      {"reason",
       [](const R& row) {
         return row.finding ? Cell::of(repeat::finding_text(*row.finding)) : Cell{};
       }},
      {"threads",
       [](const R& row) { return row.run.threads > 0 ? Cell::of(row.run.threads) : Cell{}; }},
      {"source", [](const R& row) { return Cell::of(row.place.source); }},
      {"rank", [](const R& row) { return Cell::of(row.place.rank); }},
      {"module", [](const R& row) { return Cell::of(row.place.module); }},
      {"operator", [](const R& row) { return Cell::of(operator_in(row.place.node)); }},
      {"call", [](const R& row) { return Cell::of(row.place.call); }}};
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

ListedFinding listed(const Finding& finding, const Rows& rows) {
  const Place& place = finding.difference.place;
  ListedFinding item{place.module.empty() ? place.node : place.module,
                     repeat::finding_text(finding), rows.row_of(finding)};
  item.facts = {{"operator", place.operation},
                {"cause", std::string(repeat::cause_name(finding.difference.cause))},
                {"runs that differ", finding.runs.size()},
                {"different results", finding.results}};
  return item;
}

/// Of the first finding: how many elements, and how far apart.
void add_elements(const Outcome& outcome, ListedFinding* item) {
  if (!outcome.elements) {
    if (!outcome.elements_note.empty()) item->facts.emplace_back("values", outcome.elements_note);
    return;
  }
  const repeat::Elements& elements = *outcome.elements;
  item->facts.emplace_back("elements that differ", std::to_string(elements.different) + " of " +
                                                       std::to_string(elements.count));
  item->facts.emplace_back("worst ULP", number_or_null(elements.largest_ulp));
  item->facts.emplace_back("at", elements.worst_place);
  item->facts.emplace_back("kind", std::string(repeat::kind_name(elements.kind)));
}

Json lists_of(const Outcome& outcome, const Rows& rows) {
  Json lists = Json::array();
  const auto list = [&](std::string_view title, bool is_open, const std::vector<Finding>& all) {
    if (all.empty()) return;
    std::vector<ListedFinding> items;
    for (size_t i = 0; i < std::min(all.size(), kListed); ++i)
      items.push_back(listed(all[i], rows));
    if (&all == &outcome.findings) add_elements(outcome, &items.front());
    lists.push_back(list_json(title, is_open, all.size(), items));
  };
  list("Where runs differ", true, outcome.findings);
  for (const repeat::ThreadGroup& group : outcome.threads) {
    list("Depends on the number of threads: " + std::to_string(group.threads) + " against " +
             std::to_string(outcome.threads.front().threads),
         outcome.repeats(), group.against_first);
  }
  return lists;
}

std::string_view tone_of(const Outcome& outcome) {
  if (!outcome.repeats()) return "bad";
  return outcome.depends_on_threads() || outcome.unseen > 0 ? "open" : "good";
}

Json facts_of(const Outcome& outcome) {
  const auto same =
      static_cast<size_t>(std::ranges::count_if(outcome.grid.runs, [](const GridRun& run) {
        return std::ranges::all_of(
            *run.states, [](State one) { return one == State::Same || one == State::Unseen; });
      }));
  return facts_json({{"runs", outcome.runs},
                     {"as the first", same},
                     {"operators", outcome.operators},
                     {"steps", outcome.steps}});
}

}  // namespace

Page repeat_page(const Outcome& outcome) {
  const Rows rows(outcome);
  Page page = begin_page("repeat", "assay repeat", repeat::sentence_of(outcome), tone_of(outcome));
  Json& json = page.content;
  json["next"] = printable(outcome.next);
  json["facts"] = facts_of(outcome);
  json["lists"] = lists_of(outcome, rows);
  json["axis"] = {{"column", "run"}, {"name", "run"}};
  json["row_is"] = "an operator in a run, held against the first run";
  json["first_row"] = outcome.repeats() ? Json(nullptr) : rows.row_of(outcome.findings.front());
  if (outcome.grid.left_out + outcome.grid.runs.size() > rows.run_count())
    json["notes"] = texts_json(
        std::vector<std::string>{"the page has " + std::to_string(rows.run_count()) + " of " +
                                 counted(outcome.grid.left_out + outcome.grid.runs.size(), "run") +
                                 ", those that differ first"});
  json["sides"] = {side_json(*outcome.first_run, "first run")};
  if (outcome.different_run != nullptr)
    json["sides"].push_back(side_json(*outcome.different_run, "a run that differs"));
  json["table"] = add_table(rows.count(),
                            page_columns(grid_columns(), [&](size_t row) { return rows.at(row); }),
                            "c", &page.blobs);
  return page;
}

}  // namespace assay::report::html
