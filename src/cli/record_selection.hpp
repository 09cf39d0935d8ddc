// SPDX-License-Identifier: Apache-2.0
// Which records of a run does the user mean?
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "run/record_name.hpp"

namespace assay::cli {

/// What a record is called on the screen: "model.layers.0.mlp output 0", "model.norm.weight
/// weight".
[[nodiscard]] std::string record_label(const run::TensorRecord& record);
/// The same; the tensors of flat folders and files have no role: "sub/file", "file member".
[[nodiscard]] std::string record_label(const run::Run& run, const run::TensorRecord& record);

/// Inclusive ranges of numbers: "0", "0,2-4", "all".
struct NumberSet {
  std::vector<std::pair<int64_t, int64_t>> ranges;  // empty: every number
  [[nodiscard]] bool contains(int64_t number) const;
};
/// errors  Usage
[[nodiscard]] Result<NumberSet> parse_number_set(const std::string& text);

struct RecordFilter {
  // glob over node or run::record_name(); a name without wildcards also matches as a tail: "norm"
  std::string name;
  NumberSet steps;
  NumberSet ranks;
  bool weights = true;
};

/// Indices into run.records, in their order. A name that fits a node or record exactly wins over
/// names that only end with it.
[[nodiscard]] std::vector<size_t> select_records(const run::Run& run, const RecordFilter& filter);

/// "; did you mean model.norm?" behind the sentence that no record has this name; empty where none is
/// near.
[[nodiscard]] std::string guess(const run::Run& run, const std::string& name);

}  // namespace assay::cli
