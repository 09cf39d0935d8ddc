// SPDX-License-Identifier: Apache-2.0
#include "locate/same_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "reference/wide.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

/// "kwargs.input_ids" is called "input_ids".
std::string name_of(std::string_view slot) {
  constexpr std::string_view kKeyword = "kwargs.";
  if (slot.starts_with(kKeyword)) return std::string(slot.substr(kKeyword.size()));
  return "input " + (slot.empty() ? std::string("0") : std::string(slot));
}

bool is_mask(std::string_view slot) { return slot.find("mask") != std::string_view::npos; }

/// Of integers, the first place where they differ.
std::optional<std::string> first_difference(const TensorView& golden, const TensorView& mine) {
  const auto theirs = reference::whole(golden);
  const auto ours = reference::whole(mine);
  if (!theirs || !ours) return std::nullopt;
  const auto [g, m] = std::ranges::mismatch(theirs->values, ours->values);
  if (m == ours->values.end()) return std::nullopt;
  return "differs first at " + place_text(m - ours->values.begin(), mine.shape) + ": " +
         std::to_string(*m) + " against golden's " + std::to_string(*g);
}

bool is_all_ones(const TensorRecord& record) {
  const Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor || is_float(tensor->view.dtype)) return true;
  const auto values = reference::whole(tensor->view);
  return !values || std::ranges::all_of(values->values, [](int64_t value) { return value == 1; });
}

class InputTest {
 public:
  InputTest(const Program& golden, const Program& mine, const Pairing& pairing)
      : golden_(golden), mine_(mine), pairing_(pairing) {}

