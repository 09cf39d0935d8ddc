// SPDX-License-Identifier: Apache-2.0
// One function an obligation: its text is empty where the obligation holds, otherwise it is the
// reason of `cannot judge`.   docs/localisation.md, "The order of things"
#include "locate/verdict/obligations.hpp"

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "locate/verdict/unjudged_steps.hpp"

namespace assay::locate {
namespace {

bool is_by_floors(const Verdict& verdict) { return is_measured(verdict.level); }

std::string reasons(const std::map<std::string, size_t>& unjudged) {
  constexpr size_t kShown = 3;
  std::vector<std::pair<std::string, size_t>> sorted(unjudged.begin(), unjudged.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < std::min(kShown, sorted.size()); ++i)
    text += (i == 0 ? " (" : ", ") + sorted[i].first + ": " + std::to_string(sorted[i].second);
  if (sorted.size() > kShown) text += ", ...";
  return text.empty() ? text : text + ")";
}

class Obligations {
 public:
  Obligations(const Stages& stages, const Verdict& verdict, const std::vector<Finding>& undecided)
      : stages_(stages), verdict_(verdict), undecided_(undecided) {}

  std::vector<Obligation> list() {
    add(std::string(kRunsAreWhole), {});  // locate() judges no others
    add(std::string(kRunsAreComplete), what_is_lost());
    if (verdict_.level == JudgedBy::Identity) {
      if (stages_.identical.values == 0) {
        add("values are judged", why_nothing_was_judged());
      } else {
        add("golden's values are covered", what_is_uncovered());
      }
      return std::move(list_);
    }
    if (!stages_.across_engines) add(std::string(kModelsAreTheSame), {});
    add(std::string(kInputsAreEqual), other_inputs());
    if (!stages_.in_slice) add(std::string(kStepsAreTheSame), other_steps());
    add("programs are equal", other_programs());
    add("operators are judged", too_few_judged());
    if (!stages_.in_slice) add("every path to the outputs is judged", unjudged_path());
    add("errors would be seen", too_little_power());
    add("golden is a program", no_program());
    if (!stages_.in_slice && verdict_.tokens.positions > 0)
      add("no choice is beyond the noise", unexplained_choice());
    add("weights are golden's", unknown_weights());
    return std::move(list_);
  }

 private:
  void add(std::string name, std::string open) {
    list_.push_back({std::move(name), std::move(open)});
  }

  [[nodiscard]] std::string what_is_lost() const {
    for (const auto& [name, program] :
         {std::pair("golden", stages_.golden), std::pair("mine", stages_.mine)}) {
      const run::Run* run = program->run;
      if (run == nullptr || program->level == CaptureLevel::Nothing) continue;
      const std::string of = std::string("the capture of ") + name;
      if (run->coverage.lost > 0) return of + " lost " + counted(run->coverage.lost, "tensor");
      if (!run->coverage.complete)
        return of + " did not finish: what came after its last record is not known";
    }
    return {};
  }

  [[nodiscard]] std::string what_is_uncovered() const {
    const IdenticalValues& identical = stages_.identical;
    if (identical.uncovered == 0) return {};
    return counted(identical.values, "captured value") +
           " of mine equal golden's bit for bit, but " + std::to_string(identical.uncovered) +
           " of golden's were not captured of mine, first " + identical.first_uncovered;
  }

  [[nodiscard]] std::string other_inputs() const {
    if (!stages_.inputs) return {};
    const InputDifference& inputs = *stages_.inputs;
    if (inputs.first_step) return "mine was not given what golden was: " + inputs.text;
    const TokenChoice& first = stages_.tokens.first;
    if (first.step >= 0 && first.step < inputs.step && first.kind == ChoiceKind::NearTie) return {};
    return "no fault was found before step " + std::to_string(inputs.step) +
           ", in which mine was not given what golden was: " + inputs.text;
  }

  [[nodiscard]] std::string other_steps() const {
    if (!stages_.missing.empty())
      return "no fault was found in what both runs computed, but " + stages_.missing;
    if (stages_.steps_by_tokens) return {};
    // Where the runs went on with other tokens, one of them may end before the other.
    for (const UnjudgedSteps& lonely : verdict_.unjudged_steps) {
      if (lonely.of == StepsOf::Both ||
          (stages_.inputs && lonely.steps.front() >= stages_.inputs->step))
        continue;
      const bool golden = lonely.of == StepsOf::Golden;
      return std::string(golden ? "mine" : "golden") + " has no " + steps_text(lonely.steps) +
             ", which " + (golden ? "golden" : "mine") + " has";
    }
    return {};
  }

