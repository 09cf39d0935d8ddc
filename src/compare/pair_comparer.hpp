// SPDX-License-Identifier: Apache-2.0
// One pair of records becomes a row.
#pragma once
#include <memory>
#include <string>

#include "compare/compare.hpp"
#include "compare/pictures.hpp"

namespace assay::compare {

/// Of a golden tensor and its partner.
struct SideStats {
  stats::TensorStats golden, mine;
};

/// Larger is worse; 0 for rows that show no difference at all.
[[nodiscard]] double severity(const Row& row);
/// Sets the outcome of a row by a limit.
void judge(const Limit& limit, Row* row);
/// Measures two tensors; what describes them in the row is replaced.
/// pooled    where not null: becomes the errors by place
/// returns   of each side by itself: golden, mine
SideStats compare_views(const TensorView& golden, const TensorView& mine,
                        const CompareOptions& options, int jobs, const Limit& limit, Row* row,
                        measure::PooledErrors* pooled = nullptr);
[[nodiscard]] const run::TensorRecord& golden_record(const run::Run& golden, const run::Run& mine,
                                                     const pair::RecordPair& pair);

/// Compares pairs of two runs; safe to call from several threads.
class PairComparer {
 public:
  /// pictures   null: none are made
  PairComparer(const run::Run& golden, const run::Run& mine, const CompareOptions& options,
               PictureKeeper* pictures = nullptr);
  ~PairComparer();

  /// number   of the pair, in the order of execution
  [[nodiscard]] Row compare(const pair::Matching& matching, const pair::RecordPair& pair,
                            size_t number, int jobs);
  /// The row of a pair that was not compared.
  [[nodiscard]] Row refuse(const pair::RecordPair& pair, const std::string& why) const;
  /// What comparing a pair will probably read; exact only for records that know their size.
  [[nodiscard]] uint64_t payload_bytes(const pair::RecordPair& pair) const;
  /// Of payloads that were read so far, of both sides.
  [[nodiscard]] uint64_t compared_bytes() const;

 private:
  class Comparer;
  std::unique_ptr<Comparer> comparer_;
};

}  // namespace assay::compare
