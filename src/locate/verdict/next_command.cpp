// SPDX-License-Identifier: Apache-2.0
// Two commands are made: one that fetches what is not at hand (another capture, weights, floors),
// and one that looks at the runs as they are. The first goes before the second where there is one.
#include "locate/verdict/next_command.hpp"

#include <algorithm>
#include <array>

#include "base/paths.hpp"
#include "base/shell_words.hpp"
#include "locate/verdict/obligations.hpp"
#include "locate/verdict/verdict.hpp"
#include "run/common_names.hpp"
#include "run/program_command.hpp"

namespace assay::locate {
namespace {

using run::Trait;

// Files of arrays: nobody knows which program they are from.
bool is_of_files(const run::Run& run) { return run.has(Trait::Files); }

// Programs that cannot be captured as aten operators: golden's function is not to be had.
bool is_other_framework(const run::Run& run) {
  return run.has(Trait::AtbOperations) || run.has(Trait::GeOperators) || run.has(Trait::FxNodes) ||
         is_of_files(run);
}

// A name that is free, so that the line can be run again.
std::string free_folder(const std::string& name) {
  std::string folder = name;
  for (int number = 2; is_taken(folder); ++number) folder = name + "-" + std::to_string(number);
  return folder;
}

/// Captures a run's program with its operators, in as many steps as the run has; `then` follows.
std::string operators_command(const run::Run& run, const std::string& folder,
                              const std::string& then) {
  const bool has_steps = std::ranges::any_of(
      run.records, [](const run::TensorRecord& record) { return record.step > 0; });
  return run::dump_command(run, "--level operator" + std::string(has_steps ? " --steps all" : "") +
                                    " -o " + folder + " --next " + shell_quote(then));
}

// Weights with the digests of the fingerprint would let its program be replayed.
bool wants_weights(const run::Run& golden) {
  return golden.has(Trait::WithoutValues) && !golden.operations.empty() &&
         std::ranges::any_of(golden.records, [](const run::TensorRecord& record) {
           return !record.leaf.empty() && !record.bytes;
         });
}

// As a word that no command takes for an option.
std::string path_word(const std::string& path) {
  return shell_quote(path.starts_with('-') ? "./" + path : path);
}

// As `assay show` reads it: a name that holds signs of patterns is one.
std::string name_word(const std::string& name) {
  if (name.find_first_of("*?[") == std::string::npos) return shell_quote(name);
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return shell_quote(pattern);
}

/// Why nothing can be judged; null where no obligation is open.
const Obligation* first_open(const Verdict& verdict) {
  const auto open = std::ranges::find_if(verdict.obligations,
                                         [](const Obligation& one) { return !one.open.empty(); });
  return open == verdict.obligations.end() ? nullptr : &*open;
}

/// The next command of one verdict.
class Advice {
 public:
  Advice(const Verdict& verdict, const run::Run& golden, const run::Run& mine, const Asked& asked)
      : verdict_(verdict), golden_(golden), mine_(mine), asked_(asked) {}

  /// The command that fetches what is not at hand; empty when nothing would tell more.
  [[nodiscard]] std::string fetch() const {
    if (verdict_.outcome == VerdictOutcome::FirstWrong)
      return verdict_.confidence == Confidence::High ? "" : capture_mine();
    if (verdict_.outcome == VerdictOutcome::Clean) return {};
    if (!would_operators_tell(verdict_) || is_of_files(golden_)) return {};
    if (wants_weights(golden_))
      return asked_.golden_weights ? "" : on_runs("locate") + " --golden-weights CHECKPOINT";
    if (has_no_program(golden_, verdict_.golden_level)) {
      if (!is_other_framework(golden_)) return capture_golden();
      return asked_.floors ? "" : on_runs("locate") + " --floor-run GOLDEN:MINE";
    }
    return capture_mine();
  }