  [[nodiscard]] std::optional<InputDifference> find(const TokenDivergence& token) const {
    const std::optional<int64_t> first = first_step();
    std::set<int64_t> of_root;  // steps whose inputs the root module tells
    for (const ModuleCall& call : mine_.calls) {
      if (call.module.empty() && !call.inputs.empty()) of_root.insert(call.step);
    }
    std::optional<InputDifference> found;
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      const ModuleCall& call = mine_.calls[i];
      const size_t partner = pairing_.golden_call_of[i];
      if (partner == kNone || (found && found->step <= call.step)) continue;
      if (!call.module.empty() && of_root.contains(call.step)) continue;
      const ModuleCall& theirs = golden_.calls[partner];
      std::optional<InputDifference> one =
          call.module.empty() ? compare(theirs, call, call.step == *first)
                              : compare_outer_integers(theirs, call, call.step == *first);
      if (one) found = std::move(one);
    }
    if (!found && token.step >= 0 && !has_inputs()) found = own_tokens(token);
    return found;
  }

 private:
  [[nodiscard]] std::optional<int64_t> first_step() const {
    std::optional<int64_t> first;
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      if (pairing_.golden_call_of[i] == kNone) continue;
      if (!first || mine_.calls[i].step < *first) first = mine_.calls[i].step;
    }
    return first;
  }

  [[nodiscard]] bool has_inputs() const {
    return std::ranges::any_of(mine_.calls,
                               [](const ModuleCall& call) { return !call.inputs.empty(); });
  }

  /// Integers that a module was given and that no operator of golden made: tokens, as an embedding takes them.
  [[nodiscard]] std::optional<InputDifference> compare_outer_integers(const ModuleCall& golden,
                                                                      const ModuleCall& mine,
                                                                      bool first_step) const {
    for (const Use& use : mine.inputs) {
      const auto partner = std::ranges::find(golden.inputs, use.slot, &Use::slot);
      if (partner == golden.inputs.end() || partner->producer != kNone ||
          partner->value == kNoValue)
        continue;
      const TensorRecord& ours = mine_.run->records[use.record];
      if (!ours.dtype || is_float(*ours.dtype)) continue;
      const Result<Tensor> g = run::load_tensor(golden_.run->records[partner->record]);
      const Result<Tensor> m = run::load_tensor(ours);
      if (!g || !m || is_float(g->view.dtype) || !(g->view.shape == m->view.shape)) continue;
      if (std::optional<std::string> place = first_difference(g->view, m->view))
        return InputDifference{mine.step, first_step, false,
                               name_of(use.slot) + " of " + mine.module + ' ' + *place};
    }
    return std::nullopt;
  }

  /// The first step behind the choice of other tokens in which the model's first module returned something else: it was
  /// given mine's own choice.
  [[nodiscard]] std::optional<InputDifference> own_tokens(const TokenDivergence& token) const {
    std::map<int64_t, size_t> first_calls;  // by step
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      const ModuleCall& call = mine_.calls[i];
      if (call.step <= token.step || call.outputs.empty() || pairing_.golden_call_of[i] == kNone)
        continue;
      const auto [found, fresh] = first_calls.try_emplace(call.step, i);
      if (!fresh && call.begin < mine_.calls[found->second].begin) found->second = i;
    }
    for (const auto& [step, i] : first_calls) {
      const ModuleCall& mine = mine_.calls[i];
      const ModuleCall& golden = golden_.calls[pairing_.golden_call_of[i]];
      if (golden.outputs.empty()) continue;
      const Result<Tensor> g =
          run::load_tensor(golden_.run->records[golden.outputs.front().record]);
      const Result<Tensor> m = run::load_tensor(mine_.run->records[mine.outputs.front().record]);
      if (!g || !m || !is_other_real(g->view, m->view)) continue;
      return InputDifference{step, false, false,
                             "mine chose token " + std::to_string(token.mine_token) + " in step " +
                                 std::to_string(token.step) + ", golden " +
                                 std::to_string(token.golden_token)};
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<InputDifference> compare(const ModuleCall& golden,
                                                       const ModuleCall& mine,
                                                       bool first_step) const {
    const auto difference = [&](std::string text, bool shape) {
      return InputDifference{mine.step, first_step, shape, std::move(text)};
    };
    for (const Use& use : mine.inputs) {
      const auto partner = std::ranges::find(golden.inputs, use.slot, &Use::slot);
      const TensorRecord& ours = mine_.run->records[use.record];
      if (partner == golden.inputs.end()) {
        if (is_mask(use.slot) && !is_all_ones(ours))
          return difference(name_of(use.slot) + " was not given to golden", false);
        continue;
      }
      const TensorRecord& theirs = golden_.run->records[partner->record];
      if (!theirs.dtype || !ours.dtype || !theirs.shape || !ours.shape) continue;
      const bool real = is_float(*ours.dtype);
      if (real != is_float(*theirs.dtype) || (real && !first_step)) continue;
      if (!(*theirs.shape == *ours.shape))
        return difference(name_of(use.slot) + " has shape " + list_text(ours.shape->span()) +
                              " against golden's " + list_text(theirs.shape->span()),
                          true);
      if (theirs.digest && ours.digest && theirs.dtype == ours.dtype &&
          *theirs.digest == *ours.digest)
        continue;
      const Result<Tensor> g = run::load_tensor(theirs);
      const Result<Tensor> m = run::load_tensor(ours);
      if (!g || !m) continue;
      if (real ? is_other_real(g->view, m->view) : false)
        return difference(name_of(use.slot) + " differs by more than one rounding", false);
      if (real) continue;
      if (std::optional<std::string> place = first_difference(g->view, m->view))
        return difference(name_of(use.slot) + " " + *place, false);
    }
    for (const Use& use : golden.inputs) {
      if (!is_mask(use.slot) ||
          std::ranges::find(mine.inputs, use.slot, &Use::slot) != mine.inputs.end())
        continue;
      if (!is_all_ones(golden_.run->records[use.record]))
        return difference("golden was given " + name_of(use.slot) + ", mine was not", false);
    }
    return std::nullopt;
  }

  static bool is_other_real(const TensorView& golden, const TensorView& mine) {
    const Result<WeightDifference> difference = weight_difference(golden, mine);
    return difference && difference->half_ulp > kWeightLimit;
  }

  const Program& golden_;
  const Program& mine_;
  const Pairing& pairing_;
};

}  // namespace

std::optional<InputDifference> find_input_difference(const Program& golden, const Program& mine,
                                                     const Pairing& pairing,
                                                     const TokenDivergence& token) {
  return InputTest(golden, mine, pairing).find(token);
}

}  // namespace assay::locate
