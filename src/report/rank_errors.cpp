// SPDX-License-Identifier: Apache-2.0
// Takes the errors at each place of the model over all ranks, finds how far healthy ranks are
// apart, and names those with too many rows beyond it.
#include "report/rank_errors.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "base/display.hpp"
#include "base/text.hpp"
#include "locate/noise/record_distance.hpp"
#include "report/terminal_text.hpp"

namespace assay::report {
namespace {

constexpr double kShareBeside = 0.05;  // of the rows of a rank, until it differs from its peers
constexpr size_t kFewestPeers = 3;     // ranks that have a place, of whose errors a median tells
// A rank differs when that share of its rows is beyond what ranks of this job have, by the spread
// of those that are not the furthest: these may be the faulty ones. Few ranks show little of how
// far healthy ones may be apart, so that it takes more spreads, but no more than what ranks of
// sigma 2 (log) hardly ever are. Held against noise of sigma 0.3 to 0.7 within ranks and up to 2
// between them, of other sizes by host, of few tokens, of 3 to 1024 ranks.
constexpr double kSpreads = 7.5;
constexpr auto kSpreadsOfFew =
    std::array{1e3, 1e3, 1e3, 40.0, 20.0, 14.0, 11.5, 10.0, 9.0, 8.5, 8.0};
constexpr double kMostLogs = 10;
constexpr double kLeastFactor = 8;
// So large a share of a tensor is no rounding, and needs less to be a fault: to stand out from the
// spread, or from whichever rank comes next.
constexpr double kLargeError = 0.1;
constexpr double kSpreadsOfLarge = 4.5;
constexpr double kSpreadsOfLargeAmongFew = 6;
constexpr size_t kManyRanks = 7;
constexpr double kBeyondNext = 16;
constexpr double kShareOfRows = 0.7;  // of the spread of single rows, which ranks have at least
constexpr double kLowerTail = 0.16;   // of a normal distribution below one standard deviation
constexpr double kRoundings = 4;      // a difference of so many roundings may be one

using Place = std::pair<int64_t, std::string_view>;  // step, label

double nth_of(std::vector<double> values, size_t n) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(n);
  std::ranges::nth_element(values, at);
  return *at;
}
/// The value below which a share of all lies.
double quantile(const std::vector<double>& values, double share) {
  return nth_of(values, static_cast<size_t>(share * static_cast<double>(values.size() - 1)));
}

/// The middle one; of an even number the smaller of the two, so that two of four have to agree.
double median_of(const std::vector<double>& errors) { return quantile(errors, 0.5); }

/// The errors of all ranks that have a place.
struct PlaceErrors {
  double median = 0;
  double largest = 0, second = 0;
  size_t ranks = 0;

  /// The largest of the others.
  [[nodiscard]] double next_to(double error) const { return error < largest ? largest : second; }
};
using Places = std::map<Place, PlaceErrors>;

Places places_of(const std::vector<compare::Row>& rows) {
  std::map<Place, std::vector<double>> errors;
  for (const compare::Row& row : rows) {
    if (const double error = error_of(row); !std::isnan(error))
      errors[{row.token_id, row.label}].push_back(error);
  }
  Places places;
  for (const auto& [place, all] : errors) {
    if (all.size() >= kFewestPeers)
      places[place] = {median_of(all), nth_of(all, all.size() - 1), nth_of(all, all.size() - 2),
                       all.size()};
  }
  return places;
}

/// Of each rank, log(error / median) of its rows where others have errors, too.
std::map<int, std::vector<double>> ratios_by_rank(const std::vector<compare::Row>& rows,
                                                  const Places& places) {
  std::map<int, std::vector<double>> ratios;
  for (const compare::Row& row : rows) {
    if (row.filtered) continue;
    const double error = error_of(row);
    const auto place = places.find({row.token_id, row.label});
    if (place != places.end() && place->second.median > 0 && error > 0)
      ratios[row.rank].push_back(std::log(error / place->second.median));
  }
  return ratios;
}

/// So many times the median at its place is an error that healthy ranks of this job do not have.
struct Factors {
  double of_any = kLeastFactor;
  double of_large = kLeastFactor;  // of errors from kLargeError on
};

/// Those ranks that are not the furthest, cut where the upper half has its widest gap; sorted.
std::vector<double> without_furthest(std::vector<double> largest) {
  std::ranges::sort(largest);
  size_t kept = largest.size();
  double widest = -1;
  for (size_t i = (largest.size() - 1) / 2 + 1; i < largest.size(); ++i) {
    if (largest[i] - largest[i - 1] <= widest) continue;
    widest = largest[i] - largest[i - 1];
    kept = i;
  }
  largest.resize(kept);
  return largest;
}

double deviation_of(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1));
}

