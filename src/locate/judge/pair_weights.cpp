// SPDX-License-Identifier: Apache-2.0
// Parameters and buffers, name by name, else operand by operand.   localisation 3, "weight"
#include <algorithm>
#include <cstdio>
#include <set>
#include <unordered_map>

#include "base/thread_pool.hpp"
#include "locate/judge/pair_tests.hpp"
#include "locate/judge/stored_parts.hpp"
#include "locate/noise/record_distance.hpp"
#include "locate/program/owner.hpp"
#include "reference/products/matmul.hpp"

namespace assay::locate {
namespace {

/// From here on one tensor occupies all cores by itself.
constexpr int64_t kLargeElements = int64_t{1} << 22;
constexpr size_t kNamesInNote = 5;

constexpr std::string_view kCalibrated =
    "further than a step of their codes, as calibration may move them";
/// Weights of one scheme within their step for each that is not, so that calibration does not explain that one.
constexpr size_t kCalibrationPeers = 4;

struct WeightPair {
  std::string_view name;
  size_t golden = kNone;  // records
  size_t mine = kNone;
  Result<WeightDifference> difference = WeightDifference{};
  std::string hypothesis;
  std::optional<compare::RoundingCheck> rounding;  // where mine's file rounds
  const StoredWeight::Part* part = nullptr;        // that rounding does not explain
  std::string scheme = {};                         // of a weight in codes: "int8 per channel"
  bool padded = false;                             // golden's rows, and more
  std::string unjudged = {};                       // why, where nothing can be said
};

std::string short_value(double value, int digits = 6) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

class WeightTest {
 public:
  WeightTest(const PairContext& pair, PairTests* tests)
      : pair_(pair), tests_(tests), stored_(pair.mine) {
    for (size_t i = 0; i < pair.mine.operators.size(); ++i) {
      for (const Use& use : pair.mine.operators[i].inputs) {
        if (!use.leaf.empty() && use.producer == kNone) consumers_[use.leaf].push_back(i);
      }
    }
  }

  void run() {
    std::vector<WeightPair> pairs;
    std::vector<std::string_view> lonely;
    size_t parts = 0;  // of weights in codes: judged with them
    for (const auto& [name, record] : pair_.mine.leaves) {
      size_t golden = partner_of(name);
      if (golden == kNone) {
        if (const auto coded = stored_.coded_weight(name)) golden = partner_of(*coded);
      }
      if (golden == kNone && stored_.is_part(name)) {
        ++parts;
      } else if (golden == kNone) {
        lonely.push_back(name);
      } else {
        pairs.push_back({name, golden, record, WeightDifference{}, {}, {}, nullptr});
      }
    }
    const size_t unread = drop_unread(pairs, &lonely);
    tests_->weights = pair_.mine.leaves.size() - parts - unread;
    tests_->weights_lonely = lonely.size();
    find_missing(pairs);
    compare_all(&pairs);
    tell_faults_from_calibration(&pairs);
    for (const WeightPair& one : pairs) report(one);
    note("weights without a partner in golden: ", lonely);
    note("weights that could not be compared: ", unreadable_);
    const std::vector<std::string_view> padded(tests_->padded.begin(), tests_->padded.end());
    note("weights have golden's rows and more behind them (padding): ", padded);
    for (const auto& [reason, names] : unjudged_)
      note("weights not judged, " + reason + ": ", names);
  }

 private:
  /// Golden's record of the same name; of another name that the paired operand has.
  [[nodiscard]] size_t partner_of(const std::string& name) const {
    if (const auto found = pair_.golden.leaves.find(name); found != pair_.golden.leaves.end())
      return found->second;
    const auto consumers = consumers_.find(name);
    if (consumers == consumers_.end()) return kNone;
    for (const size_t consumer : consumers->second) {
      const size_t golden = pair_.pairing.golden_of[consumer];
      if (golden == kNone) continue;
      const std::string_view slot = slot_of(pair_.mine.operators[consumer], name);
      for (const Use& use : pair_.golden.operators[golden].inputs) {
        if (use.slot != slot || use.leaf.empty()) continue;
        const auto found = pair_.golden.leaves.find(use.leaf);
        if (found != pair_.golden.leaves.end()) return found->second;
      }
    }
    return kNone;
  }

