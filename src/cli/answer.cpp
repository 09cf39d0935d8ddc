// SPDX-License-Identifier: Apache-2.0
#include "cli/answer.hpp"

#include "cli/command.hpp"

namespace assay::cli {

std::string next_line(std::string_view command) {
  return command.empty() ? std::string() : "next: " + printable(command) + "\n";
}

JsonObject answer_json(const Answer& answer) {
  JsonObject json;
  json.add("version", 1)
      .add("command", answer.command)
      .add("outcome", answer.outcome)
      .add("exit_status", answer.exit_status)
      .add("sentence", answer.sentence);
  if (answer.next.empty()) return std::move(json.add_json("next", "null"));
  return std::move(json.add("next", answer.next));
}

int print_answer(const Answer& answer, std::string_view text, bool json, const JsonObject& object) {
  const std::string shown =
      json ? object.text() + "\n" : std::string(text) + next_line(answer.next);
  return print_result(shown, answer.exit_status);
}

}  // namespace assay::cli
