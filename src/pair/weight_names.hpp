// SPDX-License-Identifier: Apache-2.0
// What the names in two checkpoints say: which records make one weight, and which weights belong
// together.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pair/rule.hpp"
#include "run/run.hpp"

namespace assay::pair {

/// How a weight stands in a file; layouts and their sources: docs/commands/compare-weights.md
enum class Coding : uint8_t {
  Plain,              // numbers as they stand
  Codes,              // one integer or 8-bit float an element, or int4 pairs in bytes
  CompressedTensors,  // `weight_packed`: int32 words of offset-binary codes along the last axis
  QWeight,            // `qweight` of GPTQ ([in / codes a word, out]) or AWQ ([in, out / 8])
  Levels,  // two numbers of nf4's levels a byte, the first in the higher half; a scale a block
};

/// One weight as a model knows it, and the records it is stored in.
struct Weight {
  std::string name;   // "model.layers.0.mlp.up_proj.weight", also for a `qweight`
  size_t record = 0;  // its values or codes
  Coding coding = Coding::Plain;
  std::optional<size_t> scale;  // these are records, too
  std::optional<size_t> zero;
  std::optional<size_t> group_index;
  std::optional<size_t> unpacked_shape;
  double scale_factor = 1;      // of the stored scale
  std::optional<size_t> owner;  // this is a scale or the like of that weight
};

/// What a module of a program calls the parts of a weight in codes, where no library's names tell.
struct CodeNames {
  std::string weight;              // of the model: "weight"
  std::string codes, scale, zero;  // zero empty: there is none
  Coding coding = Coding::Codes;
};

/// One side of a comparison of weights: a Weight for each record, at the same index.
class CheckpointSide {
 public:
  /// run         outlives this
  /// as_stored   every record by itself, whatever stands beside it
  /// own         names beside those of libraries
  CheckpointSide(const run::Run& run, bool as_stored, std::optional<CodeNames> own = {});
  /// Makes an int8 weight of a record that was taken as it is stored.
  void set_parts(size_t weight, size_t scale, size_t zero);

  [[nodiscard]] const std::vector<Weight>& weights() const { return weights_; }
  [[nodiscard]] const run::TensorRecord& record(size_t index) const { return run_.records[index]; }
  [[nodiscard]] const run::TensorRecord& record_of(const Weight& weight) const {
    return run_.records[weight.record];
  }
  /// Index of the weight of that name.
  [[nodiscard]] std::optional<size_t> find(std::string_view name) const;
  /// Of run::Run::properties; empty when there is none.
  [[nodiscard]] std::string property(const std::string& name) const;

 private:
  [[nodiscard]] std::optional<size_t> find_any(std::string_view base,
                                               std::initializer_list<const char*> endings) const;
  [[nodiscard]] Weight weight_of(size_t index) const;

  [[nodiscard]] std::optional<Weight> own_weight_of(size_t index) const;

  const run::Run& run_;
  std::optional<CodeNames> own_;
  std::map<std::string, size_t, std::less<>> records_;
  std::vector<Weight> weights_;                       // in the order of the records
  std::map<std::string, size_t, std::less<>> names_;  // to the index of a weight
};

/// True when both are stored the same way. Then they are equal or not by their codes, and their
/// scales by themselves.
[[nodiscard]] bool are_stored_alike(const CheckpointSide& golden_side, const Weight& golden,
                                    const CheckpointSide& mine_side, const Weight& mine);

struct WeightPair {
  size_t golden = 0;  // of CheckpointSide::weights()
  size_t mine = 0;
  Rule rule = Rule::None;
  std::string note;
};

class WeightPairing {
 public:
  /// Both sides outlive this.
  WeightPairing(const CheckpointSide& golden, const CheckpointSide& mine);

  /// In the order of golden's records.
  [[nodiscard]] std::vector<WeightPair> pairs() const;
  [[nodiscard]] bool is_matched_golden(size_t i) const { return partner_[i].has_value(); }
  [[nodiscard]] bool is_matched_mine(size_t i) const { return golden_of_[i].has_value(); }
  /// True for a scale or the like that took part in unpacking its weight, or whose weight has no
  /// partner itself.
  [[nodiscard]] bool is_used_up_golden(size_t i) const;
  [[nodiscard]] bool is_used_up_mine(size_t i) const;

 private:
  void pair(size_t golden, size_t mine, Rule rule, std::string note);
  [[nodiscard]] std::map<std::string, size_t> count_prefixes(bool from_golden) const;
  void match_by_prefix();
  void match_tied_head();

  const CheckpointSide& golden_;
  const CheckpointSide& mine_;
  std::vector<std::optional<WeightPair>> partner_;  // by golden weight
  std::vector<std::optional<size_t>> golden_of_;    // by my weight
  std::optional<WeightPair> extra_;                 // my lm_head against golden's embedding
};

}  // namespace assay::pair