  /// Takes away weights that golden has nothing to hold against: every leaf that its program reads has its partner, so none of
  /// them is one of these under another name. Where golden does not tell, those that no operator of mine reads.
  /// returns  how many
  size_t drop_unread(const std::vector<WeightPair>& pairs,
                     std::vector<std::string_view>* lonely) const {
    const bool golden_tells = !pair_.golden.operators.empty() && !has_lonely_leaf_of_golden(pairs);
    if (!golden_tells && pair_.mine.operators.empty()) return 0;
    return std::erase_if(*lonely, [&](std::string_view name) {
      return golden_tells || !consumers_.contains(std::string(name));
    });
  }

  /// Golden reads a parameter or buffer that none of mine's is the partner of.
  [[nodiscard]] bool has_lonely_leaf_of_golden(const std::vector<WeightPair>& pairs) const {
    std::set<size_t> partners;
    for (const WeightPair& one : pairs) partners.insert(one.golden);
    return std::ranges::any_of(pair_.golden.operators, [&](const Operator& one) {
      return std::ranges::any_of(one.inputs, [&](const Use& use) {
        if (use.leaf.empty() || use.producer != kNone) return false;
        const auto found = pair_.golden.leaves.find(use.leaf);
        return found == pair_.golden.leaves.end() || !partners.contains(found->second);
      });
    });
  }

  static std::string_view slot_of(const Operator& one, const std::string& leaf) {
    return std::ranges::find(one.inputs, leaf, &Use::leaf)->slot;
  }

  /// Parameters of golden without partner: what mine computes with in their place was never compared.
  void find_missing(const std::vector<WeightPair>& pairs) {
    if (!pair_.mine.stored_weights.empty()) return;  // golden's names are those of mine's file
    std::set<size_t> paired;
    for (const WeightPair& one : pairs) paired.insert(one.golden);
    std::set<std::string_view> read;
    for (const Operator& one : pair_.golden.operators) {
      for (const Use& use : one.inputs) {
        if (use.producer == kNone && !use.leaf.empty()) read.insert(use.leaf);
      }
    }
    for (const auto& [name, record] : pair_.golden.leaves) {
      if (read.contains(name) && !paired.contains(record) &&
          pair_.golden.run->records[record].role == run::Role::Weight)
        tests_->weights_missing.push_back(name);
    }
  }

