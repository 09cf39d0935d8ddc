// SPDX-License-Identifier: Apache-2.0
// All values are held against their floors first and named afterwards, in order: at level S one
// that is just within its limit is wrong when several values behind it are as far off.
//   docs/localisation.md, "Measured floors"
#include "locate/noise/floors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/numbers.hpp"
#include "locate/noise/record_distance.hpp"
#include "run/common_names.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g", value);
  return text;
}

/// S: a value this far, as a share of the threshold, is named when so many others of the next ones
/// are as far.
constexpr double kConfirmedShare = 0.65;
constexpr size_t kConfirmingValues = 3;
constexpr size_t kConfirmingReach = 24;
/// S: statistics of N values scatter 1 + 8 / N times as much as those of many.
constexpr double kFewValues = 8;

/// How far a value is beyond what healthy runs reach.
struct Beyond {
  double limits =
      // largest component over its limit, which is its floor times its threshold; above 1: beyond
      0;
  size_t component = 0;   // that one
  double ratio = 0;       // its value over its floor
  double statistics = 0;  // S: that of the four statistics together over its limit
};

/// N: each component has a limit; S: the root of the sum of squares, and the sketch.
/// Precondition: of floor_ratios(), with as many thresholds as that gives numbers.
Beyond beyond_of(const std::vector<double>& components, const std::vector<double>& floors,
                 const FloorProfile& profile) {
  Beyond beyond;
  const std::vector<double> ratios = floor_ratios(components, floors, profile.statistics);
  for (size_t i = 0; i < ratios.size(); ++i) {
    const double limits = ratios[i] / profile.thresholds[i];
    if (limits > beyond.limits) beyond = {limits, i, ratios[i]};
  }
  if (profile.statistics) beyond.statistics = ratios[0] / profile.thresholds[0];
  return beyond;
}

class FloorJudge {
 public:
  FloorJudge(const run::Run& golden, const run::Run& mine, const FloorProfile& profile)
      : golden_(golden), mine_(mine), places_(golden), profile_(profile) {
    for (const TensorRecord& record : mine.records) {
      if (record.role == Role::Output) called_.insert(run::module_path(mine, record.node));
    }
    other_inputs_ = have_other_inputs();
  }

  void judge(const std::vector<Measured>& places, const std::set<size_t>* judged_already) {
    found_.statistics = profile_.statistics;
    found_.judgeable = places.size();
    for (const Measured& one : places) {
      if (judged_already != nullptr && judged_already->contains(one.mine_record)) {
        ++found_.judged;
      } else if (one.shape_differs && other_inputs_) {
        ++found_.unjudged["the runs had inputs of other shapes"];
      } else if (one.shape_differs) {
        ++found_.judged;
        judged_.push_back({&one, {}});
      } else if (!one.reason.empty()) {
        ++found_.unjudged[one.reason];
      } else {
        judge_components(one);
      }
    }
    for (size_t i = 0; i < judged_.size(); ++i) name_when_beyond(i);
    if (profile_.statistics) judge_weights();
    const double widest = std::ranges::max(profile_.thresholds);
    if (widest > kWidestThreshold && found_.findings.empty()) {
      found_.judged -= found_.records.size();
      found_.unjudged["healthy runs differ there by up to " + short_number(widest) +
                      "x their usual difference"] += found_.records.size();
    }
    if (profile_.pairs < kEnoughPairs) {
      found_.notes.push_back("the floors were measured on " + std::to_string(profile_.pairs) +
                             " healthy pair" + (profile_.pairs == 1 ? "" : "s") + "; " +
                             std::to_string(kEnoughPairs) + " are needed to trust them");
    }
  }

  FloorFindings take() { return std::move(found_); }

 private:
  /// In the run under test's order; points at the places that judge() was given.
  struct Judged {
    const Measured* one = nullptr;
    Beyond beyond;
  };

  /// Token ids, positions and masks are given, not computed: another batch, or a part of the
  /// prompt.
  bool have_other_inputs() const {
    return std::ranges::any_of(mine_.records, [&](const TensorRecord& record) {
      if (!is_given(record)) return false;
      const size_t partner = places_.golden_of(mine_, record);
      return partner != kNone && is_given(golden_.records[partner]) &&
             golden_.records[partner].shape != record.shape;
    });
  }
  static bool is_given(const TensorRecord& record) {
    return pair::is_operand(record) && record.role == Role::Input && record.shape && record.dtype &&
           is_integer(*record.dtype);
  }

