// SPDX-License-Identifier: Apache-2.0
// The page of two runs: `assay compare --html`, `assay locate --html`.   docs/formats/page.md
#pragma once
#include "compare/compare.hpp"
#include "locate/verdict/locate.hpp"
#include "report/html/page.hpp"
#include "run/run.hpp"

namespace assay::report::html {

/// So many of the rows that differ most say in the page where and how they differ.
inline constexpr size_t kPagePictures = 200;

struct ComparisonPage {
  compare::Comparison&
      comparison;  // rows get the pictures that the page wants and that are missing
  const run::Run& golden;
  const run::Run& mine;
  const locate::Verdict* verdict = nullptr;  // null: none was asked for
  std::vector<std::string> notes = {};       // for the user, one sentence each
  /// Of the comparison: for pairs that are read once more. Null: no more pictures than there are.
  const compare::CompareOptions* options = nullptr;
};

[[nodiscard]] Page comparison_page(const ComparisonPage& input);

}  // namespace assay::report::html
