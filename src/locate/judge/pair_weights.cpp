// SPDX-License-Identifier: Apache-2.0
// Parameters and buffers, each against its partner.   docs/localisation.md, "Pair tests"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <unordered_map>

#include "base/thread_pool.hpp"
#include "locate/judge/grid_weights.hpp"
#include "locate/judge/pair_tests.hpp"
#include "locate/noise/record_distance.hpp"
#include "locate/program/owner.hpp"
#include "pair/merge_ranks.hpp"
#include "reference/products/matmul.hpp"
#include "run/common_names.hpp"
#include "run/load.hpp"

namespace assay::locate {
namespace {

/// From here on one tensor occupies all cores by itself.
constexpr int64_t kLargeElements = int64_t{1} << 22;
constexpr size_t kNamesInNote = 5;

constexpr std::string_view kCalibrated =
    "further than a step of their codes, as calibration may move them";
/// Weights of one scheme within their step for each that is not, so that calibration does not
/// explain that one.
constexpr size_t kCalibrationPeers = 4;

struct JudgedWeight : pair::LeafPair {
  Result<WeightDifference> difference = WeightDifference{};
  std::string hypothesis;
  std::optional<compare::RoundingCheck> rounding;  // where the run under test's file rounds
  const StoredWeight::Part* part = nullptr;        // that rounding does not explain
  std::string scheme = {};                         // of a weight in codes: "int8 per channel"
  bool on_grid = false;                            // of codes, put back in place
  bool is_table = false;                           // golden's, computed in another way
  WeightDifference plain = {};                     // as if it were on none
  double error = 0, energy = 0;                    // of one with a scheme, squared
  bool padded = false;                             // golden's rows, and more
  std::string joined = {};                         // how its shards were put together
  std::string unjudged = {};                       // why, where nothing can be said
};

std::string short_value(double value, int digits = 6) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

class WeightTest {
 public:
  WeightTest(const PairContext& pair, PairTests* tests) : pair_(pair), tests_(tests) {
    for (size_t i = 0; i < pair.mine.operators.size(); ++i) {
      for (const Use& use : pair.mine.operators[i].inputs) {
        if (!use.leaf.empty() && use.producer == kNone) consumers_[use.leaf].push_back(i);
      }
    }
  }

  void run() {
    const pair::LeafPairs& leaves = pair_.pairing.leaves;
    std::vector<JudgedWeight> pairs;
    for (const pair::LeafPair& one : leaves.pairs) pairs.emplace_back(one);
    tests_->weights = leaves.judged;
    tests_->weights_lonely = leaves.lonely.size();
    find_missing(leaves);
    compare_all(&pairs);
    tell_faults_from_calibration(&pairs);
    drop_lone_grids(&pairs);
    for (const JudgedWeight& one : pairs) report(one);
    if (energy_ > 0) tests_->cost = std::sqrt(error_ / energy_);
    note("weights without a partner in golden: ", leaves.lonely);
    note("weights that could not be compared: ", unreadable_);
    const std::vector<std::string_view> padded(tests_->padded.begin(), tests_->padded.end());
    note("weights have golden's rows and more behind them (padding): ", padded);
    for (const auto& [how, names] : joined_)
      note("weights are golden's where shards are put together as " + how + ": ", names);
    for (const auto& [reason, names] : unjudged_)
      note("weights not judged, " + reason + ": ", names);
  }

 private:
  /// Parameters of golden without partner: what mine computes with in their place was never
  /// compared.
  void find_missing(const pair::LeafPairs& leaves) {
    // golden's names are those of the run under test's file
    if (!pair_.mine.stored_weights.empty()) return;
    for (const std::string_view name : leaves.missing) {
      const auto found = pair_.golden.leaves.find(name);
      if (found != pair_.golden.leaves.end() &&
          pair_.golden.run->records[found->second].role == Role::Weight)
        tests_->weights_missing.emplace_back(name);
    }
  }

