// SPDX-License-Identifier: Apache-2.0
// A rule for each column that is marked, by the column's name; cells already marked stay.
#include "report/mark.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "compare/compare.hpp"
#include "locate/program/row_judgement.hpp"
#include "opcheck/check.hpp"

namespace assay::report {
namespace {

bool is_failed(std::string_view word) {
  return word == compare::outcome_name(compare::Outcome::Fail) ||
         word == opcheck::outcome_name(opcheck::CheckOutcome::Failed);
}

// Of what decides: comparisons and operations that failed, and those that could not be judged.
Mark of_result(const Cell& cell) {
  using opcheck::CheckOutcome;
  if (is_failed(cell.text)) return Mark::Bad;
  const bool unjudged = cell.text == opcheck::outcome_name(CheckOutcome::Error) ||
                        cell.text == opcheck::outcome_name(CheckOutcome::NotSupported);
  return unjudged ? Mark::Doubt : Mark::None;
}

// Of a standard that does not decide, or may not.
Mark of_standard(const Cell& cell) { return is_failed(cell.text) ? Mark::Doubt : Mark::None; }

Mark of_verdict(const Cell& cell) {
  using locate::RowJudgement;
  const auto is = [&](RowJudgement one) { return cell.text == locate::judgement_name(one); };
  if (is(RowJudgement::Amplified) || is(RowJudgement::Drift)) return Mark::Doubt;
  for (RowJudgement one = RowJudgement::OwnError; one <= RowJudgement::RankDivergence;
       one = static_cast<RowJudgement>(static_cast<uint8_t>(one) + 1)) {
    if (is(one)) return Mark::Bad;
  }
  return Mark::None;
}

Mark of_remark(const Cell&) { return Mark::Doubt; }
Mark of_bad_count(const Cell& cell) { return cell.integer > 0 ? Mark::Bad : Mark::None; }
Mark of_doubtful_count(const Cell& cell) { return cell.integer > 0 ? Mark::Doubt : Mark::None; }

struct Rule {
  std::string_view column;
  Mark (*mark_of)(const Cell& cell);  // of cells that are not empty
};
constexpr Rule kRules[] = {{"result", of_result},
                           {"verdict", of_verdict},
                           {"cmp_fail_reason", of_remark},
                           {"note", of_remark},
                           {"precision_result", of_standard},
                           {"atb_result", of_standard},
                           {"legacy_o4_result", of_standard},
                           {"legacy_o1_result", of_standard},
                           {"mixed_result", of_standard},
                           // of summaries
                           {"failed", of_bad_count},
                           {"errors", of_doubtful_count},
                           {"not_supported", of_doubtful_count}};

}  // namespace

void mark_cells(Table* table) {
  std::vector<std::pair<size_t, const Rule*>> judging;  // columns
  for (size_t c = 0; c < table->columns.size(); ++c) {
    const auto* rule = std::ranges::find(kRules, table->columns[c], &Rule::column);
    if (rule != std::end(kRules)) judging.emplace_back(c, rule);
  }
  table->rows.change([judging](Cells* cells) {
    for (const auto& [c, rule] : judging) {
      if (c >= cells->size()) continue;
      Cell& cell = (*cells)[c];
      const bool open = cell.kind != Cell::Kind::Empty && cell.mark == Mark::None;
      if (open) cell.mark = rule->mark_of(cell);
    }
  });
}

}  // namespace assay::report
