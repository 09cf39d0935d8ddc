// SPDX-License-Identifier: Apache-2.0
// A run of a ggml program as the modules of the Hugging Face run that it is compared with, so that golden's program can be
// replayed on its values.   docs/localisation.md, "Across engines"
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compare/gguf_weights.hpp"
#include "locate/program/program.hpp"
#include "pair/ggml_alignment.hpp"

namespace assay::locate {

/// Where a tensor of a module is in the captured graph.
struct GgmlPlace {
  size_t record = kNone;           // of the ggml run, the first of several graphs
  size_t golden = kNone;           // of the Hugging Face run
  std::string node;                // "Qcur-3 mul_mat"
  std::vector<int64_t> rows = {};  // of golden's tensor, that ggml computed; empty: all
};

enum class AttentionInput : uint8_t { Query, Key, Value };

class GgmlModules {
 public:
  /// hf     captured with operators
  GgmlModules(const run::Run& hf, const run::Run& ggml, const pair::EngineAlignment& alignment);

  /// The ggml run's records and operators as they are, and behind them the tensors of modules and the weights of the
  /// model's file, by Hugging Face's names, shapes, steps and orders of rows and channels.
  ///
  /// Rows that ggml did not compute (of the last layer only those with wanted logits) are golden's: no module mixes
  /// rows behind the attention of the last layer.
  [[nodiscard]] const run::Run& run() const { return *run_; }
  /// Marks what kernels do to values between the records: types of stored weights, of keys and values.
  void describe(Program* mine) const;
  /// Adds golden's values that are no module's output, but a node's: queries and keys behind the rotary embedding.
  void add_inner_values(Program* golden) const;

  /// Of a record behind the ggml run's own; nullptr for those.
  [[nodiscard]] const GgmlPlace* place_of(size_t record) const;
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// Tokens of golden that mine did not compute; empty: none.
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  /// How the graph's attention reads keys and values.
  struct AttentionTypes {
    std::string key_blocks, value_blocks;  // types; empty: no blocks
    bool sums_in_halves = false;           // of values
  };
  void describe_attention(const AttentionTypes& types, Program* mine) const;
  /// Where values begin in a projection that makes queries and keys, too; 0 in others.
  [[nodiscard]] int64_t first_value_channel(size_t record) const;
  /// The most tokens that one query sees.
  [[nodiscard]] int64_t key_count() const;
  void add_tensors(const run::Run& hf, const pair::EngineAlignment& alignment);
  void add_weights(const run::Run& hf);
  /// name   golden's
  void add_weight(const std::string& name, const Dims& shape, const StoredWeight& stored);

  std::unique_ptr<run::Run> run_;
  std::map<size_t, GgmlPlace> places_;
  std::map<std::string, StoredWeight, std::less<>> weights_;  // by Hugging Face's name
  std::string lonely_weight_;  // the first matrix of the file without such a name
  std::vector<std::pair<size_t, std::string>> inner_;  // golden's record, name of its place
  std::map<size_t, AttentionInput> attention_inputs_;  // by record
  std::vector<std::string> notes_;
  std::string missing_;
};

}  // namespace assay::locate