  /// Large weights one after the other, each on all cores; then the small ones beside each other.
  void compare_all(std::vector<JudgedWeight>* pairs) const {
    std::vector<JudgedWeight*> small;
    for (JudgedWeight& one : *pairs) {
      const InternedDims shape = pair_.mine.run->records[one.mine].shape;
      if (shape && element_count(*shape).value_or(0) >= kLargeElements) {
        if (!pair_.stopped()) compare(&one);
      } else {
        small.push_back(&one);
      }
    }
    parallel_for(small.size(), resolve_job_count(0), [&](size_t i) {
      if (!pair_.stopped()) compare(small[i]);
    });
  }

  void compare(JudgedWeight* one) const {
    const run::TensorRecord& golden = pair_.golden.run->records[one->golden];
    const run::TensorRecord& mine = pair_.mine.run->records[one->mine];
    if (golden.digest && mine.digest && *golden.digest == *mine.digest &&
        golden.dtype == mine.dtype && golden.shape == mine.shape) {
      one->difference = WeightDifference{.identical = true};
      return;
    }
    if (is_freed(golden, mine)) {
      one->unjudged = "freed by the program before it was captured";
      return;
    }
    const pair::Weight* coded = pair_.mine.coded->weight_at(one->name);
    // Of golden's codes of the same type the codes are compared, and their scales as weights of
    // their own.
    if (coded != nullptr && golden.dtype && !is_integer(*golden.dtype) &&
        golden.dtype != mine.dtype) {
      compare_codes(golden, *coded, one);
      return;
    }
    const auto stored = pair_.mine.stored_weights.find(one->name);
    if (stored != pair_.mine.stored_weights.end()) {
      if (Status status = check_rounding(golden, stored->second, one); !status) {
        one->difference = fail(status.error());
        return;
      }
      if (one->rounding) return;
    }
    if (golden.dtype && mine.dtype && is_integer(*mine.dtype) && !is_integer(*golden.dtype)) {
      one->unjudged = "codes whose scales are not known";
      return;
    }
    if (is_shard(golden, mine)) {
      compare_shards(one);
      return;
    }
    one->difference = compare_bytes(golden, mine, one);
  }

  /// Golden's rows with more behind them, as engines pad vocabularies.
  static bool is_padded(const TensorView& golden, const TensorView& mine) {
    return golden.shape.size() >= 2 && golden.shape.size() == mine.shape.size() &&
           mine.shape[0] > golden.shape[0] &&
           std::equal(golden.shape.begin() + 1, golden.shape.end(), mine.shape.begin() + 1);
  }

  void compare_codes(const run::TensorRecord& golden, const pair::Weight& weight,
                     JudgedWeight* one) const {
    const Result<StepDifference> steps = step_difference(*pair_.mine.coded, weight, golden);
    if (!steps) {
      one->unjudged = steps.error().message;
      return;
    }
    take_steps(*steps, one);
    if (steps->may_be_calibrated && steps->half_steps > kWeightLimit) one->unjudged = kCalibrated;
  }

  static void take_steps(const StepDifference& steps, JudgedWeight* one) {
    one->scheme = steps.scheme;
    one->error = steps.error;
    one->energy = steps.energy;
    one->difference = WeightDifference{
        .half_ulp = steps.half_steps,
        .worst = steps.worst,
        .golden_value = steps.golden_value,
        .mine_value = steps.mine_value,
        .relative_l2 = steps.energy > 0 ? std::sqrt(steps.error / steps.energy) : 0};
  }

  /// Calibration moves all weights of a scheme: one that is further than a step among peers that
  /// are not is wrong.
  static void tell_faults_from_calibration(std::vector<JudgedWeight>* pairs) {
    std::map<std::string_view, std::pair<size_t, size_t>> schemes;  // within a step, further
    for (const JudgedWeight& one : *pairs) {
      if (one.scheme.empty()) continue;
      auto& [within, further] = schemes[one.scheme];
      ++(one.unjudged == kCalibrated ? further : within);
    }
    for (JudgedWeight& one : *pairs) {
      if (one.unjudged != kCalibrated) continue;
      const auto& [within, further] = schemes.at(one.scheme);
      if (within >= kCalibrationPeers * further) one.unjudged.clear();
    }
  }

