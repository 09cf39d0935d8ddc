// SPDX-License-Identifier: Apache-2.0
// Source: Ascend/msit 8.2: msit/components/llm/msit_llm/compare
#include "vendor/msit/comparison.hpp"

#include <cmath>

#include "tensor/dtype.hpp"
#include "vendor/msit/pairs.hpp"

namespace assay::vendor::msit {
namespace {

using compare::Comparison;
using compare::Row;
using pair::CheckpointSide;
using pair::WeightPair;

std::string replace_all(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// My int8 weights whose names end in "weight", with weight_offset and weight_scale beside them.
std::vector<WeightPair> weight_pairs(const CheckpointSide& golden, CheckpointSide* mine) {
  std::vector<WeightPair> out;
  for (size_t i = 0; i < golden.weights().size(); ++i) {
    const std::string& name = golden.weights()[i].name;
    if (!name.ends_with("weight")) continue;
    const auto found = mine->find(name);
    if (!found || mine->record(*found).dtype != DType::Int8) continue;
    const auto offset = mine->find(replace_all(name, "weight", "weight_offset"));
    const auto scale = mine->find(replace_all(name, "weight", "weight_scale"));
    if (!offset || !scale) continue;
    mine->set_parts(*found, *scale, *offset);
    out.push_back({i, *found, pair::Rule::EqualNames, {}});
  }
  return out;
}

// What the original ended with an exception, and therefore never had as a row.
void drop_failed_rows(Comparison* comparison) {
  std::vector<Row>& rows = comparison->sheets[0].rows;
  std::vector<pair::RecordPair>& pairs = comparison->sheets[0].matching.pairs;
  size_t kept = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].metrics) {
      comparison->warnings.push_back(rows[i].label + ": " + rows[i].fail_reason);
      continue;
    }
    if (kept != i) {
      rows[kept] = std::move(rows[i]);
      pairs[kept] = pairs[i];
    }
    ++kept;
  }
  rows.resize(kept);
  pairs.resize(kept);
}

// The original left out rows whose only reason is the number of values: one with NaN beside it
// stayed.
bool fails_by_count_alone(const Row& row) {
  return row.differs_in_count() && std::isfinite(row.golden.l2_norm) &&
         std::isfinite(row.mine.l2_norm);
}

// The original removed rows from the list it was walking over, so the row after a removed one was
// never looked at. Scripts may count on the rows that this let through.
void filter_rows(std::vector<Row>* rows) {
  for (Row& row : *rows) row.filtered = fails_by_count_alone(row);
  bool skip = false;
  for (Row& row : *rows) {
    if (row.filtered) continue;
    if (skip) {
      skip = false;
      continue;
    }
    if ((row.golden.dtype == "torch.int8") != (row.mine.dtype == "torch.int8")) {
      row.filtered = true;
      skip = true;
    }
  }
}

// CANN's reader widened bfloat16 before msit saw it.
void name_as_decoded(const run::Run& run, compare::SideSummary* side) {
  if (run.has(run::Trait::GeOperators) && side->dtype == torch_name(DType::BFloat16))
    side->dtype = torch_name(DType::Float32);
}

void finish(const run::Run& golden, const run::Run& mine, Comparison* comparison) {
  if (comparison->weights) drop_failed_rows(comparison);
  // Of two files the original printed the row and wrote no csv that it could be missing in.
  const bool two_files =
      !comparison->weights && golden.has(run::Trait::OneFile) && mine.has(run::Trait::OneFile);
  for (compare::Sheet& sheet : comparison->sheets) {
    for (Row& row : sheet.rows) {
      if (!row.metrics) continue;
      name_as_decoded(golden, &row.golden);
      name_as_decoded(mine, &row.mine);
    }
    if (!two_files) filter_rows(&sheet.rows);
  }
}

}  // namespace

compare::Conventions conventions() {
  return {.rules = measure::MetricRules::Float32,
          .trusting = true,
          .pairs = &pair_rules(),
          .weight_pairs = weight_pairs,
          .finish = finish};
}

}  // namespace assay::vendor::msit
