// SPDX-License-Identifier: Apache-2.0
#include "locate/same_inputs.hpp"

#include <algorithm>
#include <cmath>
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

  [[nodiscard]] std::optional<InputDifference> find() const {
    std::optional<int64_t> first;
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      const ModuleCall& call = mine_.calls[i];
      const size_t partner = pairing_.golden_call_of[i];
      if (!call.module.empty() || partner == kNone) continue;
      if (!first || call.step < *first) first = call.step;
    }
    std::optional<InputDifference> found;
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      const ModuleCall& call = mine_.calls[i];
      const size_t partner = pairing_.golden_call_of[i];
      if (!call.module.empty() || partner == kNone || (found && found->step <= call.step)) continue;
      std::optional<InputDifference> one =
          compare(golden_.calls[partner], call, call.step == *first);
      if (one) found = std::move(one);
    }
    return found;
  }

 private:
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
                                                     const Pairing& pairing) {
  return InputTest(golden, mine, pairing).find();
}

}  // namespace assay::locate
