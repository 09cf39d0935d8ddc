// SPDX-License-Identifier: Apache-2.0
// The members that every answer shares come first in its JSON and win over members of the same name
// in the command's own object.
#include "cli/answer.hpp"

#include <nlohmann/json.hpp>

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

std::string answer_json(const Answer& answer, const std::string& object) {
  using Json = nlohmann::ordered_json;
  const Json members = Json::parse(answer_json(answer).text());
  Json json = members;
  json.update(Json::parse(object));
  json.update(members);
  return json.dump(2) + "\n";
}

int print_answer(const Answer& answer, std::string_view text, bool json,
                 const std::string& object) {
  return print_result(json ? object : std::string(text) + next_line(answer.next),
                      answer.exit_status);
}

int print_answer(const Answer& answer, std::string_view text, bool json, const JsonObject& object) {
  return print_answer(answer, text, json, object.text() + "\n");
}

int print_failure(const Answer& answer, bool json) {
  if (json) return print_answer(answer, {}, json, answer_json(answer));
  say("next", answer.next);
  return answer.exit_status;
}

int report_failure(std::string_view command, const Error& error, std::string_view hint, bool json,
                   const std::string& next) {
  const int status = report_error(error, hint);
  return print_failure({command, "error", error.describe(),
                        next.empty() ? "assay help " + std::string(command) : next, status},
                       json);
}

}  // namespace assay::cli