Factors factors_of(const std::map<int, std::vector<double>>& ratios, const Places& places) {
  std::vector<double> all, largest;  // of the rows; of each rank beyond the share of its rows
  for (const auto& [rank, of_rank] : ratios) {
    all.insert(all.end(), of_rank.begin(), of_rank.end());
    const double beyond =
        std::max(1.0, std::ceil(kShareBeside * static_cast<double>(of_rank.size())));
    largest.push_back(nth_of(of_rank, of_rank.size() - static_cast<size_t>(beyond)));
  }
  if (all.empty()) return {};
  const double middle = quantile(largest, 0.5);
  const std::vector<double> rest = without_furthest(largest);
  const double spread = std::max({middle - quantile(largest, kLowerTail), deviation_of(rest),
                                  kShareOfRows * -quantile(all, kLowerTail)});
  // Ranks of one replica may share a size, so that no more tell of it than a place has.
  size_t most = 0;
  for (const auto& [place, errors] : places) most = std::max(most, errors.ranks);
  const size_t tell = std::min(rest.size() * most / largest.size(), most - 1);
  const double least = std::log(kLeastFactor);
  const double of_few =
      tell < kSpreadsOfFew.size() ? std::min(kSpreadsOfFew[tell] * spread, kMostLogs) : 0;
  const double of_large = tell < kManyRanks ? kSpreadsOfLargeAmongFew : kSpreadsOfLarge;
  return {std::exp(middle + std::max({least, kSpreads * spread, of_few})),
          std::exp(middle + std::max(least, of_large * spread))};
}

bool is_beside(double error, const PlaceErrors& place, const Factors& factors) {
  if (place.median == 0) return error > 0;
  if (error > factors.of_any * place.median) return true;
  return error >= kLargeError &&
         (error > factors.of_large * place.median || error > kBeyondNext * place.next_to(error));
}

bool comes_before(const compare::Row& a, const compare::Row& b) {
  return std::tuple(a.token_id, a.order) < std::tuple(b.token_id, b.order);
}

std::map<int, RankErrors> errors_by_rank(const std::vector<compare::Row>& rows,
                                         const Places& places, const Factors& factors,
                                         std::set<int>* without_doubt) {
  std::map<int, RankErrors> ranks;
  for (const compare::Row& row : rows) {
    if (row.filtered) continue;
    RankErrors& one = ranks[row.rank];
    one.rank = row.rank;
    ++one.pairs;
    const double error = error_of(row);
    if (std::isnan(error)) {
      ++one.unreadable;
      continue;
    }
    one.different += row.identical ? 0 : 1;
    one.worst = std::max(one.worst, error);
    const auto place = places.find({row.token_id, row.label});
    if (place == places.end() || !is_beside(error, place->second, factors)) continue;
    ++one.beside_peers;
    if (place->second.median == 0) without_doubt->insert(row.rank);
    if (one.first_beside == nullptr || comes_before(row, *one.first_beside)) {
      one.first_beside = &row;
      one.peers_there = place->second.median;
    }
  }
  return ranks;
}

/// "tp 5" when the ranks are exactly those of one place of a group; empty otherwise.
std::string common_place(const std::vector<RankErrors>& beside, const std::set<int>& all,
                         const std::map<int, native::ParallelPlaces>& parallel) {
  std::map<std::pair<std::string, int64_t>, std::set<int>> ranks_of;
  for (const int rank : all) {
    const auto places = parallel.find(rank);
    if (places == parallel.end()) continue;
    for (const auto& [group, place] : places->second)
      if (place.size > 1) ranks_of[{group, place.rank}].insert(rank);
  }
  std::set<int> wanted;
  for (const RankErrors& one : beside) wanted.insert(one.rank);
  for (const auto& [place, ranks] : ranks_of)
    if (ranks == wanted) return place.first + " " + std::to_string(place.second);
  return {};
}

