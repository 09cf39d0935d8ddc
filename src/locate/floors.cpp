// SPDX-License-Identifier: Apache-2.0
#include "locate/floors.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>

#include "locate/measured.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g", value);
  return text;
}

/// The largest component over its floor. Precondition: as many floors as components.
double ratio_of(const std::vector<double>& components, const std::vector<double>& floors) {
  double ratio = 0;
  for (size_t i = 0; i < components.size(); ++i) ratio = std::max(ratio, components[i] / floors[i]);
  return ratio;
}

// ----- measuring

/// One place over all healthy pairs.
struct Samples {
  std::vector<std::optional<std::vector<double>>> components;  // by pair
  double smallest = 0;                                         // no floor is below
};
using Places = std::map<std::string, Samples>;

/// The floor of a place from all pairs but one; nothing when no other has it.
std::optional<std::vector<double>> floor_of(const Samples& samples, size_t without = kNone) {
  std::optional<std::vector<double>> floor;
  for (size_t pair = 0; pair < samples.components.size(); ++pair) {
    const auto& components = samples.components[pair];
    if (pair == without || !components) continue;
    if (!floor) floor = std::vector<double>(components->size(), samples.smallest);
    for (size_t i = 0; i < components->size(); ++i)
      (*floor)[i] = std::max((*floor)[i], (*components)[i]);
  }
  return floor;
}

/// The largest ratio of a healthy pair that is judged by the others; 0 when there is no other.
double largest_left_out(const Places& places, size_t pairs) {
  double largest = 0;
  for (const auto& [place, samples] : places) {
    for (size_t pair = 0; pair < pairs; ++pair) {
      if (!samples.components[pair]) continue;
      const std::optional<std::vector<double>> floor = floor_of(samples, pair);
      if (floor) largest = std::max(largest, ratio_of(*samples.components[pair], *floor));
    }
  }
  return largest;
}

double threshold_of(const Places& places, size_t pairs, bool statistics) {
  if (statistics) return kStatisticsThreshold;
  // Few pairs that happen to be alike say nothing about the next one: five prompts of a small GPT-2 gave 1.5, and the
  // sixth, healthy, one reached 1.9.
  return std::max(kThresholdMargin * largest_left_out(places, pairs), kUsualThreshold);
}

// ----- judging

/// Weights by their statistics: |dl2| / l2, and |dmean| sqrt(N) / (3 l2).
double weight_difference(const stats::TensorStats& golden, const stats::TensorStats& mine) {
  const double l2 = std::max(golden.l2_norm, 0x1p-126);
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(mine.finite_count(), 1)));
  return std::max(std::abs(mine.l2_norm - golden.l2_norm) / l2,
                  std::abs(mine.mean - golden.mean) * root / (3 * l2));
}

class FloorJudge {
 public:
  FloorJudge(const run::Run& golden, const run::Run& mine, const FloorProfile& profile)
      : golden_(golden), mine_(mine), profile_(profile) {
    for (const TensorRecord& record : mine.records) {
      if (record.role == run::Role::Output) called_.insert(path_of(mine, record.node));
    }
  }

