// SPDX-License-Identifier: Apache-2.0
// A run of a ggml program as the modules of the Hugging Face run that it is compared with, so that
// the golden program can be replayed on its values.   docs/design/ggml-pairs.md, "The verdict"
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compare/gguf_weights.hpp"
#include "engines/ggml/alignment.hpp"
#include "locate/program/engine.hpp"

namespace assay::engines::ggml {

enum class AttentionInput : uint8_t { Query, Key, Value };

class Modules final : public locate::EngineModules {
 public:
  /// hf     captured with operators
  Modules(const run::Run& hf, const run::Run& ggml, const Alignment& alignment);

  /// Rows that ggml did not compute (of the last layer only those with wanted logits) are those of
  /// golden: no module mixes rows behind the attention of the last layer.
  [[nodiscard]] const run::Run& run() const override { return *run_; }
  void describe(locate::Program* mine) const override;
  /// Queries and keys behind the rotary embedding.
  void add_inner_values(locate::Program* golden) const override;
  void complete(const locate::Program& golden, const locate::Program& mine,
                locate::Finding* finding) const override;

  [[nodiscard]] const locate::EnginePlace* place_of(size_t record) const override;
  [[nodiscard]] const std::vector<std::string>& notes() const override { return notes_; }
  [[nodiscard]] const std::string& missing() const override { return missing_; }

 private:
  /// How the graph's attention reads keys and values.
  struct AttentionTypes {
    std::string key_blocks, value_blocks;  // types; empty: no blocks
    bool sums_in_halves = false;           // of values
  };
  void describe_attention(const AttentionTypes& types, locate::Program* mine) const;
  /// Where values begin in a projection that makes queries and keys, too; 0 in others.
  [[nodiscard]] int64_t first_value_channel(size_t record) const;
  /// The most tokens that one query sees.
  [[nodiscard]] int64_t key_count() const;
  void add_tensors(const run::Run& hf, const Alignment& alignment);
  void add_weights(const run::Run& hf);
  /// name   that of golden
  void add_weight(const std::string& name, const Dims& shape, const locate::StoredWeight& stored);

  std::unique_ptr<run::Run> run_;
  std::map<size_t, locate::EnginePlace> places_;
  std::map<std::string, locate::StoredWeight, std::less<>> weights_;  // by Hugging Face's name
  std::string lonely_weight_;  // the first matrix of the file without such a name
  std::vector<std::pair<size_t, std::string>> inner_;  // record of golden, name of its place
  std::map<size_t, AttentionInput> attention_inputs_;  // by record
  std::vector<std::string> notes_;
  std::string missing_;
};

}  // namespace assay::engines::ggml