  /// Who quantises puts more than one weight in codes: one that lies on a grid while most of its peers
  /// in other layers do not was changed by itself, and so was one without peers among few.
  static void drop_lone_grids(std::vector<JudgedWeight>* pairs) {
    constexpr size_t kFewestPeers = 3, kFewestOnGrid = 3;
    std::map<std::string, std::pair<size_t, size_t>> peers;  // on a grid, all
    size_t all = 0;
    for (const JudgedWeight& one : *pairs) {
      auto& [on_grid, members] = peers[run::layer_pattern(std::string(one.name))];
      ++members;
      if (one.on_grid) ++on_grid, ++all;
    }
    for (JudgedWeight& one : *pairs) {
      if (!one.on_grid) continue;
      const auto& [on_grid, members] = peers.at(run::layer_pattern(std::string(one.name)));
      if (members < kFewestPeers ? all >= kFewestOnGrid : 2 * on_grid >= members) continue;
      one.on_grid = false;
      one.scheme.clear();
      one.difference = one.plain;
    }
  }

  /// Engines that pack a weight for their products leave an empty one behind.
  static bool is_freed(const run::TensorRecord& golden, const run::TensorRecord& mine) {
    return golden.shape && mine.shape && element_count(*mine.shape) == 0 &&
           element_count(*golden.shape).value_or(0) > 0;
  }

  /// Fewer values than golden's, or as many in a flat list: what one rank holds of a weight.
  static bool is_shard(const run::TensorRecord& golden, const run::TensorRecord& mine) {
    if (!golden.shape || !mine.shape || *golden.shape == *mine.shape) return false;
    const int64_t theirs = element_count(*golden.shape).value_or(0);
    const int64_t ours = element_count(*mine.shape).value_or(0);
    return ours < theirs || (mine.shape->size() == 1 && golden.shape->size() > 1);
  }

  void compare_shards(JudgedWeight* one) const {
    const Result<pair::WholeTensor> whole =
        pair::load_whole(*pair_.golden.run, one->golden, *pair_.mine.run, one->mine);
    const Result<Tensor> theirs = run::load_tensor(pair_.golden.run->records[one->golden]);
    if (!whole || !theirs) {
      one->unjudged = "shards: " + (whole ? theirs.error() : whole.error()).message;
      return;
    }
    one->joined = whole->how;
    one->difference = weight_difference(theirs->view, whole->tensor.view);
  }

  /// Leaves `rounding` empty where the file holds golden's type. Of several parts the first that
  /// rounding does not explain.
  static Status check_rounding(const run::TensorRecord& golden, const StoredWeight& stored,
                               JudgedWeight* one) {
    ASSAY_TRY(const Tensor numbers, run::load_tensor(golden));
    for (const StoredWeight::Part& part : stored.parts) {
      ASSAY_TRY(const TensorView rows, rows_of(numbers.view, part));
      ASSAY_TRY(one->rounding, compare::check_rounding(part.record, part.how, rows, /*jobs=*/1));
      if (!one->rounding) return {};
      if (one->rounding->unexplained == 0) continue;
      one->part = &part;
      ASSAY_TRY(const Tensor values, run::load_tensor(part.record));
      ASSAY_TRY(const std::optional<std::string> order,
                compare::other_order(values, part.how, rows));
      if (order) one->hypothesis = *order;
      return {};
    }
    return {};
  }

