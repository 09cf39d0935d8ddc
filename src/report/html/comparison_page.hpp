// SPDX-License-Identifier: Apache-2.0
// The page of two runs: `assay compare --html`, `assay locate --html`.   docs/formats/page.md
#pragma once
#include "compare/compare.hpp"
#include "locate/verdict/locate.hpp"
#include "report/html/page.hpp"
#include "run/run.hpp"

namespace assay::report::html {

struct ComparisonPage {
  const compare::Comparison& comparison;
  const run::Run& golden;
  const run::Run& mine;
  const locate::Verdict* verdict = nullptr;  // null: none was asked for
  std::vector<std::string> notes = {};       // for the user, one sentence each
};

[[nodiscard]] Page comparison_page(const ComparisonPage& input);

}  // namespace assay::report::html