  void judge_components(const Measured& one) {
    const auto floor = profile_.floors.find(one.place);
    const bool fits = floor != profile_.floors.end() &&
                      (profile_.statistics || floor->second.size() == one.components.size());
    if (!fits) {
      ++found_.unjudged["healthy runs do not have it"];
      return;
    }
    ++found_.judged;
    FloorFindings::Judgement& judgement = found_.records[one.mine_record];
    const bool is_sketched = profile_.statistics && one.components.size() > kPlainStatistics &&
                             floor->second.size() > kPlainStatistics;
    judgement.err_out = one.components[is_sketched ? kPlainStatistics : 0];
    judgement.floor = floor->second[is_sketched ? kPlainStatistics : 0];
    const Beyond beyond = beyond_of(one.components, floor->second, profile_);
    judgement.ratio = beyond.ratio;
    judged_.push_back({&one, beyond});
    double margin = one.partial ? kPartialMargin : 1;
    if (one.count > 0) margin *= 1 + kFewValues / static_cast<double>(one.count);
    judged_.back().beyond.limits /= margin;
    judged_.back().beyond.statistics /= margin;
    if (is_sketched) judge_as_first_seen(&judged_.back());
  }

  /// A value that is handed on (a table of positions, to each layer) is as healthy as where it came
  /// from.
  void judge_as_first_seen(Judged* judged) {
    const auto first =
        first_seen_
            .try_emplace({mine_.records[judged->one->mine_record].rank, judged->one->components},
                         judged->beyond)
            .first;
    if (first->second.limits < judged->beyond.limits) judged->beyond = first->second;
  }

  void name_when_beyond(size_t index) {
    const Measured& one = *judged_[index].one;
    if (one.shape_differs) return add_shape(one);
    const Beyond& beyond = judged_[index].beyond;
    FloorFindings::Judgement& judgement = found_.records[one.mine_record];
    judgement.beyond = beyond.limits > 1 || is_confirmed(index);
    if (judgement.beyond) add_beyond(one, judgement, beyond);
  }

  /// Statistics say little of one value, but a fault goes on: several of the values behind it are
  /// far off, too.
  bool is_confirmed(size_t index) const {
    const auto is_far = [&](size_t i) { return judged_[i].beyond.statistics > kConfirmedShare; };
    if (!profile_.statistics || !is_far(index)) return false;
    const int rank = mine_.records[judged_[index].one->mine_record].rank;
    std::set<std::vector<double>> others = {judged_[index].one->components};
    const size_t end = std::min(judged_.size(), index + 1 + kConfirmingReach);
    for (size_t i = index + 1; i < end; ++i) {
      if (is_far(i) && mine_.records[judged_[i].one->mine_record].rank == rank)
        others.insert(judged_[i].one->components);  // what is handed on is one value
    }
    return others.size() > kConfirmingValues;
  }

  /// Everything behind the first is inherited, as far as anybody can tell.
  void add_beyond(const Measured& one, const FloorFindings::Judgement& judgement,
                  const Beyond& beyond) {
    const TensorRecord& record = mine_.records[one.mine_record];
    if (!wrong_ranks_.insert(record.rank).second) return;
    Finding finding = finding_at(one);
    finding.kind = FindingKind::MeasuredFloor;
    finding.ratio = judgement.ratio;
    finding.err_out = profile_.statistics ? NAN : judgement.err_out;
    finding.noise_floor = judgement.floor;
    finding.detail = std::string(role_name(record.role)) +
                     (record.slot.empty() ? "" : " " + record.slot) + " of " +
                     (record.node.empty() ? "the model" : record.node) +
                     " is the first value beyond what healthy runs reach";
    if (!profile_.statistics) {
      finding.detail += " (" + std::string(component_names(false)[beyond.component]) + ", limit " +
                        short_number(profile_.thresholds[beyond.component]) + "x)";
    } else if (beyond.component == 1) {
      finding.err_out = judgement.err_out;
      finding.detail += " (by its sketch, limit " + short_number(profile_.thresholds[1]) + "x)";
    }
    found_.findings.push_back(std::move(finding));
  }

  void add_shape(const Measured& one) {
    const TensorRecord& record = mine_.records[one.mine_record];
    if (!wrong_ranks_.insert(record.rank).second) return;
    Finding finding = finding_at(one);
    finding.kind = FindingKind::Structure;
    finding.ratio = kInfinity;
    finding.detail = std::string(role_name(record.role)) +
                     (record.slot.empty() ? "" : " " + record.slot) +
                     " has another shape than golden's";
    found_.findings.push_back(std::move(finding));
  }

  Finding finding_at(const Measured& one) const {
    const TensorRecord& record = mine_.records[one.mine_record];
    Finding finding;
    finding.hard = true;
    finding.confidence = Confidence::Low;
    finding.rank = record.rank;
    finding.step = record.step;
    finding.module = owner_of(record);
    finding.node = record.node;
    finding.golden_node = golden_.records[one.golden_record].node;
    if (finding.module == run::module_path(mine_, record.node))
      finding.module_type = record.op_type;
    finding.slot = record.slot;
    finding.time = record.order;
    finding.mine_record = one.mine_record;
    finding.golden_record = one.golden_record;
    return finding;
  }