std::string name_of(const std::vector<RankErrors>& beside, const std::string& place) {
  if (beside.size() == 1) return "rank " + std::to_string(beside[0].rank) + " differs from its ";
  const std::string count = std::to_string(beside.size());
  if (!place.empty()) return "the " + count + " ranks of " + place + " differ from their ";
  constexpr size_t kNamed = 16;
  std::vector<int64_t> numbers;
  for (const RankErrors& one : beside) numbers.push_back(one.rank);
  const std::string list = number_ranges(numbers, ", ");
  return (beside.size() <= kNamed ? "ranks " + list : count + " ranks") + " differ from their ";
}

/// Errors so small are left by another order of additions.
bool may_be_rounding(const compare::Row& row) {
  return error_of(row) <= kRoundings * locate::rounding_of(dtype_from_name(row.golden.dtype.str()),
                                                           dtype_from_name(row.mine.dtype.str()));
}

std::string sentence_of(const RankSummary& summary, const std::string& place) {
  const RankErrors& peers = summary.all_peers;
  if (summary.beside.empty())
    return peers.different == 0 ? std::string()
                                : "the " + std::to_string(summary.peers) + " ranks differ alike";
  const auto first =
      std::ranges::min_element(summary.beside, [](const RankErrors& a, const RankErrors& b) {
        return comes_before(*a.first_beside, *b.first_beside);
      });
  const compare::Row& row = *first->first_beside;
  return name_of(summary.beside, place) + counted(summary.peers, "peer") + ", from " + row.label +
         " of step " + std::to_string(row.token_id) + " on: " + short_number(error_of(row)) +
         " there, " +
         (first->peers_there == 0 ? "they are equal to golden"
                                  : "theirs is " + short_number(first->peers_there)) +
         (may_be_rounding(row) ? "; rounding alone may do that" : "");
}

}  // namespace

double error_of(const compare::Row& row) {
  if (!row.comparable) return NAN;
  if (row.identical) return 0;
  if (row.metrics) return row.metrics->relative_euclidean_distance;
  return row.summary ? row.summary->l2_norm.relative : NAN;
}

std::optional<RankSummary> summarise_ranks(const compare::Comparison& comparison,
                                           const std::map<int, native::ParallelPlaces>& parallel) {
  if (comparison.sheets.empty() || comparison.sheets.back().graph >= 0) return std::nullopt;
  const std::vector<compare::Row>& rows = comparison.sheets.back().rows;
  std::set<int> all;
  for (const compare::Row& row : rows) all.insert(row.rank);
  if (all.size() < kFewestPeers) return std::nullopt;
  const Places places = places_of(rows);
  RankSummary summary;
  const Factors factors = factors_of(ratios_by_rank(rows, places), places);
  summary.beside_factor = factors.of_any;
  std::set<int> without_doubt;
  const std::map<int, RankErrors> ranks = errors_by_rank(rows, places, factors, &without_doubt);
  for (const auto& [rank, one] : ranks) {
    const bool is_one_of_many =
        static_cast<double>(one.beside_peers) >= kShareBeside * static_cast<double>(one.pairs);
    if (one.beside_peers > 0 && (is_one_of_many || without_doubt.contains(rank))) {
      summary.beside.push_back(one);
      continue;
    }
    ++summary.peers;
    summary.all_peers.pairs += one.pairs;
    summary.all_peers.different += one.different;
    summary.all_peers.unreadable += one.unreadable;
    summary.all_peers.worst = std::max(summary.all_peers.worst, one.worst);
  }
  summary.sentence = sentence_of(summary, common_place(summary.beside, all, parallel));
  return summary;
}

std::string places_text(const std::map<int, native::ParallelPlaces>& parallel, int rank) {
  std::string text;
  const auto places = parallel.find(rank);
  if (places == parallel.end()) return text;
  for (const auto& [group, place] : places->second) {
    if (place.size > 1)
      text += (text.empty() ? "" : ", ") + group + " " + std::to_string(place.rank);
  }
  return text;
}

}  // namespace assay::report
