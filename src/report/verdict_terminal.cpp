// SPDX-License-Identifier: Apache-2.0
#include "report/verdict_terminal.hpp"

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

}  // namespace

std::string verdict_text(const locate::Verdict& verdict, const TerminalOptions& options) {
  const auto width = static_cast<size_t>(options.width);
  std::string out;
  if (options.why) {
    for (const std::string& line : locate::checked_list(verdict))
      out += hanging(printable(line), 2, width) + "\n";
  }
  for (const std::string& remark : locate::remarks(verdict)) {
    // A command must stay on its line: it is there to be pasted.
    out +=
        (remark.starts_with("next: ") ? printable(remark) : hanging(printable(remark), 2, width)) +
        "\n";
  }
  std::string sentence = locate::sentence(verdict);
  std::string command;
  if (verdict.outcome == locate::VerdictOutcome::CannotJudge && !verdict.next.empty()) {
    command = "next: " + verdict.next;
    sentence.resize(sentence.size() - command.size() - 2);
  }
  out += paint(hanging(printable(sentence), 2, width), colour_of(verdict.outcome), options.colour) +
         "\n";
  if (!command.empty()) out += printable(command) + "\n";
  return out;
}

}  // namespace assay::report