  /// The command that looks at the runs as they are.
  [[nodiscard]] std::string look() const {
    if (verdict_.outcome == VerdictOutcome::FirstWrong)
      if (std::string show = show_first(); !show.empty()) return show;
    if (verdict_.outcome == VerdictOutcome::CannotJudge) {
      if (const run::Run* run = unfinished(); run != nullptr)
        return "assay verify " + path_word(run->path);
      const bool tables_tell = !would_operators_tell(verdict_) || is_of_files(golden_);
      if (tables_tell && !asked_.tables) return on_runs("compare");
      if (is_of_files(golden_))
        return asked_.page ? show_all() : on_runs("compare") + " --html page.html";
    }
    if (!asked_.why) return on_runs("locate") + " --why";
    if (!asked_.page) return on_runs("compare") + " --html page.html";
    return show_all();
  }

 private:
  [[nodiscard]] std::string show_all() const { return "assay show " + path_word(mine_.path); }

  /// "assay locate golden mine --ranks 0"
  [[nodiscard]] std::string on_runs(const std::string& command) const {
    return on_paths(command, golden_.path, mine_.path);
  }

  [[nodiscard]] std::string on_paths(const std::string& command, const std::string& golden,
                                     const std::string& mine) const {
    return "assay " + command + " " + path_word(golden) + " " + path_word(mine) + asked_.options;
  }

  [[nodiscard]] std::string capture_golden() const {
    const std::string folder = free_folder("golden-operators");
    return operators_command(golden_, folder, on_paths("locate", folder, mine_.path));
  }

  /// The run of which something is missing, where that is why nothing can be judged.
  [[nodiscard]] const run::Run* unfinished() const {
    const Obligation* open = first_open(verdict_);
    if (open == nullptr || open->name != kRunsAreComplete) return nullptr;
    return golden_.coverage.complete && golden_.coverage.lost == 0 ? &mine_ : &golden_;
  }

  // Nodes of another engine are operators already.
  [[nodiscard]] static bool has_no_program(const run::Run& run, CaptureLevel level) {
    return level != CaptureLevel::Operators && !run.has_own_engine();
  }

  [[nodiscard]] std::string capture_mine() const {
    if (!has_no_program(mine_, verdict_.mine_level) || is_other_framework(mine_)) return {};
    const std::string folder = free_folder("mine-operators");
    return operators_command(mine_, folder, on_paths("locate", golden_.path, folder));
  }

  [[nodiscard]] bool has_records(const std::string& node) const {
    return std::ranges::any_of(mine_.records, [&](const run::TensorRecord& record) {
      return record.node == node || run::module_path(mine_, record.node) == node;
    });
  }

  /// The tensors of the first wrong operator, or of its module.
  [[nodiscard]] std::string show_first() const {
    const Finding& first = verdict_.candidates.front();
    for (const std::string& node : {first.node, first.module}) {
      if (node.empty() || !has_records(node)) continue;
      return "assay show " + path_word(mine_.path) + " " + name_word(run::own_name(mine_, node));
    }
    return {};
  }

  const Verdict& verdict_;
  const run::Run& golden_;
  const run::Run& mine_;
  const Asked& asked_;
};

}  // namespace

bool would_operators_tell(const Verdict& verdict) {
  constexpr std::array<std::string_view, 4> kOfTheWhole = {kRunsAreWhole, kModelsAreTheSame,
                                                           kInputsAreEqual, kStepsAreTheSame};
  if (verdict.outcome == VerdictOutcome::FirstWrong) return true;
  const Obligation* open = first_open(verdict);
  return open == nullptr || std::ranges::find(kOfTheWhole, open->name) == kOfTheWhole.end();
}

void add_next_command(const run::Run& golden, const run::Run& mine, const Asked& asked,
                      Verdict* verdict) {
  const Advice advice(*verdict, golden, mine, asked);
  verdict->next_at_hand = advice.look();
  verdict->next = advice.fetch();
  if (verdict->next.empty()) verdict->next = verdict->next_at_hand;
}

}  // namespace assay::locate