  /// The rows of golden's weight that a part holds; where there is one part, all of them.
  static Result<TensorView> rows_of(const TensorView& golden, const StoredWeight::Part& part) {
    const InternedDims shape = part.record.shape;
    if (!shape || shape->size() < 3) return golden;
    const int64_t count = (*shape)[1];
    if (golden.shape.size() != 3 || part.first_row + count > golden.shape[1])
      return fail(Errc::Invalid, "rows of another number than golden's");
    return reference::section(golden, 1, part.first_row, count);
  }

  static Result<WeightDifference> compare_bytes(const run::TensorRecord& golden,
                                                const run::TensorRecord& mine, JudgedWeight* one) {
    ASSAY_TRY(const Tensor theirs, run::load_tensor(golden));
    ASSAY_TRY(Tensor ours, run::load_tensor(mine));
    if (is_padded(theirs.view, ours.view)) {
      const TensorView rows = reference::section(ours.view, 0, 0, theirs.view.shape[0]);
      ASSAY_TRY(const WeightDifference of_rows, weight_difference(theirs.view, rows));
      one->padded = of_rows.half_ulp <= kWeightLimit;
      if (one->padded) return of_rows;
    }
    ASSAY_TRY(const WeightDifference difference, weight_difference(theirs.view, ours.view));
    if (difference.half_ulp > kWeightLimit && !difference.shape_differs) {
      one->is_table = golden.role == Role::Buffer && is_same_table(theirs.view, ours.view);
      if (one->is_table) return WeightDifference{};
      if (const auto steps = grid_difference(theirs.view, ours.view)) {
        one->on_grid = true;
        one->plain = difference;
        take_steps(*steps, one);
        return one->difference;
      }
      if (const std::optional<double> factor = constant_factor(theirs.view, ours.view))
        one->hypothesis =
            "weight differs from golden by a constant factor " + short_value(*factor, 4);
    }
    return difference;
  }

  void report(const JudgedWeight& one) {
    if (!one.unjudged.empty()) {
      unjudged_[one.unjudged].push_back(one.name);
      return;
    }
    if (!one.difference) {
      unreadable_.push_back(one.name);
      return;
    }
    ++tests_->weights_compared;
    if (one.padded) tests_->padded.emplace_back(one.name);
    const WeightDifference& difference = *one.difference;
    if ((one.on_grid || one.is_table) && !(difference.half_ulp > kWeightLimit))
      tests_->own.emplace(one.name);
    if (one.rounding) {
      if (one.rounding->unexplained == 0) {
        ++tests_->rounded[one.rounding->type];
        return;
      }
    } else if (!(difference.half_ulp > kWeightLimit)) {
      if (!one.scheme.empty()) {
        ++tests_->rounded[one.scheme];
        error_ += one.error;
        energy_ += one.energy;
      }
      if (!one.joined.empty()) joined_[one.joined].push_back(one.name);
      return;
    }
    const auto consumers = consumers_.find(std::string(one.name));
    const size_t consumer = consumers == consumers_.end() ? kNone : consumers->second.front();
    Finding finding = finding_at(pair_, FindingKind::Weight, consumer,
                                 consumer == kNone ? kNone : pair_.pairing.golden_of[consumer]);
    const size_t dot = one.name.rfind('.');
    finding.module = dot == std::string_view::npos ? "" : one.name.substr(0, dot);
    finding.slot = dot == std::string_view::npos ? one.name : one.name.substr(dot + 1);
    if (consumer == kNone) place_at_call(&finding, one);
    finding.mine_record = one.mine;
    finding.golden_record = one.golden;
    finding.hypothesis = one.hypothesis;
    // One beside a grid of its own is replayed as golden has it.
    finding.replayed_as_mine = one.rounding || (!one.scheme.empty() && !one.on_grid);
    if (one.rounding) {
      finding.detail =
          finding.slot + place_of_expert(one) + " is not golden's rounded: " + one.rounding->text();
    } else {
      finding.ratio = difference.half_ulp;
      finding.by_steps = !one.scheme.empty();
      finding.err_own = difference.relative_l2;
      finding.noise_floor = rounding_of(pair_.golden.run->records[one.golden].dtype,
                                        pair_.mine.run->records[one.mine].dtype);
      finding.worst_ulp = difference.half_ulp / 2;
      finding.allowed_ulp = kWeightLimit / 2;
      finding.detail = detail_of(one);
    }
    tests_->findings.push_back(std::move(finding));
  }

