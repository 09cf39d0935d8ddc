// SPDX-License-Identifier: Apache-2.0
// Lists that were asked for, then remarks, then the sentence in its colour.
#include "report/verdict_terminal.hpp"

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "locate/verdict/sentence.hpp"
#include "report/terminal_text.hpp"

namespace assay::report {
namespace {

const char* colour_of(locate::VerdictOutcome outcome) {
  switch (outcome) {
    case locate::VerdictOutcome::FirstWrong:
      return kRed;
    case locate::VerdictOutcome::Clean:
      return kGreen;
    case locate::VerdictOutcome::CannotJudge:
      break;
  }
  return kBold;
}

/// The choices that are not golden's as a table, at most kShown of them. `noise`: golden's margin in
/// units of the noise.
std::string choices_table(const locate::TokenChoices& tokens) {
  constexpr size_t kShown = 20;
  if (tokens.choices.empty()) return {};
  std::string out = " step  seq  place  golden    mine  noise      KL\n";
  for (size_t i = 0; i < std::min(kShown, tokens.choices.size()); ++i) {
    const locate::TokenChoice& one = tokens.choices[i];
    const auto whole = [](int64_t value) { return static_cast<long long>(value); };
    char line[160];
    std::snprintf(line, sizeof(line), "%5lld %4lld %6lld %7lld %7lld %6.3g %7.2g ", whole(one.step),
                  whole(one.sequence), whole(one.position), whole(one.golden_token),
                  whole(one.mine_token), one.margin / one.noise, one.divergence);
    out += line + std::string(choice_name(one.kind)) + "\n";
  }
  const size_t all = static_cast<size_t>(tokens.other_choices());
  if (all > kShown) out += "  ... " + std::to_string(all - kShown) + " more; --json has them\n";
  return out;
}

std::string remark_lines(const locate::Verdict& verdict, size_t width) {
  std::string out;
  for (const std::string& remark : locate::remarks(verdict))
    out += hanging(printable(remark), 2, width) + "\n";
  return out;
}

}  // namespace

std::string verdict_text(const locate::Verdict& verdict, const TerminalOptions& options) {
  const auto width = static_cast<size_t>(options.width);
  std::string out;
  if (options.why) {
    for (const std::string& line : locate::checked_list(verdict))
      out += hanging(printable(line), 2, width) + "\n";
  }
  if (options.tokens) {
    for (const std::string& line : locate::token_lines(verdict))
      out += hanging("tokens: " + line, 2, width) + "\n";
    out += choices_table(verdict.tokens);
  }
  if (options.remarks) out += remark_lines(verdict, width);
  return out +
         paint(hanging(printable(locate::sentence(verdict)), 2, width), colour_of(verdict.outcome),
               options.colour) +
         "\n";
}

}  // namespace assay::report
