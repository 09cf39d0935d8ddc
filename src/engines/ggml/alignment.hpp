// SPDX-License-Identifier: Apache-2.0
// Where a run of a ggml program holds the tensors of a Hugging Face run: which graphs computed
// which tokens, which node
// is which module, and in what order rows and channels stand.   docs/design/ggml-pairs.md
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engines/ggml/node_names.hpp"
#include "pair/operand.hpp"
#include "run/run.hpp"

namespace assay::engines::ggml {

/// True for queries and keys behind the rotary embedding, which stand in no module of their own.
[[nodiscard]] inline bool is_rotated(ModulePlace place) {
  return place == ModulePlace::RotatedQuery || place == ModulePlace::RotatedKey;
}

/// True for tensors with a row for each token and expert.
[[nodiscard]] inline bool is_of_experts(ModulePlace place) {
  return place == ModulePlace::ExpertGate || place == ModulePlace::ExpertUp ||
         place == ModulePlace::ExpertProduct || place == ModulePlace::ExpertDown;
}

/// Tokens that one step of Hugging Face and one or several graphs of ggml computed.
struct TokenSpan {
  int64_t hf_step = 0;
  std::vector<int64_t> ggml_steps = {};  // graphs, in order; several for a prompt that was cut
  int64_t tokens = 0;                    // 0: not known
  int64_t sequences = 1;                 // of the step
  /// Several sequences in one graph: of each token of the graphs, one graph after the other, which
  /// of the step's it is (of a batch one sequence after the other), -1 for none; empty: they are
  /// the step's, in order.
  std::vector<int64_t> token_of = {};
};

/// One tensor of the Hugging Face run and what holds the same values in the ggml run.
struct TensorPair {
  size_t hf = 0;                  // record
  std::vector<size_t> ggml = {};  // records of one node, one a graph, in order of tokens
  ModuleTensor tensor = {};
  std::string node = {};  // "Qcur-3 mul_mat"
  size_t span = 0;        // index into Alignment::spans

  /// Rows (tokens) of each side that the other holds, too; all of them in order when `all_rows`.
  bool all_rows = true;
  std::vector<int64_t> hf_rows = {};
  std::vector<int64_t> ggml_rows = {};
  int64_t hf_row_count = 0;  // rows of the Hugging Face tensor
  int64_t row_count = 0;     // rows of all ggml records together

  /// Cells of the cache that hold the tokens so far, in their order; empty: no window of a cache.
  std::vector<int64_t> cells = {};
  bool cells_last = false;  // of a cache that lies transposed: [heads, channels, cells]

  int64_t head_size = 0;  // > 0: channels of each head stand in the order of rope's neighbours
  /// Channels of a fused tensor that are this one's, [first, last); last 0: all.
  int64_t hf_first = 0, hf_last = 0;
  int64_t ggml_first = 0, ggml_last = 0;

  /// How the two become tensors of one shape, [rows in common, ...].
  [[nodiscard]] pair::Recipe hf_recipe(const run::Run& hf_run) const;
  [[nodiscard]] pair::Recipe ggml_recipe(const run::Run& hf_run, const run::Run& ggml_run) const;
};

struct Alignment {
  std::vector<TokenSpan> spans;   // in order
  std::vector<TensorPair> pairs;  // in order of the Hugging Face run's records
  /// Tensors of modules that no node holds, with the reason.
  std::vector<std::pair<size_t, std::string>> hf_alone;
  std::vector<std::string> notes;  // one sentence each
  /// Tokens of Hugging Face, among several sequences or in a cache, that no graph computed, with
  /// their places; empty: none.
  std::string missing;
};

/// steps   (Hugging Face, ggml) that the user says belong together; empty: by position and id of
///         their tokens
/// errors  Usage: no tokens in common
[[nodiscard]] Result<Alignment> align(const run::Run& hf, const run::Run& ggml,
                                      const std::vector<std::pair<int64_t, int64_t>>& steps = {});

}  // namespace assay::engines::ggml