  /// " (blk.0.ffn_up_exps.weight, expert 3)" where the worst block is one expert's.
  static std::string place_of_expert(const JudgedWeight& one) {
    if (one.part == nullptr || one.part->record.shape->size() != 3) return {};
    std::string text = " (" + one.part->how.name;
    if (one.rounding->worst_row >= 0)
      text += ", expert " + std::to_string(one.rounding->worst_row / (*one.part->record.shape)[1]);
    return text + ")";
  }

  /// Below the level of operators a weight takes part when its module, or the one around it, is
  /// first called, or something inside: a mixer multiplies with the matrix of a module that is
  /// never called.
  void place_at_call(Finding* finding, const JudgedWeight& one) const {
    const run::TensorRecord& record = pair_.mine.run->records[one.mine];
    finding->rank = record.rank;
    finding->node = finding->module;
    finding->op_type = record.op_type;
    finding->time = record.order;
    for (std::string_view module = finding->module;;) {
      const ModuleCall* first = nullptr;
      for (const ModuleCall& call : pair_.mine.calls) {
        if (is_inside(call.module, module) && (first == nullptr || call.begin < first->begin))
          first = &call;
      }
      if (first != nullptr) {
        finding->time = first->begin;
        finding->step = first->step;
        return;
      }
      if (module.empty()) return;
      const size_t dot = module.rfind('.');
      module = dot == std::string_view::npos ? std::string_view() : module.substr(0, dot);
    }
  }

  [[nodiscard]] std::string detail_of(const JudgedWeight& one) const {
    const WeightDifference& difference = *one.difference;
    const InternedDims theirs = pair_.golden.run->records[one.golden].shape;
    const InternedDims ours = pair_.mine.run->records[one.mine].shape;
    if (difference.shape_differs && theirs && ours)
      return "shape " + list_text(ours->span()) + " against golden's " + list_text(theirs->span());
    const std::string place = theirs ? place_text(difference.worst, *theirs) : "";
    const std::string step = one.scheme.empty() ? "" : ", more than a step of " + one.scheme;
    // One value among many is no share of the whole.
    if (difference.relative_l2 > rounding_of(pair_.golden.run->records[one.golden].dtype,
                                             pair_.mine.run->records[one.mine].dtype))
      return "weight differs by " + percent_text(difference.relative_l2) +
             " relative L2 (largest at " + place + ")" + step;
    return "weight differs at " + place + ": " + short_value(difference.mine_value) +
           " against golden's " + short_value(difference.golden_value) + step;
  }

  void note(const std::string& what, const std::vector<std::string_view>& names) {
    if (names.empty()) return;
    std::string text = std::to_string(names.size()) + ' ' + what;
    for (size_t i = 0; i < std::min(names.size(), kNamesInNote); ++i)
      text += (i > 0 ? ", " : "") + std::string(names[i]);
    if (names.size() > kNamesInNote) text += " ...";
    tests_->notes.push_back(std::move(text));
  }

  const PairContext& pair_;
  PairTests* tests_;
  std::unordered_map<std::string, std::vector<size_t>> consumers_;  // operators of mine, by leaf
  std::vector<std::string_view> unreadable_;
  std::map<std::string, std::vector<std::string_view>> unjudged_;  // by reason
  std::map<std::string, std::vector<std::string_view>> joined_;    // by the way
  double error_ = 0, energy_ = 0;  // of those within the rounding of their codes
};

}  // namespace

void test_weights(const PairContext& pair, PairTests* tests) { WeightTest(pair, tests).run(); }

}  // namespace assay::locate
