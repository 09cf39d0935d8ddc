// SPDX-License-Identifier: Apache-2.0
// Floors and thresholds out of healthy pairs.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "locate/noise/floors.hpp"
#include "locate/noise/record_distance.hpp"
#include "locate/program/program.hpp"
#include "pair/paired_runs.hpp"
#include "run/common_names.hpp"

namespace assay::locate {
namespace {

using Components = std::vector<double>;
using Floors = std::map<std::string, Components>;

/// T over the largest leave-one-out ratio.
constexpr double kThresholdMargin = 1.1;
/// Share of the places whose leave-one-out ratios decide T; what scatters more widens its own floor
/// alone.
constexpr double kOrdinaryPlaces = 0.9;
/// No floor is below this share of one rounding.
constexpr double kSmallestFloor = 0.25;
/// Components that may have either sign are held against their spread; the largest of five pairs is
/// some 1.6 times that, the largest ever seen 2.5 times.
constexpr double kLargestOverSpread = 2.5;

constexpr std::array<std::string_view, kValueComponents> kValueNames = {"relative_l2", "peak",
                                                                        "row", "column", "slope"};
constexpr std::array<std::string_view, kPlainStatistics + 1> kStatisticsNames = {
    "l2", "mean", "max", "min", "sketch"};
/// By how much the next healthy run may exceed the floor, whatever a few pairs say: 1.1 times the
/// most that 120 healthy runs of Llama, Qwen2 and GPT-2 reached (1.36, 2.07, 1.40, 2.00, 4.4; S:
/// 7.0), rounded up, the slope and S for their tails.
constexpr std::array<double, kValueComponents> kUsualThresholds = {1.6, 2.4, 1.7, 2.5, 9.0};
/// S: of the four statistics together, and of the sketch, which tells the size of an error to 18 %
/// only: 1.1 times the most (2.16) that 306 healthy runs of six model families reached beyond
/// floors of five pairs.
constexpr std::array<double, 2> kUsualStatisticsThresholds = {8.8, 2.4};
/// The largest of five sketches of healthy pairs over their root mean square, when their errors are
/// of one size.
constexpr double kLargestSketchOverSpread = 1.6;

/// What sums to zero over many roundings: small by chance in a few pairs, so its spread is taken
/// from all like it.
bool is_signed(bool statistics, size_t component) {
  return statistics ? component < kPlainStatistics : component == 4;
}

constexpr double kPlentySamples = 30, kScarcity = 6;
/// A place that fewer pairs have (others chose other experts before it) has no floor, unless fewer
/// were measured.
constexpr size_t kFewestPairs = 3;

/// One place over all healthy pairs.
struct Samples {
  std::vector<std::optional<Components>> pairs;
  double smallest = 0;  // no floor is below
  std::string peers;    // the same place of the same module in other layers has the same
};
using Places = std::map<std::string, Samples>;

/// The pairs of a place but one.
template <typename Visit>
void for_each_pair(const Samples& samples, size_t without, const Visit& visit) {
  for (size_t pair = 0; pair < samples.pairs.size(); ++pair)
    if (pair != without && samples.pairs[pair]) visit(*samples.pairs[pair]);
}

void grow(Components* components, size_t size) {
  if (components->size() < size) components->resize(size);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class FloorModel {
 public:
  FloorModel(const Places& places, bool statistics, size_t without = kNone)
      : statistics_(statistics) {
    for (const auto& [place, samples] : places) add(place, samples, without);
    set_scales();
    for (const auto& [place, samples] : places) add_to_peers(place, samples, without);
    for (const auto& [place, samples] : places) finish(place, samples);
  }
  [[nodiscard]] Floors take() { return std::move(floors_); }

 private:
  struct Size {
    Components largest;
    Components spread;  // root mean square over the pairs
    double scale = 0;   // one number for how far healthy runs are apart here
  };
  struct Shares {
    Components squares;  // of components over their place's scale
    double count = 0;
  };

  void add(const std::string& place, const Samples& samples, size_t without) {
    Size size;
    Components counts;  // pairs that have the component: not all have a sketch
    for_each_pair(samples, without, [&](const Components& components) {
      grow(&size.largest, components.size());
      grow(&size.spread, components.size());
      grow(&counts, components.size());
      for (size_t i = 0; i < components.size(); ++i) {
        size.largest[i] = std::max(size.largest[i], components[i]);
        size.spread[i] += components[i] * components[i];
        ++counts[i];
      }
    });
    if (counts.empty()) return;
    for (size_t i = 0; i < counts.size(); ++i)
      size.spread[i] = std::sqrt(size.spread[i] / counts[i]);
    sizes_.emplace(place, std::move(size));
  }

  /// N: the relative L2. S: the components together, each in its usual share.
  void set_scales() {
    const size_t count = statistics_ ? kPlainStatistics : component_names(false).size();
    std::vector<std::vector<double>> shares(count);
    for (const auto& [place, size] : sizes_) {
      const double all = root_mean_square(std::span(size.spread).first(count));
      for (size_t i = 0; i < count && all > 0; ++i) shares[i].push_back(size.spread[i] / all);
    }
    Components usual;
    for (const std::vector<double>& share : shares) usual.push_back(median(share));
    for (auto& [place, size] : sizes_) {
      Components parts;
      for (size_t i = 0; i < count; ++i)
        if (usual[i] > 0) parts.push_back(size.spread[i] / usual[i]);
      size.scale = statistics_ ? root_mean_square(parts) : size.largest[0];
    }
  }

  void add_to_peers(const std::string& place, const Samples& samples, size_t without) {
    const auto size = sizes_.find(place);
    if (size == sizes_.end() || size->second.scale <= 0) return;
    Shares& shares = shares_[samples.peers];
    for_each_pair(samples, without, [&](const Components& components) {
      grow(&shares.squares, components.size());
      for (size_t i = 0; i < components.size(); ++i) {
        const double share = components[i] / size->second.scale;
        shares.squares[i] += share * share;
      }
      ++shares.count;
    });
  }

  void finish(const std::string& place, const Samples& samples) {
    const auto size = sizes_.find(place);
    if (size == sizes_.end()) return;
    const auto shares = shares_.find(samples.peers);
    Components floor = size->second.largest;
    for (size_t i = 0; i < floor.size(); ++i) {
      if (is_signed(statistics_, i)) {
        floor[i] = std::max(floor[i] / kLargestOverSpread, size->second.spread[i]);
        if (shares != shares_.end()) {
          const double spread = std::sqrt(shares->second.squares[i] / shares->second.count);
          floor[i] =
              std::max(floor[i], size->second.scale * spread * scarcity(shares->second.count));
        }
      } else if (statistics_) {
        floor[i] = std::max(floor[i] / kLargestSketchOverSpread, size->second.spread[i]);
      }
      floor[i] = std::max(floor[i], samples.smallest);
    }
    floors_.emplace(place, std::move(floor));
  }

  /// A spread out of few samples is too small too often: 1 for the 30 that six layers and five
  /// pairs have.
  static double scarcity(double samples) {
    return std::max(1.0, (1 + kScarcity / samples) / (1 + kScarcity / kPlentySamples));
  }

  static double root_mean_square(std::span<const double> values) {
    if (values.empty()) return 0;
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum / static_cast<double>(values.size()));
  }

  bool statistics_;
  std::map<std::string, Size> sizes_;
  std::map<std::string, Shares> shares_;
  Floors floors_;
};

/// By place, the largest ratios of a healthy pair that is judged by the others.
Floors largest_left_out(const Places& places, size_t pairs, bool statistics) {
  Floors largest;
  for (size_t pair = 0; pair < pairs; ++pair) {
    const Floors floors = FloorModel(places, statistics, pair).take();
    for (const auto& [place, samples] : places) {
      const auto floor = floors.find(place);
      if (!samples.pairs[pair] || floor == floors.end()) continue;
      const Components ratios = floor_ratios(*samples.pairs[pair], floor->second, statistics);
      Components& most = largest[place];
      grow(&most, ratios.size());
      for (size_t i = 0; i < ratios.size(); ++i) most[i] = std::max(most[i], ratios[i]);
    }
  }
  return largest;
}

std::vector<double> thresholds_of(const Floors& left_out, bool statistics) {
  const std::span<const double> usual = statistics
                                            ? std::span<const double>(kUsualStatisticsThresholds)
                                            : std::span<const double>(kUsualThresholds);
  std::vector<double> thresholds;
  for (size_t i = 0; i < usual.size(); ++i) {
    std::vector<double> ratios;
    for (const auto& [place, most] : left_out)
      if (i < most.size()) ratios.push_back(most[i]);
    if (ratios.empty() && i > 0) break;  // no run has sketches
    thresholds.push_back(usual[i]);
    if (ratios.empty()) continue;
    std::ranges::sort(ratios);
    // What is handed on is one value: a table of positions would be one in each layer.
    if (statistics && i > 0) ratios.erase(std::ranges::unique(ratios).begin(), ratios.end());
    const auto rank = static_cast<size_t>(kOrdinaryPlaces * static_cast<double>(ratios.size() - 1));
    thresholds[i] = std::max(thresholds[i], kThresholdMargin * ratios[rank]);
  }
  return thresholds;
}

/// Places whose healthy pairs scatter more than the threshold allows (tables of positions depend on
/// the prompt's length) get a wider floor.
void widen(Floors* floors, const Floors& left_out, const FloorProfile& profile) {
  for (auto& [place, floor] : *floors) {
    const auto most = left_out.find(place);
    if (most == left_out.end()) continue;
    for (size_t i = 0; i < floor.size(); ++i) {
      const size_t t = !profile.statistics ? i : i < kPlainStatistics ? 0 : 1;
      if (t >= most->second.size()) continue;
      floor[i] *= std::max(1.0, kThresholdMargin * most->second[t] / profile.thresholds[t]);
    }
  }
}

/// A place whose sketches fewer pairs have is judged by its other statistics.
void drop_rare_sketches(Places* places, size_t fewest) {
  for (auto& [place, samples] : *places) {
    const auto has_one = [](const auto& pair) { return pair && pair->size() > kPlainStatistics; };
    if (static_cast<size_t>(std::ranges::count_if(samples.pairs, has_one)) >= fewest) continue;
    for (auto& pair : samples.pairs)
      if (pair) pair->resize(kPlainStatistics);
  }
}

/// Role, slot and the module's path without layer numbers.
std::string peers_of(const run::Run& run, const run::TensorRecord& record) {
  return run::layer_pattern(run::module_path(run, record.node)) + " " +
         std::string(role_name(record.role)) + " " + record.slot + " " +
         std::to_string(record.step);
}

/// The places are those of golden's ranks and steps, as in the runs that are judged by the profile.
Result<std::vector<Measured>> measure_paired(const run::Run& golden, const run::Run& mine,
                                             bool statistics, int jobs,
                                             const std::atomic<bool>* interrupted) {
  ASSAY_TRY(const pair::Correspondence pairs, pair::correspond(golden, mine, {}));
  if (!pair::PairedRuns::are_needed(pairs))
    return measure_records(golden, mine, statistics, jobs, interrupted);
  ASSAY_TRY(const pair::PairedRuns runs, pair::PairedRuns::make(golden, mine, pairs));
  return measure_records(runs.golden(), runs.mine(), statistics, jobs, interrupted);
}

}  // namespace

std::vector<double> floor_ratios(const std::vector<double>& components,
                                 const std::vector<double>& floors, bool statistics) {
  Components ratios;
  const size_t size = std::min(components.size(), floors.size());
  for (size_t i = 0; i < size; ++i) ratios.push_back(components[i] / floors[i]);
  if (!statistics) return ratios;
  double squares = 0;
  for (size_t i = 0; i < std::min(size, kPlainStatistics); ++i) squares += ratios[i] * ratios[i];
  ratios.erase(ratios.begin(),
               ratios.begin() + static_cast<std::ptrdiff_t>(std::min(size, kPlainStatistics)));
  ratios.insert(ratios.begin(), std::sqrt(squares));
  return ratios;
}

std::span<const std::string_view> component_names(bool statistics) {
  return statistics ? std::span<const std::string_view>(kStatisticsNames)
                    : std::span<const std::string_view>(kValueNames);
}

Result<FloorProfile> measure_floors(
    const std::vector<std::pair<const run::Run*, const run::Run*>>& healthy, bool statistics,
    int jobs, const std::atomic<bool>* interrupted) {
  if (healthy.empty()) return fail(Errc::Usage, "no healthy pair to measure floors on");
  Places places;
  for (size_t pair = 0; pair < healthy.size(); ++pair) {
    const auto& [golden, mine] = healthy[pair];
    ASSAY_TRY(const std::vector<Measured> measured,
              measure_paired(*golden, *mine, statistics, jobs, interrupted));
    bool any = false;
    for (const Measured& one : measured) {
      // A place that has NaN in a healthy run has no floor.
      if (one.components.empty() ||
          !std::ranges::all_of(one.components, [](double c) { return std::isfinite(c); }))
        continue;
      any = true;
      Samples& samples = places[one.place];
      samples.pairs.resize(healthy.size());  // also of a place that an earlier pair lacked
      samples.pairs[pair] = one.components;
      // Of fewer tokens than the next run may have.
      if (one.partial)
        for (double& component : *samples.pairs[pair]) component *= kPartialMargin;
      samples.smallest = std::max(samples.smallest, kSmallestFloor * one.one_rounding);
      samples.peers = peers_of(*mine, mine->records[one.mine_record]);
    }
    if (!any) {
      return fail(Errc::Usage, "the healthy runs " + golden->path + " and " + mine->path +
                                   " have no values in common");
    }
  }
  std::erase_if(places, [&](const auto& place) {
    const auto has = [](const auto& pair) { return pair.has_value(); };
    return static_cast<size_t>(std::ranges::count_if(place.second.pairs, has)) <
           std::min(kFewestPairs, healthy.size());
  });
  if (statistics) drop_rare_sketches(&places, std::min(kFewestPairs, healthy.size()));
  FloorProfile profile;
  profile.statistics = statistics;
  profile.pairs = healthy.size();
  const Floors left_out = largest_left_out(places, healthy.size(), statistics);
  profile.thresholds = thresholds_of(left_out, statistics);
  profile.floors = FloorModel(places, statistics).take();
  widen(&profile.floors, left_out, profile);
  return profile;
}

}  // namespace assay::locate