  [[nodiscard]] std::string other_programs() const {
    if (undecided_.empty()) return other_shapes();
    return "the programs differ in " + counted(undecided_.size(), "place") +
           " that no replay could tell from a fault, first in " + first_place(undecided_);
  }

  [[nodiscard]] std::string other_shapes() const {
    if (stages_.walk == nullptr || stages_.walk->other_shapes.empty()) return {};
    const std::vector<std::string>& shapes = stages_.walk->other_shapes;
    return "no fault was found in what has golden's shapes, but " + shapes.front() +
           (shapes.size() > 1 ? ", and " + std::to_string(shapes.size() - 1) + " more" : "");
  }

  [[nodiscard]] std::string too_few_judged() const {
    const Coverage& coverage = verdict_.coverage;
    if (coverage.judgeable == 0) return "nothing that computes with floats was captured of mine";
    if (static_cast<double>(coverage.judged) >=
        kCleanCoverage * static_cast<double>(coverage.judgeable))
      return {};
    // What no output is made of, such as a state that no step reads any more, need not be judged.
    if (verdict_.level != JudgedBy::Operators && stages_.walk != nullptr &&
        stages_.walk->is_whole_path_judged())
      return {};
    return "no fault was found in " + std::to_string(coverage.judged) + " of " +
           std::to_string(coverage.judgeable) + " " + unit() + ", the others were not judged" +
           reasons(coverage.unjudged);
  }

  /// What the outputs are made of and nobody judged may be the fault, however small a part of the
  /// program it is.
  [[nodiscard]] std::string unjudged_path() const {
    if (stages_.walk == nullptr) return {};
    const std::vector<std::string>& missing = stages_.walk->missing_outputs;
    if (!missing.empty())
      return "no fault was found, but what golden's model returns as " + missing.front() +
             (missing.size() > 1 ? " and " + std::to_string(missing.size() - 1) + " more" : "") +
             ", was not captured of mine, so what lies in front of it was not judged";
    const std::set<ValueId> exact = values_of_judged_operators();
    const WalkStep* first = nullptr;
    size_t count = 0;
    for (const WalkStep& step : stages_.walk->steps) {
      if (!step.on_path || step.reason.empty() || exact.contains(use_of(step).value)) continue;
      if (first == nullptr) first = &step;
      ++count;
    }
    if (first == nullptr) return {};
    const ModuleCall& call = stages_.mine->calls[first->call];
    const std::string& slot = use_of(*first).slot;
    return "no fault was found, but the model's outputs are made of the " +
           std::string(first->input ? "input" : "output") + (slot.empty() ? "" : " " + slot) +
           " of " + (call.module.empty() ? std::string("the model") : call.module.str()) +
           ", step " + std::to_string(call.step) + ", which was not judged: " + first->reason +
           (count > 1 ? " (and of " + std::to_string(count - 1) + " more)" : "");
  }

  [[nodiscard]] const Use& use_of(const WalkStep& step) const {
    const ModuleCall& call = stages_.mine->calls[step.call];
    return (step.input ? call.inputs : call.outputs)[step.use];
  }

  /// Values of mine whose operator was recomputed.
  [[nodiscard]] std::set<ValueId> values_of_judged_operators() const {
    std::set<ValueId> values;
    if (stages_.own == nullptr || verdict_.level != JudgedBy::Operators) return values;
    for (const OwnError& output : stages_.own->outputs) {
      if (output.state != OwnError::State::Judged && output.state != OwnError::State::Exact)
        continue;
      if (output.op == kNone) continue;
      const Operator& one = stages_.mine->operators[output.op];
      if (output.output < one.outputs.size()) values.insert(one.outputs[output.output].value);
    }
    values.erase(kNoValue);
    return values;
  }

  /// Not asked across engines: the other one may keep its cache in four bits, as the sentence says.
  [[nodiscard]] std::string too_little_power() const {
    const Power& power = verdict_.power;
    if (stages_.across_engines || !(power.error > power.allowed)) return {};
    return "no fault was found, but in " + (power.module.empty() ? "the model" : power.module) +
           ", step " + std::to_string(power.step) + ", " +
           (power.error < 1 ? "errors up to " + percent_text(power.error) + " of the value"
                            : std::string("an error as large as the value itself")) +
           " would pass for rounding" + (power.why.empty() ? "" : ": " + power.why);
  }