  /// What made an input lies between modules: in the one around it. Operations of other layouts
  /// follow each other.
  std::string owner_of(const TensorRecord& record) const {
    std::string path = run::module_path(mine_, record.node);
    if (mine_.has(run::Trait::AtbOperations))
      return path.substr(0, std::min(path.rfind('/'), path.size()));
    if (record.role == Role::Output) return path;
    while (!path.empty()) {
      const size_t end = path.find_last_of("./");
      path.resize(end == std::string::npos ? 0 : end);
      if (called_.contains(path)) break;
    }
    return path;
  }

  void judge_weights() {
    for (size_t i = 0; i < mine_.records.size(); ++i) {
      const TensorRecord& record = mine_.records[i];
      if (!is_weight(record)) continue;
      ++found_.weights;
      const size_t partner = places_.golden_of(mine_, record);
      if (partner == kNone || !is_weight(golden_.records[partner])) continue;
      const TensorRecord& golden = golden_.records[partner];
      if (holds_codes(golden, record)) continue;
      const Result<stats::TensorStats> g = statistics_of(golden);
      const Result<stats::TensorStats> m = statistics_of(record);
      if (!g || !m) continue;
      ++found_.weights_compared;
      const int64_t columns =
          record.shape && !record.shape->empty() ? record.shape->span().back() : 0;
      const double ratio = weight_statistics_ratio(*g, *m, golden.dtype, record.dtype, columns);
      if (ratio > 1) add_weight(i, ratio);
    }
  }

  /// Floats of 8 bits in the place of wider ones stand for these by a scale that statistics do not
  /// hold.
  static bool holds_codes(const TensorRecord& golden, const TensorRecord& mine) {
    return golden.dtype && mine.dtype && info(*mine.dtype).element_bits <= 8 &&
           info(*golden.dtype).element_bits > 8;
  }

  static bool is_weight(const TensorRecord& record) {
    return pair::is_operand(record) &&
           (record.role == Role::Weight || record.role == Role::Buffer) &&
           (!record.dtype || is_float(*record.dtype));
  }

  void add_weight(size_t index, double ratio) {
    const TensorRecord& record = mine_.records[index];
    // A weight counts from its module's first call on.
    const auto consumer = std::ranges::find_if(mine_.records, [&](const TensorRecord& one) {
      return pair::is_operand(one) && one.node == record.node && one.rank == record.rank &&
             (one.role == Role::Input || one.role == Role::Output);
    });
    const bool is_called = consumer != mine_.records.end();
    Finding finding;
    finding.kind = FindingKind::Weight;
    finding.confidence = Confidence::Low;
    finding.rank = record.rank;
    finding.step = is_called ? consumer->step : 0;
    finding.time = is_called ? consumer->order : 0;
    finding.module = run::module_path(mine_, record.node);
    finding.node = record.node;
    finding.module_type = is_called ? consumer->op_type : record.op_type;
    finding.slot = record.slot;
    finding.mine_record = index;
    finding.detail = (record.slot.empty() ? "a parameter" : record.slot) +
                     " has other statistics than golden's, " + short_number(ratio) +
                     "x what rounding of its elements explains";
    found_.findings.push_back(std::move(finding));
  }

  const run::Run& golden_;
  const run::Run& mine_;
  pair::Places places_;
  const FloorProfile& profile_;
  FloorFindings found_;
  std::vector<Judged> judged_;
  std::map<std::pair<int, std::vector<double>>, Beyond> first_seen_;  // by rank and components
  bool other_inputs_ = false;
  std::set<std::string> called_;
  std::set<int> wrong_ranks_;
};

}  // namespace

bool has_only_statistics(const run::Run& golden, const run::Run& mine) {
  const auto has_bytes = [](const run::Run& run) {
    if (run.has(run::Trait::WithoutValues)) return false;
    return std::ranges::any_of(run.records, [](const TensorRecord& record) {
      return record.bytes && pair::is_operand(record) &&
             (record.role == Role::Input || record.role == Role::Output);
    });
  };
  return !has_bytes(golden) || !has_bytes(mine);
}

Result<FloorFindings> judge_by_floors(const run::Run& golden, const run::Run& mine,
                                      const FloorProfile& profile, const FloorOptions& options) {
  ASSAY_TRY(const std::vector<Measured> measured,
            measure_records(golden, mine, profile.statistics, options.jobs, options.interrupted));
  FloorJudge judge(golden, mine, profile);
  judge.judge(measured, options.judged_already);
  return judge.take();
}

}  // namespace assay::locate