  void judge(const std::vector<Measured>& places, const std::set<size_t>* judged_already) {
    found_.statistics = profile_.statistics;
    found_.judgeable = places.size();
    for (const Measured& one : places) {
      if (judged_already != nullptr && judged_already->contains(one.mine_record)) {
        ++found_.judged;
      } else if (one.shape_differs) {
        ++found_.judged;
        add_shape(one);
      } else if (!one.reason.empty()) {
        ++found_.unjudged[one.reason];
      } else {
        judge_components(one);
      }
    }
    if (profile_.statistics) judge_weights();
    if (!profile_.statistics && profile_.threshold > kWidestThreshold && found_.findings.empty()) {
      found_.judged -= found_.records.size();
      found_.unjudged["healthy runs differ there by up to " + short_number(profile_.threshold) +
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
  void judge_components(const Measured& one) {
    const auto floor = profile_.floors.find(one.place);
    if (floor == profile_.floors.end() || floor->second.size() != one.components.size()) {
      ++found_.unjudged["healthy runs do not have it"];
      return;
    }
    ++found_.judged;
    FloorFindings::Judgement& judgement = found_.records[one.mine_record];
    judgement.err_out = one.components[0];
    judgement.floor = floor->second[0];
    judgement.ratio = ratio_of(one.components, floor->second);
    judgement.beyond = judgement.ratio > profile_.threshold;
    if (judgement.beyond) add_beyond(one, judgement);
  }

  /// Everything behind the first is inherited, as far as anybody can tell.
  void add_beyond(const Measured& one, const FloorFindings::Judgement& judgement) {
    const TensorRecord& record = mine_.records[one.mine_record];
    if (!wrong_ranks_.insert(record.rank).second) return;
    Finding finding = finding_at(one);
    finding.kind = FindingKind::MeasuredFloor;
    finding.ratio = judgement.ratio;
    finding.err_out = profile_.statistics ? NAN : judgement.err_out;
    finding.noise_floor = judgement.floor;
    finding.detail =
        std::string(run::role_name(record.role)) + (record.slot.empty() ? "" : " " + record.slot) +
        " of " + (record.node.empty() ? "the model" : record.node) + " is the first value beyond " +
        short_number(profile_.threshold) + "x the largest healthy difference";
    found_.findings.push_back(std::move(finding));
  }

  void add_shape(const Measured& one) {
    const TensorRecord& record = mine_.records[one.mine_record];
    if (!wrong_ranks_.insert(record.rank).second) return;
    Finding finding = finding_at(one);
    finding.kind = FindingKind::Structure;
    finding.ratio = kInfinity;
    finding.detail = std::string(run::role_name(record.role)) +
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
    if (finding.module == path_of(mine_, record.node)) finding.module_type = record.op_type;
    finding.slot = record.slot;
    finding.time = record.order;
    finding.mine_record = one.mine_record;
    finding.golden_record = one.golden_record;
    return finding;
  }

  /// What made an input lies between modules: in the one around it. Operations of other layouts follow each other.
  std::string owner_of(const TensorRecord& record) const {
    std::string path = path_of(mine_, record.node);
    if (mine_.layout == "atb-tree") return path.substr(0, std::min(path.rfind('/'), path.size()));
    if (record.role == run::Role::Output) return path;
    while (!path.empty()) {
      const size_t end = path.find_last_of("./");
      path.resize(end == std::string::npos ? 0 : end);
      if (called_.contains(path)) break;
    }
    return path;
  }

  void judge_weights() {
    std::map<std::string, const TensorRecord*> partners;
    for (const TensorRecord& record : golden_.records)
      if (is_weight(record)) partners.emplace(weight_name(golden_, record), &record);
    for (size_t i = 0; i < mine_.records.size(); ++i) {
      const TensorRecord& record = mine_.records[i];
      if (!is_weight(record)) continue;
      ++found_.weights;
      const auto partner = partners.find(weight_name(mine_, record));
      if (partner == partners.end()) continue;
      const Result<stats::TensorStats> g = statistics_of(*partner->second);
      const Result<stats::TensorStats> m = statistics_of(record);
      if (!g || !m) continue;
      ++found_.weights_compared;
      const double rounding = rounding_of(partner->second->dtype, record.dtype);
      const double difference = weight_difference(*g, *m);
      if (difference > kWeightStatisticsLimit * rounding) add_weight(i, difference / rounding);
    }
  }

  static bool is_weight(const TensorRecord& record) {
    return is_operand(record) &&
           (record.role == run::Role::Weight || record.role == run::Role::Buffer) &&
           (!record.dtype || is_float(*record.dtype));
  }
  static std::string weight_name(const run::Run& run, const TensorRecord& record) {
    return path_of(run, record.node) + "." + record.slot + " " + std::to_string(record.rank);
  }

  void add_weight(size_t index, double ratio) {
    const TensorRecord& record = mine_.records[index];
    // A weight counts from its module's first call on.
    const auto consumer = std::ranges::find_if(mine_.records, [&](const TensorRecord& one) {
      return is_operand(one) && one.node == record.node && one.rank == record.rank &&
             (one.role == run::Role::Input || one.role == run::Role::Output);
    });
    const bool is_called = consumer != mine_.records.end();
    Finding finding;
    finding.kind = FindingKind::Weight;
    finding.confidence = Confidence::Low;
    finding.rank = record.rank;
    finding.step = is_called ? consumer->step : 0;
    finding.time = is_called ? consumer->order : 0;
    finding.module = path_of(mine_, record.node);
    finding.node = record.node;
    finding.module_type = is_called ? consumer->op_type : record.op_type;
    finding.slot = record.slot;
    finding.mine_record = index;
    finding.detail = (record.slot.empty() ? "a parameter" : record.slot) +
                     " has other statistics than golden's, by " + short_number(ratio) +
                     " roundings of every element";
    found_.findings.push_back(std::move(finding));
  }

  const run::Run& golden_;
  const run::Run& mine_;
  const FloorProfile& profile_;
  FloorFindings found_;
  std::set<std::string> called_;
  std::set<int> wrong_ranks_;
};

}  // namespace

bool has_only_statistics(const run::Run& golden, const run::Run& mine) {
  const auto has_bytes = [](const run::Run& run) {
    return std::ranges::any_of(run.records, [](const TensorRecord& record) {
      return record.bytes && is_operand(record) &&
             (record.role == run::Role::Input || record.role == run::Role::Output);
    });
  };
  return !has_bytes(golden) || !has_bytes(mine);
}

Result<FloorProfile> measure_floors(
    const std::vector<std::pair<const run::Run*, const run::Run*>>& healthy, bool statistics,
    int jobs, const std::atomic<bool>* interrupted) {
  if (healthy.empty()) return fail(Errc::Usage, "no healthy pair to measure floors on");
  Places places;
  for (size_t pair = 0; pair < healthy.size(); ++pair) {
    const auto& [golden, mine] = healthy[pair];
    ASSAY_TRY(const std::vector<Measured> measured,
              measure_records(*golden, *mine, statistics, jobs, interrupted));
    bool any = false;
    for (const Measured& one : measured) {
      // A place that has NaN in a healthy run has no floor.
      if (one.components.empty() ||
          !std::ranges::all_of(one.components, [](double c) { return std::isfinite(c); }))
        continue;
      any = true;
      Samples& samples = places[one.place];
      samples.components.resize(healthy.size());
      samples.components[pair] = one.components;
      samples.smallest = std::max(samples.smallest, kSmallestFloor * one.one_rounding);
    }
    if (!any) {
      return fail(Errc::Usage, "the healthy runs " + golden->path + " and " + mine->path +
                                   " have no values in common");
    }
  }
  FloorProfile profile;
  profile.statistics = statistics;
  profile.pairs = healthy.size();
  profile.threshold = threshold_of(places, healthy.size(), statistics);
  for (const auto& [place, samples] : places) profile.floors.emplace(place, *floor_of(samples));
  return profile;
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
