// SPDX-License-Identifier: Apache-2.0
// Which run counts of an ATB dump are which tokens: the prompt's model and the decoder's count
// their runs separately, and a server warms up before the first prompt.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace assay::pair {

/// Token id of a warm-up run, which has none.
inline constexpr int64_t kWarmupToken = -2;

/// A part of a step folder that is one token: the nodes of one model.
struct TokenPlace {
  int64_t token = 0;
  int64_t step = 0;
  int part = 0;  // index of the model's tree
};

/// The models (parts) that ran in each step folder.
using StepParts = std::map<int64_t, std::set<int>>;

enum class TokenTable : uint8_t {
  Plain,  // folder n is token n
  // no warm-up: folder 0 holds token 0 (prompt) and token 1 (decoder), folder n token n + 1
  Shifted,
  WarmUp,  // folder 0 is the warm-up, folder 1 holds tokens 0 and 1, folder n token n
  // Only the prompt's model warmed up: its folder 1 holds token 0, the decoder's folder n token n +
  // 1
  PromptWarmUp,
};
[[nodiscard]] std::string table_text(TokenTable table);  // a sentence for people

/// A prompt's model and a decoder's.
[[nodiscard]] bool has_two_models(const StepParts& steps);

/// From the folders alone, and from whether the prompt in folder 0 is the one in folder 1.
/// prompt_in_step   1: what is known says that folder 1 holds the prompt that golden saw, 0: folder
///                  0 does, -1: nothing is known
/// decoder_goes_on  1: the decoder's folder 1 is the step after its folder 0, 0: it is not, -1:
///                  nothing is known
[[nodiscard]] TokenTable detect_token_table(const StepParts& steps, int prompt_in_step,
                                            int decoder_goes_on);

/// Every part of every step with its token, in order of token, step, part.
[[nodiscard]] std::vector<TokenPlace> token_places(const StepParts& steps, TokenTable table);

}  // namespace assay::pair
