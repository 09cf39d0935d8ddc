// SPDX-License-Identifier: Apache-2.0
#include "locate/row_verdicts.hpp"

#include <cmath>
#include <tuple>

namespace assay::locate {
namespace {

using compare::Comparison;
using compare::Row;
using compare::RowJudgement;
using compare::RowVerdict;

constexpr double kOutside = 4;     // k_out: times one rounding until a difference is worth a word
constexpr double kAmplifying = 2;  // k_A: healthy operators stay below 1.6

// Relative L2 of one rounding to nearest of spread-out values, 0.425 * 2^-(p + 1).   compare 8.4
double one_rounding(DType dtype) {
  switch (dtype) {
    case DType::BFloat16:
      return 0.425 * std::ldexp(1.0, -8);
    case DType::Float16:
      return 0.425 * std::ldexp(1.0, -11);
    case DType::Float64:
      return 0.425 * std::ldexp(1.0, -53);
    default:
      return 0.425 * std::ldexp(1.0, -24);
  }
}

struct Difference {
  double error = NAN;   // relative L2
  double golden = NAN;  // L2 norm
};

Difference difference_of(const Row& row) {
  if (!row.comparable) return {};
  if (row.metrics) return {row.metrics->relative_euclidean_distance, row.metrics->golden.l2_norm};
  if (row.summary) return {row.summary->l2_norm.relative, row.golden.l2_norm};
  return {};
}

using Place = std::tuple<int, int64_t, std::string_view, uint32_t>;  // one execution of one node
Place place_of_record(const run::TensorRecord& record) {
  return {record.rank, record.step, record.node, record.call};
}

// Inputs of one execution, pooled: sqrt(sum |m - g|^2 / sum |g|^2).
struct Pool {
  double error = 0, golden = 0;
  bool finite = true;
  [[nodiscard]] double value() const { return golden > 0 ? std::sqrt(error / golden) : NAN; }
};

class Judge {
 public:
  Judge(const Verdict& verdict, const run::Run& mine) : verdict_(verdict), mine_(mine) {
    for (size_t i = 0; i < mine.records.size(); ++i)
      by_order_.emplace(std::pair(mine.records[i].rank, mine.records[i].order), i);
  }

  void judge(compare::Sheet* sheet) {
    pools_.clear();
    for (const Row& row : sheet->rows) pool(row);
    for (Row& row : sheet->rows) judge(&row);
  }

 private:
  size_t record_of(const Row& row) const {
    const auto found = by_order_.find({row.rank, row.order});
    return found == by_order_.end() ? kNone : found->second;
  }

  void pool(const Row& row) {
    const size_t index = record_of(row);
    if (index == kNone || mine_.records[index].role == run::Role::Output) return;
    const Difference difference = difference_of(row);
    Pool& pool = pools_[place_of_record(mine_.records[index])];
    if (has_non_finite(row)) pool.finite = false;
    if (!std::isfinite(difference.error) || !std::isfinite(difference.golden)) return;
    pool.error += std::pow(difference.error * difference.golden, 2);
    pool.golden += std::pow(difference.golden, 2);
  }

  static bool has_non_finite(const Row& row) {
    return row.metrics && row.metrics->nan_only_in_mine + row.metrics->inf_only_in_mine +
                                  row.metrics->nan_in_both + row.metrics->inf_in_both >
                              0;
  }

  void judge(Row* row) const {
    RowVerdict& out = row->verdict;
    out.err_out = difference_of(*row).error;
    const size_t index = record_of(*row);
    if (index == kNone) return;
    const run::TensorRecord& record = mine_.records[index];
    const auto pool = pools_.find(place_of_record(record));
    const bool known_inputs = record.role == run::Role::Output && pool != pools_.end();
    if (known_inputs) out.err_in = pool->second.value();
    if (out.err_in > 0) out.amplification = out.err_out / out.err_in;
    if (const auto own = verdict_.records.find(index); own != verdict_.records.end()) {
      out.err_own = own->second.err_own;
      out.noise_floor = own->second.noise_floor;
      out.own_source = own->second.own_source;
      out.confidence = own->second.confidence;
      out.verdict = own->second.verdict;
    }
    if (out.verdict == RowJudgement::None || out.verdict == RowJudgement::Noise)
      out.verdict = seen_from_outside(*row, record, known_inputs && !pool->second.finite);
    if (out.confidence.empty() && out.verdict != RowJudgement::None)
      out.confidence = confidence_name(Confidence::Low);
  }

  // What golden's values alone tell; the first rule that holds.   compare 8.3
  RowJudgement seen_from_outside(const Row& row, const run::TensorRecord& record,
                                 bool inputs_not_finite) const {
    if (!row.comparable)
      return row.fail_reason.empty() ? RowJudgement::None : RowJudgement::Structural;
    const bool real = !record.dtype || is_float(*record.dtype);
    if (!real) return row.identical ? RowJudgement::Noise : RowJudgement::Structural;
    if (row.metrics && row.metrics->nan_only_in_mine + row.metrics->inf_only_in_mine > 0)
      return inputs_not_finite || record.role != run::Role::Output ? RowJudgement::NanInherited
                                                                   : RowJudgement::NanOrigin;
    const double floor = one_rounding(record.dtype.value_or(DType::Float32));
    const RowVerdict& numbers = row.verdict;
    if (!(numbers.err_out > kOutside * floor)) return RowJudgement::Noise;
    if (numbers.amplification > kAmplifying && numbers.err_in > floor)
      return RowJudgement::Amplified;
    if (numbers.err_in > kOutside * floor) return RowJudgement::Inherited;
    return RowJudgement::Drift;
  }

  const Verdict& verdict_;
  const run::Run& mine_;
  std::map<std::pair<int, uint64_t>, size_t> by_order_;
  std::map<Place, Pool> pools_;
};

}  // namespace

void judge_rows(const Verdict& verdict, const run::Run& mine, Comparison* comparison) {
  Judge judge(verdict, mine);
  for (compare::Sheet& sheet : comparison->sheets) judge.judge(&sheet);
  comparison->has_verdicts = true;
}

}  // namespace assay::locate
