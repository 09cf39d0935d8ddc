// SPDX-License-Identifier: Apache-2.0
#include "report/verdict_terminal.hpp"

#include "base/text.hpp"
#include "locate/verdict/sentence.hpp"
#include "report/terminal_text.hpp"

namespace assay::report {
namespace {

// As wrapped(), but a name is never cut: it is what people look for.
std::string broken(std::string_view text, size_t indent, size_t width) {
  std::string out;
  std::string line;
  for (const std::string_view word : split(text, ' ')) {
    const size_t room = out.empty() ? width : width - indent;
    if (!line.empty() && line.size() + 1 + word.size() > room) {
      out += (out.empty() ? "" : std::string(indent, ' ')) + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + std::string(word);
  }
  return out + (out.empty() ? "" : std::string(indent, ' ')) + line;
}

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
      out += broken(printable(line), 2, width) + "\n";
  }
  for (const std::string& remark : locate::remarks(verdict)) {
    // A command must stay on its line: it is there to be pasted.
    out +=
        (remark.starts_with("next: ") ? printable(remark) : broken(printable(remark), 2, width)) +
        "\n";
  }
  std::string sentence = locate::sentence(verdict);
  std::string command;
  if (verdict.outcome == locate::VerdictOutcome::CannotJudge && !verdict.next.empty()) {
    command = "next: " + verdict.next;
    sentence.resize(sentence.size() - command.size() - 2);
  }
  out += paint(broken(printable(sentence), 2, width), colour_of(verdict.outcome), options.colour) +
         "\n";
  if (!command.empty()) out += printable(command) + "\n";
  return out;
}

}  // namespace assay::report