  [[nodiscard]] std::string no_program() const {
    if (verdict_.level != JudgedBy::Operators) return {};
    if (stages_.golden->run != nullptr && stages_.golden->run->has(run::Trait::WithoutValues) &&
        stages_.walk == nullptr)
      return "all " + std::to_string(verdict_.coverage.judged) +
             " judged operators of mine are exact to rounding, but the weights of golden's "
             "fingerprint are not at hand, so its program was not replayed";
    if (stages_.golden->level == CaptureLevel::Operators) return {};
    return "all " + std::to_string(verdict_.coverage.judged) +
           " judged operators of mine are exact to rounding, but whether they are the right "
           "ones, in the right order, only a golden with operators can tell";
  }

  /// Where every operator is exact to rounding this does not happen: something that nobody judged
  /// moved the logits.
  [[nodiscard]] std::string unexplained_choice() const {
    const TokenChoices& tokens = verdict_.tokens;
    const auto first =
        std::ranges::find(tokens.choices, ChoiceKind::Unexplained, &TokenChoice::kind);
    if (first == tokens.choices.end()) return {};
    return "no fault was found, but in step " + std::to_string(first->step) + " at [" +
           std::to_string(first->sequence) + ", " + std::to_string(first->position) +
           "] mine chooses token " + std::to_string(first->mine_token) + ", which golden has " +
           times_text(first->gap / first->noise) +
           " the noise of the logits below its own choice " + std::to_string(first->golden_token) +
           (tokens.unexplained > 1
                ? " (and " + std::to_string(tokens.unexplained - 1) + " more choices)"
                : "");
  }

  [[nodiscard]] std::string unknown_weights() const {
    const Coverage& coverage = verdict_.coverage;
    if (coverage.weights == 0 && has_no_weights(*stages_.golden)) return {};
    // Where mine has golden's in other pieces, both have some that the other has not.
    const size_t missing = stages_.tests == nullptr || coverage.weights_by_function > 0
                               ? 0
                               : stages_.tests->weights_missing.size();
    const bool compared =
        coverage.weights_compared > 0 &&
        coverage.weights_compared + coverage.weights_by_function >= coverage.weights;
    if (compared && missing > 0)
      return "no fault was found in " + std::to_string(coverage.judged) + " " + unit() + ", but " +
             counted(missing, "weight") +
             " of golden's had no partner in the run under test, first " +
             stages_.tests->weights_missing.front();
    if (compared) return {};
    return "no fault was found in " + std::to_string(coverage.judged) + " " + unit() + ", but " +
           (coverage.weights == 0
                ? "no weights of mine were captured"
                : "only " + std::to_string(coverage.weights_compared) + " of " +
                      counted(coverage.weights, "weight") + " could be held against golden's");
  }

  /// A function of its arguments. Constants in it are part of the program: the replay has them.
  static bool has_no_weights(const Program& program) {
    return program.level == CaptureLevel::Operators && program.leaves.empty();
  }

  [[nodiscard]] std::string unit() const { return is_by_floors(verdict_) ? "values" : "operators"; }

  [[nodiscard]] std::string why_nothing_was_judged() const {
    for (const auto& [name, program] :
         {std::pair("golden", stages_.golden), std::pair("mine", stages_.mine)}) {
      if (program->level != CaptureLevel::Nothing) continue;
      const bool empty = program->run == nullptr || program->run->records.empty();
      if (empty) return "nothing of " + std::string(name) + " was captured";
      const std::string calls =
          program->calls.empty()
              ? "no module calls"
              : "no values of the results of its " + counted(program->calls.size(), "module call");
      return std::string(name) + " holds " + calls + " and no operators with a reference (" +
             std::string(run::layout_name(program->run->layout)) + ")";
    }
    if (stages_.golden->lacks_leaves && stages_.mine->has_bytes)
      return "golden is a fingerprint whose weights are not at hand, neither in mine nor in a "
             "checkpoint (--golden-weights), and how far healthy runs differ was not measured";
    const bool program = stages_.golden->level == CaptureLevel::Operators;
    return std::string(program ? "mine holds statistics only"
                               : "golden was captured without operators") +
           ", and how far healthy runs differ was not measured";
  }

  const Stages& stages_;
  const Verdict& verdict_;
  const std::vector<Finding>& undecided_;
  std::vector<Obligation> list_;
};

}  // namespace

std::string first_place(const std::vector<Finding>& findings) {
  const auto first = std::ranges::min_element(findings, comes_before);
  if (first == findings.end()) return "the root";
  return (first->module.empty() ? std::string("the root") : first->module) +
         (first->detail.empty() ? "" : ": " + first->detail);
}

std::vector<Obligation> clean_obligations(const Stages& stages, const Verdict& verdict,
                                          const std::vector<Finding>& undecided) {
  return Obligations(stages, verdict, undecided).list();
}

}  // namespace assay::locate
