// SPDX-License-Identifier: Apache-2.0
// Which models ran in folders 0 and 1 decides how the folders are counted.
#include "pair/tokens.hpp"

#include <algorithm>
#include <tuple>

namespace assay::pair {
namespace {

bool has(const StepParts& steps, int64_t step, int part) {
  const auto found = steps.find(step);
  return found != steps.end() && found->second.contains(part);
}

bool has_decoder(const StepParts& steps, int64_t step) {
  const auto found = steps.find(step);
  return found != steps.end() &&
         std::any_of(found->second.begin(), found->second.end(), [](int part) { return part > 0; });
}

int64_t token_of(TokenTable table, int64_t step, int part) {
  switch (table) {
    case TokenTable::Plain:
      break;
    case TokenTable::Shifted:
      return part == 0 ? step : step + 1;
    case TokenTable::WarmUp:
      if (step == 0) return kWarmupToken;
      if (step == 1) return part == 0 ? 0 : 1;
      break;
    case TokenTable::PromptWarmUp:
      if (part > 0) return step + 1;
      return step == 0 ? kWarmupToken : step - 1;
  }
  return step;
}

}  // namespace

std::string table_text(TokenTable table) {
  switch (table) {
    case TokenTable::Plain:
      break;
    case TokenTable::Shifted:
      return "no warm-up: folder 0 holds steps 0 and 1, folder n step n + 1";
    case TokenTable::WarmUp:
      return "folder 0 is a warm-up: folder 1 holds steps 0 and 1, folder n step n";
    case TokenTable::PromptWarmUp:
      return "folder 0 of the prompt's model is a warm-up: its folder 1 is step 0, the decoder's "
             "folder n "
             "step n + 1";
  }
  return "folder n is step n";
}

bool has_two_models(const StepParts& steps) {
  return std::ranges::any_of(steps,
                             [&](const auto& step) { return has_decoder(steps, step.first); });
}

TokenTable detect_token_table(const StepParts& steps, int prompt_in_step, int decoder_goes_on) {
  if (!has_two_models(steps)) return TokenTable::Plain;
  const bool prompt_0 = has(steps, 0, 0);
  const bool decoder_0 = has_decoder(steps, 0);
  const bool prompt_1 = has(steps, 1, 0);
  if (prompt_0 && decoder_0) {
    if (!prompt_1 || prompt_in_step != 1) return TokenTable::Shifted;
    return decoder_goes_on == 1 ? TokenTable::PromptWarmUp : TokenTable::WarmUp;
  }
  if (prompt_0) return prompt_1 ? TokenTable::WarmUp : TokenTable::Plain;
  if (decoder_0) return TokenTable::Shifted;
  // The dump begins later; a prompt in folder 1 means that folder 0 would have been a warm-up.
  return prompt_1 ? TokenTable::WarmUp : TokenTable::Shifted;
}

std::vector<TokenPlace> token_places(const StepParts& steps, TokenTable table) {
  std::vector<TokenPlace> places;
  for (const auto& [step, parts] : steps) {
    for (const int part : parts) places.push_back({token_of(table, step, part), step, part});
  }
  std::sort(places.begin(), places.end(), [](const TokenPlace& a, const TokenPlace& b) {
    return std::tuple(a.token, a.step, a.part) < std::tuple(b.token, b.step, b.part);
  });
  return places;
}

}  // namespace assay::pair