  /// Large weights one after the other, each on all cores; then the small ones beside each other.
  void compare_all(std::vector<WeightPair>* pairs) const {
    std::vector<WeightPair*> small;
    for (WeightPair& one : *pairs) {
      const std::optional<Dims>& shape = pair_.mine.run->records[one.mine].shape;
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

  void compare(WeightPair* one) const {
    const run::TensorRecord& golden = pair_.golden.run->records[one->golden];
    const run::TensorRecord& mine = pair_.mine.run->records[one->mine];
    if (golden.digest && mine.digest && *golden.digest == *mine.digest &&
        golden.dtype == mine.dtype && golden.shape == mine.shape) {
      one->difference = WeightDifference{.identical = true};
      return;
    }
    if (stored_.coded_weight(std::string(one->name)) && golden.dtype &&
        !is_integer(*golden.dtype)) {
      compare_codes(golden, one);
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
      compare_shards(golden, mine, one);
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

  void compare_codes(const run::TensorRecord& golden, WeightPair* one) const {
    const Result<StepDifference> steps = stored_.difference(std::string(one->name), golden);
    if (!steps) {
      one->unjudged = steps.error().message;
      return;
    }
    one->scheme = steps->scheme;
    one->difference = WeightDifference{.half_ulp = steps->half_steps,
                                       .worst = steps->worst,
                                       .golden_value = steps->golden_value,
                                       .mine_value = steps->mine_value};
    if (steps->may_be_calibrated && steps->half_steps > kWeightLimit) one->unjudged = kCalibrated;
  }

  /// Calibration moves all weights of a scheme: one that is further than a step among peers that are not is wrong.
  static void tell_faults_from_calibration(std::vector<WeightPair>* pairs) {
    std::map<std::string_view, std::pair<size_t, size_t>> schemes;  // within a step, further
    for (const WeightPair& one : *pairs) {
      if (one.scheme.empty()) continue;
      auto& [within, further] = schemes[one.scheme];
      ++(one.unjudged == kCalibrated ? further : within);
    }
    for (WeightPair& one : *pairs) {
      if (one.unjudged != kCalibrated) continue;
      const auto& [within, further] = schemes.at(one.scheme);
      if (within >= kCalibrationPeers * further) one.unjudged.clear();
    }
  }

  /// Fewer values than golden's, or as many in a flat list: what one rank holds of a weight.
  static bool is_shard(const run::TensorRecord& golden, const run::TensorRecord& mine) {
    if (!golden.shape || !mine.shape || *golden.shape == *mine.shape) return false;
    const int64_t theirs = element_count(*golden.shape).value_or(0);
    const int64_t ours = element_count(*mine.shape).value_or(0);
    return ours < theirs || (mine.shape->size() == 1 && golden.shape->size() > 1);
  }

  void compare_shards(const run::TensorRecord& golden, const run::TensorRecord& mine,
                      WeightPair* one) const {
    const Result<Tensor> whole = stored_.put_together(mine, *golden.shape);
    const Result<Tensor> theirs = run::load_tensor(golden);
    if (!whole || !theirs) {
      one->unjudged = "shards: " + (whole ? theirs.error() : whole.error()).message;
      return;
    }
    one->difference = weight_difference(theirs->view, whole->view);
  }

  /// Leaves `rounding` empty where the file holds golden's type. Of several parts the first that rounding does not
  /// explain.
  static Status check_rounding(const run::TensorRecord& golden, const StoredWeight& stored,
                               WeightPair* one) {
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
    const std::optional<Dims>& shape = part.record.shape;
    if (!shape || shape->size() < 3) return golden;
    const int64_t count = (*shape)[1];
    if (golden.shape.size() != 3 || part.first_row + count > golden.shape[1])
      return fail(Errc::Invalid, "rows of another number than golden's");
    return reference::section(golden, 1, part.first_row, count);
  }

  static Result<WeightDifference> compare_bytes(const run::TensorRecord& golden,
                                                const run::TensorRecord& mine, WeightPair* one) {
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
      if (const std::optional<double> factor = constant_factor(theirs.view, ours.view))
        one->hypothesis =
            "weight differs from golden by a constant factor " + short_value(*factor, 4);
    }
    return difference;
  }

  void report(const WeightPair& one) {
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
    if (one.rounding) {
      if (one.rounding->unexplained == 0) {
        ++tests_->rounded[one.rounding->type];
        return;
      }
    } else if (!(difference.half_ulp > kWeightLimit)) {
      if (!one.scheme.empty()) ++tests_->rounded[one.scheme];
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
    finding.replayed_as_mine = one.rounding || !one.scheme.empty();
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
  static std::string place_of_expert(const WeightPair& one) {
    if (one.part == nullptr || one.part->record.shape->size() != 3) return {};
    std::string text = " (" + one.part->how.name;
    if (one.rounding->worst_row >= 0)
      text += ", expert " + std::to_string(one.rounding->worst_row / (*one.part->record.shape)[1]);
    return text + ")";
  }

  /// Below the level of operators a weight takes part when its module, or the one around it, is first called, or something
  /// inside: a mixer multiplies with the matrix of a module that is never called.
  void place_at_call(Finding* finding, const WeightPair& one) const {
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

  [[nodiscard]] std::string detail_of(const WeightPair& one) const {
    const WeightDifference& difference = *one.difference;
    const std::optional<Dims>& theirs = pair_.golden.run->records[one.golden].shape;
    const std::optional<Dims>& ours = pair_.mine.run->records[one.mine].shape;
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
  StoredParts stored_;
};

}  // namespace

void test_weights(const PairContext& pair, PairTests* tests) { WeightTest(pair, tests).run(); }

}  // namespace assay::locate
