// SPDX-License-Identifier: Apache-2.0
// The mask and the tokens are read from the inputs of the root module. The mask also covers tokens
// in the cache, so places are counted from the end.
#include "locate/program/padding.hpp"

#include <algorithm>

namespace assay::locate {
namespace {

std::string_view name_of(std::string_view slot) { return slot.substr(slot.rfind('.') + 1); }

int64_t product(const Dims& shape, size_t first, size_t end) {
  int64_t count = 1;
  for (size_t i = first; i < end; ++i) count *= shape[i];
  return count;
}

}  // namespace

bool is_tokens(std::string_view slot) {
  const std::string_view name = name_of(slot);
  return name == "input_ids" || name == "inputs_embeds" || name == "0";
}

bool is_mask(std::string_view slot) { return slot.find("mask") != std::string_view::npos; }

Padding::Padding(const Program& program, int64_t step) {
  std::optional<reference::Whole> ids;
  for (const ModuleCall& call : program.calls) {
    if (!call.module.empty() || call.step != step) continue;
    for (const Use& use : call.inputs) {
      const run::TensorRecord& record = program.run->records[use.record];
      if (is_tokens(use.slot) && record.shape && record.shape->size() >= 2)
        tokens_ = (*record.shape)[1];
      if (is_tokens(use.slot) && record.dtype && is_integer(*record.dtype)) {
        if (const Result<Tensor> tokens = load_use(program, use)) {
          if (auto whole = reference::whole(tokens->view)) ids = *std::move(whole);
        }
      }
      if (name_of(use.slot) != "attention_mask") continue;
      const Result<Tensor> mask = load_use(program, use);
      if (!mask || mask->view.shape.size() != 2 || is_float(mask->view.dtype)) continue;
      if (auto values = reference::whole(mask->view)) {
        sequences_ = mask->view.shape[0];
        seen_ = mask->view.shape[1];
        values_.assign(values->values.begin(), values->values.end());
      }
    }
  }
  if (tokens_ == 0 || tokens_ > seen_) tokens_ = seen_;
  is_certain_ = ids && hides_one_token_id(*ids);
}

std::map<int64_t, Padding> Padding::of_steps(const Program& program) {
  std::map<int64_t, Padding> paddings;
  for (const ModuleCall& call : program.calls)
    if (call.module.empty()) paddings.try_emplace(call.step, program, call.step);
  const bool zeros_hide = std::ranges::any_of(
      paddings, [](const auto& padding) { return padding.second.shows_decoded(); });
  for (auto& [step, padding] : paddings) padding.is_certain_ |= zeros_hide;
  return paddings;
}

bool Padding::shows_decoded() const {
  if (values_.empty() || tokens_ == seen_ || std::ranges::find(values_, 0) == values_.end())
    return false;
  for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
    for (int64_t token = 1; token <= tokens_; ++token)
      if (holds(sequence, token)) return false;
  }
  return true;
}

bool Padding::hides_one_token_id(const reference::Whole& tokens) const {
  if (tokens.values.size() != static_cast<size_t>(sequences_ * tokens_)) return false;
  std::optional<int64_t> filler;
  for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
    for (int64_t token = 0; token < tokens_; ++token) {
      if (!holds(sequence, tokens_ - token)) continue;
      const int64_t id = tokens.values[static_cast<size_t>(sequence * tokens_ + token)];
      if (filler.value_or(id) != id) return false;
      filler = id;
    }
  }
  return true;
}

bool Padding::holds(int64_t sequence, int64_t from_end) const {
  const int64_t at = (sequence + 1) * seen_ - from_end;
  return from_end <= seen_ && at < static_cast<int64_t>(values_.size()) &&
         values_[static_cast<size_t>(at)] == 0;
}

bool Padding::hides_any() const {
  for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
    for (int64_t token = 1; token <= tokens_; ++token)
      if (holds(sequence, token)) return true;
  }
  return false;
}

std::optional<RowsOfTokens> Padding::shown_rows(const Dims& shape) const {
  if (values_.empty() || !hides_any()) return std::nullopt;
  const size_t axes = shape.size();
  size_t axis = 0;
  int64_t of_sequence = 1;  // rows of tokens that a sequence has one after the other
  if (axes >= 3 && shape[0] == sequences_ && shape[1] == tokens_) {
    axis = 1;
  } else if (axes >= 4 && shape[0] == sequences_ && shape[2] == tokens_) {
    axis = 2;
    of_sequence = shape[1];
  } else if (axes < 2 || shape[0] != sequences_ * tokens_) {
    return std::nullopt;
  }
  RowsOfTokens shown{{}, product(shape, axis + 1, axes)};
  const int64_t count = product(shape, 0, axis + 1);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t sequence = row / (tokens_ * of_sequence);
    if (!holds(sequence, tokens_ - row % tokens_)) shown.rows.push_back(row);
  }
  if (shown.rows.empty()) return std::nullopt;
  return shown;
}

}  // namespace assay::locate
