// SPDX-License-Identifier: Apache-2.0
// First pools the differences of each execution's inputs, then judges row by row: by what the
// verdict says of the record, else by rules on golden's values.  docs/localisation.md, "Columns of
// the table"
#include "report/judged_rows.hpp"

#include <cmath>
#include <tuple>

#include "locate/noise/record_distance.hpp"

namespace assay::report {
namespace {

using compare::Row;
using locate::RowJudgement;

constexpr double kOutside = 4;     // k_out: times one rounding until a difference is worth a word
constexpr double kAmplifying = 2;  // k_A: healthy operators stay below 1.6

struct Difference {
  double error = NAN;   // relative L2
  double golden = NAN;  // L2 norm
};

Difference difference_of(const Row& row) {
  if (!row.comparable) return {};
  if (row.metrics) return {row.metrics->relative_euclidean_distance, row.golden_norm};
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
  Judge(const locate::Verdict& verdict, const run::Run& mine, const compare::Sheet& sheet)
      : verdict_(verdict), mine_(mine), sheet_(sheet) {}

  std::vector<RowVerdict> judge() {
    for (size_t i = 0; i < sheet_.rows.size(); ++i) pool(i);
    std::vector<RowVerdict> verdicts;
    for (size_t i = 0; i < sheet_.rows.size(); ++i) verdicts.push_back(judge(i));
    return verdicts;
  }

 private:
  const run::TensorRecord& record_of(size_t row) const {
    return mine_.records[sheet_.matching.pairs[row].mine];
  }

  void pool(size_t i) {
    const Row& row = sheet_.rows[i];
    if (record_of(i).role == Role::Output) return;
    const Difference difference = difference_of(row);
    Pool& pool = pools_[place_of_record(record_of(i))];
    if (has_non_finite(row)) pool.finite = false;
    if (!std::isfinite(difference.error) || !std::isfinite(difference.golden)) return;
    pool.error += std::pow(difference.error * difference.golden, 2);
    pool.golden += std::pow(difference.golden, 2);
  }

  static bool has_non_finite(const Row& row) {
    return row.patterns && row.patterns->nan_only_in_mine + row.patterns->inf_only_in_mine +
                                   row.patterns->nan_in_both + row.patterns->inf_in_both >
                               0;
  }

  [[nodiscard]] RowVerdict judge(size_t i) const {
    const Row& row = sheet_.rows[i];
    const run::TensorRecord& record = record_of(i);
    RowVerdict out;
    out.err_out = difference_of(row).error;
    const auto pool = pools_.find(place_of_record(record));
    const bool known_inputs = record.role == Role::Output && pool != pools_.end();
    if (known_inputs) out.err_in = pool->second.value();
    if (out.err_in > 0) out.amplification = out.err_out / out.err_in;
    const auto own = verdict_.records.find(sheet_.matching.pairs[i].mine);
    if (own != verdict_.records.end()) {
      out.err_own = own->second.err_own;
      out.noise_floor = own->second.noise_floor;
      out.own_source = own->second.own_source;
      out.confidence = own->second.confidence;
      out.verdict = own->second.verdict;
    }
    if (out.verdict == RowJudgement::None || out.verdict == RowJudgement::Noise)
      out.verdict = seen_from_outside(row, record, out, known_inputs && !pool->second.finite);
    if (const std::string_view said = confidence_of_finding(record, out.verdict); !said.empty())
      out.confidence = said;
    if (out.confidence.empty() && out.verdict != RowJudgement::None)
      out.confidence = confidence_name(locate::Confidence::Low);
    return out;
  }

  // What is said of a candidate is said of all rows of its node that are wrong; empty: it is none.
  [[nodiscard]] std::string_view confidence_of_finding(const run::TensorRecord& record,
                                                       RowJudgement judgement) const {
    if (judgement < RowJudgement::OwnError || judgement > RowJudgement::RankDivergence) return {};
    for (const locate::Finding& finding : verdict_.candidates) {
      const bool is_here = record.node == (finding.node.empty() ? finding.module : finding.node) &&
                           record.rank == finding.rank;
      if (!is_here || (record.role == Role::Output && record.step != finding.step)) continue;
      const bool is_first = &finding == verdict_.candidates.data();
      return confidence_name(is_first ? verdict_.confidence : finding.confidence);
    }
    return {};
  }

  // What golden's values alone tell; the first rule that holds.
  //   docs/localisation.md, "Columns of the table"
  static RowJudgement seen_from_outside(const Row& row, const run::TensorRecord& record,
                                        const RowVerdict& numbers, bool inputs_not_finite) {
    if (!row.comparable)
      return row.fail_reason.empty() ? RowJudgement::None : RowJudgement::Structural;
    const bool real = !record.dtype || is_float(*record.dtype);
    if (!real) return row.identical ? RowJudgement::Noise : RowJudgement::Structural;
    if (row.patterns && row.patterns->nan_only_in_mine + row.patterns->inf_only_in_mine > 0)
      return inputs_not_finite || record.role != Role::Output ? RowJudgement::NanInherited
                                                              : RowJudgement::NanOrigin;
    const double floor = locate::rounding_of(record.dtype, record.dtype);
    if (!(numbers.err_out > kOutside * floor)) return RowJudgement::Noise;
    if (numbers.amplification > kAmplifying && numbers.err_in > floor)
      return RowJudgement::Amplified;
    if (numbers.err_in > kOutside * floor) return RowJudgement::Inherited;
    return RowJudgement::Drift;
  }

  const locate::Verdict& verdict_;
  const run::Run& mine_;
  const compare::Sheet& sheet_;
  std::map<Place, Pool> pools_;
};

}  // namespace

std::vector<RowVerdict> judge_rows(const locate::Verdict& verdict, const run::Run& mine,
                                   const compare::Sheet& sheet) {
  return Judge(verdict, mine, sheet).judge();
}

}  // namespace assay::report
