// SPDX-License-Identifier: Apache-2.0
// What GGUF files call the parameters of a Hugging Face model, as data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay::pair {

/// Whether channels come in heads of queries or of keys. Where rope turns neighbours, the converter
/// has put these in another order: `gguf_channel`. Elsewhere they stand as in Hugging Face.
enum class Heads : std::uint8_t { None, Queries, Keys };

struct GgufName {
  std::string name;           // "blk.3.attn_q.weight"
  Heads heads = Heads::None;  // order of the rows

  bool operator==(const GgufName&) const = default;
};

/// GGUF's name of a parameter ("model.layers.3.self_attn.q_proj.weight", with any prefix before
/// `model.`); nothing when the table does not know it.
[[nodiscard]] std::optional<GgufName> gguf_name_of(std::string_view parameter);

/// The parameters that a tensor of a GGUF file may be, the usual name first; empty when the table
/// does not know it. One expert's matrix is `blk.3.ffn_gate.7.weight`, as files had it before the
/// experts were stacked.
[[nodiscard]] std::vector<std::string> parameters_of(std::string_view gguf_name);

/// GGUF's names of the tensors that hold the experts of a parameter with all of a layer's
/// ("model.layers.3.mlp.experts. gate_up_proj", [experts, rows, columns]), in order of its rows:
/// one list for each way files have it, empty for other parameters.
[[nodiscard]] std::vector<std::vector<std::string>> gguf_experts_of(std::string_view parameter);

/// Where channel (or row) i of Hugging Face stands when rope turns neighbours: within each head i
/// goes to 2i, and i + d/2 to 2i + 1.
/// head_size   d, even and positive
[[nodiscard]] std::int64_t gguf_channel(std::int64_t channel, std::int64_t head_size);

/// The number that stands for `#` of the pattern in the text; -1 for a pattern without one, nothing
/// where the text is another.
/// prefixed  the text may have more in front, up to a dot or slash
[[nodiscard]] std::optional<std::int64_t> match_numbered(std::string_view pattern,
                                                         std::string_view text, bool prefixed);
/// The pattern with the number in place of `#`.
[[nodiscard]] std::string fill_number(std::string_view pattern, std::int64_t number);

}  // namespace assay::pair
