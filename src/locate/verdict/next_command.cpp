// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/next_command.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/shell_words.hpp"
#include "locate/verdict/obligations.hpp"
#include "locate/verdict/verdict.hpp"

namespace assay::locate {
namespace {

using run::Trait;

// Programs that cannot be captured as aten operators: golden's function is not to be had.
bool is_other_framework(const run::Run& run) {
  return run.has(Trait::AtbOperations) || run.has(Trait::GeOperators) || run.has(Trait::FxNodes);
}

std::string dump_command(const run::Run& run, const std::string& folder,
                         const std::string& modules) {
  const std::string program = program_of(run);
  std::string command = "assay dump --level operator";
  if (!modules.empty()) command += " --modules " + shell_quote(modules);
  return command + " -o " + folder + " -- " + (program.empty() ? "PROGRAM" : program);
}

std::string floor_command(const run::Run& golden, const run::Run& mine) {
  return "assay compare " + shell_quote(golden.path) + " " + shell_quote(mine.path) +
         " --floor-run GOLDEN:MINE for each of 5 healthy prompts";
}

// Weights with the digests of the fingerprint would let its program be replayed.
bool wants_weights(const run::Run& golden) {
  return golden.has(Trait::WithoutValues) && !golden.operations.empty() &&
         std::ranges::any_of(golden.records, [](const run::TensorRecord& record) {
           return !record.leaf.empty() && !record.bytes;
         });
}

// The module and what is inside it.
std::string suspects(const Verdict& verdict) {
  const std::string& module = verdict.candidates.front().module;
  return module.empty() ? std::string() : module + "*";
}

}  // namespace

std::string program_of(const run::Run& run) {
  const auto found = run.properties.find("host.program");
  if (found == run.properties.end()) return {};
  const nlohmann::json words = nlohmann::json::parse(found->second, nullptr, false);
  if (!words.is_array()) return {};
  std::string command;
  for (const nlohmann::json& word : words) {
    if (!word.is_string()) return {};
    command += (command.empty() ? "" : " ") + shell_quote(word.get<std::string>());
  }
  return command;
}

bool would_operators_tell(const Verdict& verdict) {
  constexpr std::array<std::string_view, 4> kOfTheWhole = {kRunsAreWhole, kModelsAreTheSame,
                                                           kInputsAreEqual, kStepsAreTheSame};
  if (verdict.outcome == VerdictOutcome::FirstWrong) return true;
  const auto open = std::ranges::find_if(verdict.obligations,
                                         [](const Obligation& one) { return !one.open.empty(); });
  return open == verdict.obligations.end() ||
         std::ranges::find(kOfTheWhole, open->name) == kOfTheWhole.end();
}

std::string next_command(const Verdict& verdict, const run::Run& golden, const run::Run& mine) {
  const bool golden_has_program = verdict.golden_level == CaptureLevel::Operators;
  const bool mine_has_program = verdict.mine_level == CaptureLevel::Operators;
  if (verdict.outcome == VerdictOutcome::FirstWrong) {
    if (mine_has_program || is_other_framework(mine)) return {};
    if (verdict.confidence == Confidence::High) return {};
    return dump_command(mine, "mine-operators", suspects(verdict));
  }
  if (verdict.outcome == VerdictOutcome::Clean) return {};
  if (wants_weights(golden) && would_operators_tell(verdict))
    return "assay locate " + shell_quote(golden.path) + " " + shell_quote(mine.path) +
           " --golden-weights CHECKPOINT";
  if (!golden_has_program) {
    if (is_other_framework(golden))
      return verdict.floor == Floor::Measured ? std::string() : floor_command(golden, mine);
    return dump_command(golden, "golden-operators", "");
  }
  if (mine_has_program || is_other_framework(mine) || !would_operators_tell(verdict)) return {};
  return dump_command(mine, "mine-operators", "");
}

}  // namespace assay::locate
