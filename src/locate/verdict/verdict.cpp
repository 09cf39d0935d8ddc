// SPDX-License-Identifier: Apache-2.0
// Hard findings are candidates, all others suspicions. The gaps of the walk confirm suspicions
// inside their owner, and the walk refutes what it saw through. What is left is put in order, and
// decides the outcome together with the coverage.
#include "locate/verdict/verdict.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "base/text.hpp"
#include "locate/judge/strict_kernels.hpp"
#include "locate/noise/kernel_rounding.hpp"
#include "locate/noise/narrow_products.hpp"
#include "locate/program/owner.hpp"
#include "locate/verdict/obligations.hpp"
#include "locate/verdict/unjudged_steps.hpp"
#include "run/common_names.hpp"

namespace assay::locate {
namespace {

// Which of several suspicions in one place says most about the cause.
ptrdiff_t priority(FindingKind kind) {
  constexpr std::array kTelling = {FindingKind::Weight, FindingKind::Attribute, FindingKind::Edge,
                                   FindingKind::Constant};
  return std::ranges::find(kTelling, kind) - kTelling.begin();
}

class Composer {
 public:
  explicit Composer(const Stages& stages) : stages_(stages) {}

  Verdict compose() {
    describe_runs();
    collect();
    confirm_parts();
    confirm_suspicions();
    order_candidates();
    name_module_types();
    name_sources();
    find_systematic();
    measure_coverage();
    decide();
    list_records();
    return std::move(verdict_);
  }

 private:
  bool wanted(const Finding& finding) const {
    return (!stages_.in_slice || stages_.in_slice(finding)) && !is_of_other_inputs(finding);
  }

  // A difference that there must be where the runs were not given the same. An operator's own
  // error, a weight and a NaN are none of these.
  bool is_of_other_inputs(const Finding& finding) const {
    if (!stages_.inputs || finding.step < stages_.inputs->step) return false;
    // Behind a step of another shape caches and positions are others; in it only values of golden's
    // shape are judged.
    if (stages_.inputs->shape_differs && finding.step == stages_.inputs->step) return false;
    constexpr std::array kOfOneRun = {FindingKind::OwnError, FindingKind::Weight,
                                      FindingKind::NanOrigin, FindingKind::RankDivergence};
    return std::ranges::find(kOfOneRun, finding.kind) == kOfOneRun.end();
  }

  void describe_runs() {
    verdict_.golden_level = stages_.golden->level;
    verdict_.mine_level = stages_.mine->level;
    verdict_.tokens = stages_.tokens;
    verdict_.unjudged_steps = unjudged_steps(stages_);
    verdict_.order_known = stages_.order_known;
    if (stages_.across_engines && stages_.walk != nullptr) {
      verdict_.level = judged_by(CaptureLevel::Leaves);
    } else if (stages_.own != nullptr) {
      verdict_.level = judged_by(CaptureLevel::Operators);
    } else if (stages_.walk != nullptr) {
      verdict_.level = judged_by(stages_.mine->level);
    } else if (stages_.floors != nullptr) {
      verdict_.level =
          stages_.floors->statistics ? JudgedBy::MeasuredStatistics : JudgedBy::MeasuredValues;
    }
    verdict_.floor = stages_.own != nullptr || stages_.walk != nullptr ? Floor::Model
                     : stages_.floors != nullptr                       ? Floor::Measured
                     : stages_.identical.values > 0                    ? Floor::Exact
                                                                       : Floor::None;
  }

  void collect() {
    const auto take = [&](const std::vector<Finding>& findings) {
      for (const Finding& finding : findings) {
        if (!wanted(finding)) continue;
        (finding.hard ? verdict_.candidates : suspicions_).push_back(finding);
      }
    };
    if (stages_.own != nullptr) {
      take(stages_.own->findings);
      verdict_.coarse = stages_.own->coarse;
    }
    if (stages_.tests != nullptr) {
      take(stages_.tests->findings);
      verdict_.notes = stages_.tests->notes;
      describe_rounding(*stages_.tests);
    }
    take(stages_.more);
    verdict_.coarse.insert(verdict_.coarse.end(), stages_.more_coarse.begin(),
                           stages_.more_coarse.end());
    if (stages_.floors != nullptr) {
      take(stages_.floors->findings);
      verdict_.notes.insert(verdict_.notes.end(), stages_.floors->notes.begin(),
                            stages_.floors->notes.end());
    }
    drop_own_errors_at_nan_origins();
    if (stages_.golden_own != nullptr) {
      verdict_.golden_findings = stages_.golden_own->findings;
      const auto by_sums = static_cast<size_t>(
          std::ranges::count_if(stages_.golden_own->outputs, &OwnError::by_sums));
      if (by_sums > 0)
        verdict_.notes.push_back("golden: " + counted(by_sums, "large product") +
                                 " checked by sums over blocks of columns");
    }
    if (stages_.walk != nullptr) {
      for (const Finding& gap : stages_.walk->findings)
        if (wanted(gap)) gaps_.push_back(gap);
      describe_rewritings();
      verdict_.suspicions = stages_.walk->closed;
    }
  }

  void describe_rounding(const PairTests& tests) {
    std::string types;
    size_t count = 0;
    for (const auto& [type, weights] : tests.rounded) {
      types += (types.empty() ? "" : ", ") + std::to_string(weights) + " " + type;
      count += weights;
    }
    if (count == 0) return;
    verdict_.quantisation =
        std::to_string(count) + " of " + counted(tests.weights, "weight") +
        " within the rounding of their types (" + types + ")" +
        (tests.cost > 0 ? ", which costs them " + percent_text(tests.cost) : "");
  }

  void describe_rewritings() {
    std::map<std::string, std::pair<size_t, size_t>> rewritten;  // modules and values, by pattern
    for (const auto& [module, values] : stages_.walk->closed_by) {
      auto& [modules, all] = rewritten[run::layer_pattern(module)];
      ++modules;
      all += values;
    }
    for (const auto& [pattern, counts] : rewritten) {
      const auto& [modules, values] = counts;
      verdict_.notes.push_back(
          "written otherwise: " + (pattern.empty() ? std::string("the model") : pattern) +
          (modules > 1 ? " (" + counted(modules, "module") + ")" : "") +
          "; what it returns is golden's although " + counted(values, "value") + " inside " +
          (values == 1 ? "is" : "are") + " not");
    }
  }

  // An operator that makes NaN of finite inputs has an infinite own error: the same fault, said
  // better.
  void drop_own_errors_at_nan_origins() {
    const auto is_same = [&](const Finding& own) {
      return own.kind == FindingKind::OwnError && std::isinf(own.ratio) &&
             std::ranges::any_of(verdict_.candidates, [&](const Finding& nan) {
               return nan.kind == FindingKind::NanOrigin && nan.node == own.node &&
                      nan.step == own.step && nan.rank == own.rank;
             });
    };
    std::erase_if(verdict_.candidates, is_same);
  }

  // Another weight or argument is no fault where a module around it computes golden's function.
  void confirm_parts() {
    if (stages_.walk == nullptr) return;
    const auto refuted = std::ranges::stable_partition(
        verdict_.candidates, [&](const Finding& finding) { return !is_closed(finding); });
    for (Finding& part : refuted) {
      part.hard = false;
      if (part.kind == FindingKind::Weight) ++verdict_.coverage.weights_refuted;
      verdict_.suspicions.push_back(std::move(part));
    }
    verdict_.candidates.erase(refuted.begin(), refuted.end());
  }

  bool is_closed(const Finding& part) const {
    if (part.kind == FindingKind::Attribute)
      return stages_.walk->closed_arguments.contains(part.mine_operator);
    return part.kind == FindingKind::Weight && !part.replayed_as_mine &&
           stages_.walk->closed_leaves.contains(name_of_leaf(part));
  }

  static std::string name_of_leaf(const Finding& part) {
    return part.module.empty() ? part.slot : part.module + '.' + part.slot;
  }

  // Of what golden has alone or beside mine: golden's operator was replayed for a value that is
  // right. Of what mine has alone: every value at a boundary that it flows into first was judged.
  bool is_seen_through(const Finding& suspicion) const {
    const std::vector<bool>& covered = stages_.walk->covered;
    if (suspicion.golden_operator < covered.size()) return covered[suspicion.golden_operator];
    if (suspicion.mine_operator == kNone) return false;
    bool any = false;
    const std::vector<Operator>& operators = stages_.mine->operators;
    std::set<size_t> tainted{suspicion.mine_operator};
    for (size_t op = suspicion.mine_operator; op < operators.size(); ++op) {
      const auto is_tainted = [&](const Use& use) {
        return tainted.contains(use.producer) && !boundaries_.contains(use.value);
      };
      if (op != suspicion.mine_operator && std::ranges::none_of(operators[op].inputs, is_tainted))
        continue;
      tainted.insert(op);
      for (const Use& output : operators[op].outputs) {
        const auto boundary = boundaries_.find(output.value);
        if (boundary == boundaries_.end()) continue;
        if (!boundary->second) return false;
        any = true;
      }
    }
    return any;
  }

  // Values of mine at the boundaries of modules that golden has, too, and whether they were judged.
  void find_boundaries() {
    for (const WalkStep& step : stages_.walk->steps) {
      const Use* use = use_of(step);
      if (use == nullptr || use->value == kNoValue || step.unknown_to_golden) continue;
      const auto [found, fresh] = boundaries_.try_emplace(use->value, step.reason.empty());
      found->second = found->second || step.reason.empty();
    }
  }

  const Use* use_of(const WalkStep& step) const {
    if (step.call >= stages_.mine->calls.size()) return nullptr;
    const ModuleCall& call = stages_.mine->calls[step.call];
    const std::vector<Use>& uses = step.input ? call.inputs : call.outputs;
    return step.use < uses.size() ? &uses[step.use] : nullptr;
  }

  // A hard finding inside the owner of a gap, made before it, is what the gap shows.
  bool is_explained(const Finding& gap) const {
    return std::ranges::any_of(verdict_.candidates, [&](const Finding& hard) {
      const bool lasting = hard.kind == FindingKind::Weight || hard.kind == FindingKind::Attribute;
      const bool earlier =
          hard.step == gap.step ? hard.time <= gap.time : lasting && hard.step < gap.step;
      return hard.rank == gap.rank && earlier && is_inside(hard.module, gap.module);
    });
  }

  void confirm_suspicions() {
    if (stages_.walk != nullptr) find_boundaries();
    std::vector<bool> confirmed(suspicions_.size(), false);
    std::vector<Finding> merged;
    for (const Finding& gap : gaps_) {
      if (is_explained(gap)) continue;
      merged.push_back(with_cause(gap, &confirmed));
    }
    std::move(merged.begin(), merged.end(), std::back_inserter(verdict_.candidates));
    const bool refuted = stages_.walk != nullptr && stages_.walk->is_whole_path_judged();
    for (size_t i = 0; i < suspicions_.size(); ++i) {
      if (confirmed[i]) continue;
      const Finding& suspicion = suspicions_[i];
      const bool seen_through = refuted || (stages_.walk != nullptr &&
                                            (is_closed(suspicion) || is_seen_through(suspicion)));
      if (!seen_through || is_hidden_by_eight_bits(suspicion)) undecided_.push_back(suspicion);
      verdict_.suspicions.push_back(suspicion);
    }
  }

  // Behind a cast to eight bits another scale moves values by as much as the cast rounds them, so
  // that no replay refutes it: one scale for all rows where golden has one a row. Of the same
  // inputs it is another number of results.
  bool is_hidden_by_eight_bits(const Finding& suspicion) const {
    if (suspicion.kind != FindingKind::Attribute || suspicion.mine_operator == kNone ||
        suspicion.golden_operator == kNone)
      return false;
    const Operator& mine = stages_.mine->operators[suspicion.mine_operator];
    const Operator& golden = stages_.golden->operators[suspicion.golden_operator];
    return has_equal_counts(mine.inputs, golden.inputs) &&
           !has_equal_counts(mine.outputs, golden.outputs) &&
           std::ranges::any_of(stages_.golden->operators, [&](const Operator& one) {
             return one.step == golden.step && one.rank == golden.rank &&
                    one.module == golden.module && makes_eight_bits(one);
           });
  }

  bool makes_eight_bits(const Operator& golden) const {
    return std::ranges::any_of(golden.outputs, [&](const Use& use) {
      const std::optional<DType> type = float_type(*stages_.golden, use);
      return type && info(*type).element_bits == 8;
    });
  }

  bool has_equal_counts(const std::vector<Use>& mine, const std::vector<Use>& golden) const {
    return std::ranges::equal(mine, golden, [&](const Use& ours, const Use& theirs) {
      if (ours.record >= stages_.mine->run->records.size() ||
          theirs.record >= stages_.golden->run->records.size())
        return false;
      const InternedDims a = stages_.mine->run->records[ours.record].shape;
      const InternedDims b = stages_.golden->run->records[theirs.record].shape;
      return a && b && element_count(*a) == element_count(*b);
    });
  }

  // An argument that golden's program can be run with must explain what is wrong behind it.
  bool may_be_cause(const Finding& one) const {
    return one.kind != FindingKind::Attribute ||
           stages_.walk->telling_arguments.contains(one.mine_operator);
  }

  // The gap with the suspicion inside its owner that explains it best; it began where that one is.
  Finding with_cause(const Finding& gap, std::vector<bool>* confirmed) const {
    Finding result = gap;
    const Finding* best = nullptr;
    std::set<std::string_view> modules;
    size_t differences = 0;
    for (size_t i = 0; i < suspicions_.size(); ++i) {
      const Finding& one = suspicions_[i];
      if (one.rank != gap.rank || one.step != gap.step || one.time > gap.time ||
          !is_inside(one.module, gap.module) || (*confirmed)[i] || !may_be_cause(one))
        continue;
      (*confirmed)[i] = true;
      if (one.kind != FindingKind::Edge) ++differences;  // which comes of the others
      modules.insert(one.module);
      const bool behind_extra = best != nullptr && best->kind == FindingKind::Topology &&
                                one.kind == FindingKind::Edge && best->module == one.module;
      if (best == nullptr || (!behind_extra && priority(one.kind) < priority(best->kind)))
        best = &one;
    }
    if (best == nullptr) return result;
    result.time = std::min(result.time, best->time);
    if (modules.size() == 1) result.module = best->module;
    result.node = best->node;
    result.op_type = best->op_type;
    result.slot = best->slot;
    result.mine_operator = best->mine_operator;
    result.golden_operator = best->golden_operator;
    result.cause = best->detail;
    if (differences > 1)
      result.cause += " and " + counted(differences - 1, "more difference") + " of the programs";
    if (result.hypothesis.empty()) result.hypothesis = best->hypothesis;
    if (result.confidence == Confidence::Low) result.confidence = Confidence::Medium;
    return result;
  }

  // In order of execution; but what has no effect that could be seen comes last, and so does a
  // weight in codes that is no further off than its peers, where one of them is.
  void order_candidates() {
    std::vector<Finding>& all = verdict_.candidates;
    std::ranges::stable_sort(all, comes_before);
    drop_edges_behind_extras();
    if (all.empty()) return;
    // What has no effect that could be seen is a fact, but not what is wrong first, a weight that
    // is written otherwise least of all. Where there is nothing else, the first of these is named.
    for (Finding& one : all)
      one.idle = one.idle || (stages_.walk != nullptr && one.kind == FindingKind::Weight &&
                              stages_.walk->idle_leaves.contains(name_of_leaf(one)));
    const std::map<std::string, double> outlying = outlying_ratios();
    std::ranges::stable_sort(all, {}, [&](const Finding& one) {
      const auto limit = one.by_steps ? outlying.find(peers_of(one)) : outlying.end();
      return std::tuple(one.idle, one.idle && one.kind == FindingKind::Weight,
                        limit != outlying.end() && one.ratio <= limit->second);
    });
    all.front().idle = false;
  }

  // An extra operator changes who reads what behind it: the edge behind it is the same fault.
  void drop_edges_behind_extras() {
    std::vector<Finding> kept;
    for (Finding& finding : verdict_.candidates) {
      const bool belongs = !kept.empty() && finding.kind == FindingKind::Edge &&
                           kept.back().kind == FindingKind::Topology &&
                           kept.back().module == finding.module;
      if (!belongs) kept.push_back(std::move(finding));
    }
    verdict_.candidates = std::move(kept);
  }

  static std::string peers_of(const Finding& one) {
    return run::layer_pattern(one.module) + ' ' + one.slot;
  }

  // Where the scales of all layers are coarse, all are further than a step from golden's, and a
  // wrong one is far beyond its peers: of these, by place in a layer, how far an ordinary one is.
  std::map<std::string, double> outlying_ratios() const {
    constexpr size_t kPeers = 3;
    constexpr double kOutlier = 4;  // times the median of its peers
    std::map<std::string, std::vector<double>> ratios;
    for (const Finding& one : verdict_.candidates) {
      if (one.by_steps && std::isfinite(one.ratio)) ratios[peers_of(one)].push_back(one.ratio);
    }
    std::map<std::string, double> outlying;
    for (auto& [peers, all] : ratios) {
      std::ranges::sort(all);
      const double limit = kOutlier * all[(all.size() - 1) / 2];
      if (all.size() >= kPeers && all.back() > limit) outlying.emplace(peers, limit);
    }
    return outlying;
  }

  void name_module_types() {
    std::map<std::string_view, std::string_view> types;
    for (const ModuleCall& call : stages_.mine->calls) {
      if (!call.type.empty()) types.emplace(call.module, call.type);
    }
    for (std::vector<Finding>* list :
         {&verdict_.candidates, &verdict_.suspicions, &verdict_.golden_findings}) {
      for (Finding& finding : *list) {
        const auto found = types.find(finding.module);
        if (finding.module_type.empty() && found != types.end())
          finding.module_type = found->second;
      }
    }
  }

  void name_sources() {
    name_sources(stages_.mine->run, {&verdict_.candidates, &verdict_.suspicions});
    name_sources(stages_.golden->run, {&verdict_.golden_findings});
  }

  // run   null: of a program that stands for itself
  static void name_sources(const run::Run* run,
                           std::initializer_list<std::vector<Finding>*> lists) {
    if (run == nullptr || !run->topology) return;
    const auto sources = topology::module_sources(*run->topology);
    for (std::vector<Finding>* list : lists) {
      for (Finding& finding : *list) {
        const auto found = sources.find(finding.module);
        if (found != sources.end()) finding.source = found->second;
      }
    }
  }

  void find_systematic() {
    std::map<std::string, std::set<std::string_view>> layers;  // pattern -> modules that are called
    for (const ModuleCall& call : stages_.mine->calls)
      layers[run::layer_pattern(call.module)].insert(call.module);
    for (const Operator& one : stages_.mine->operators)
      layers[run::layer_pattern(one.module)].insert(one.module);
    std::map<std::tuple<std::string, std::string, FindingKind>, std::set<std::string_view>> groups;
    for (const Finding& finding : verdict_.candidates) {
      const std::string pattern = run::layer_pattern(finding.module);
      if (pattern == finding.module) continue;  // no layer number in it
      const std::string what = finding.kind == FindingKind::Weight ? finding.slot : finding.op_type;
      groups[{pattern, run::layer_pattern(what), finding.kind}].insert(finding.module);
    }
    for (const auto& [key, modules] : groups) {
      if (modules.size() < kSystematicLayers) continue;
      const auto& [pattern, what, kind] = key;
      const auto found = layers.find(pattern);
      const size_t all = found == layers.end() ? 0 : found->second.size();
      verdict_.systematic.push_back({pattern + (what.empty() ? "" : " " + what), modules.size(),
                                     std::max(all, modules.size()), kind});
    }
  }

  void measure_coverage() {
    Coverage& coverage = verdict_.coverage;
    verdict_.cache_blocks = stages_.mine->cache_blocks;
    if (stages_.mine->products != ProductType::Float32)
      verdict_.products = "products in " + std::string(product_name(stages_.mine->products));
    coverage.operators = stages_.mine->operators.size();
    if (stages_.pairing != nullptr) coverage.paired = stages_.pairing->paired;
    if (stages_.tests != nullptr) {
      coverage.weights = stages_.tests->weights;
      coverage.weights_compared = stages_.tests->weights_compared;
      if (stages_.walk != nullptr && verdict_.level != JudgedBy::Layers &&
          stages_.walk->is_whole_path_judged())
        coverage.weights_by_function = stages_.tests->weights_lonely;
    }
    if (stages_.own != nullptr && verdict_.level == JudgedBy::Operators) {
      coverage.judged = stages_.own->judged;
      coverage.judgeable = stages_.own->judgeable;
      coverage.unjudged = stages_.own->unjudged;
      if (stages_.walk != nullptr) count_seen_from_outside();
      count_unjudged_before();
    } else if (stages_.walk != nullptr) {
      coverage.judged = stages_.walk->operators_covered;
      coverage.judgeable = stages_.walk->operators;
      coverage.values = stages_.walk->judged;
      coverage.unjudged = stages_.walk->unjudged;
    } else if (stages_.floors != nullptr) {
      coverage.judged = stages_.floors->judged;
      coverage.judgeable = stages_.floors->judgeable;
      coverage.unjudged = stages_.floors->unjudged;
      coverage.weights = std::max(coverage.weights, stages_.floors->weights);
      coverage.weights_compared =
          std::max(coverage.weights_compared, stages_.floors->weights_compared);
    }
  }

  // An operator without reference is judged by the values around it, and so is one that mine was
  // not seen to run.
  void count_seen_from_outside() {
    Coverage& coverage = verdict_.coverage;
    coverage.without_partner = stages_.walk->seen_from_outside;
    coverage.judgeable += stages_.walk->unseen;
    if (stages_.walk->unseen > 0)
      coverage.unjudged["golden's, without partner"] = stages_.walk->unseen;
    for (const auto& [op, reason] : stages_.own->unjudged_operators) {
      const size_t partner = stages_.pairing->golden_of[op];
      if (partner == kNone || !stages_.walk->covered[partner]) continue;
      ++coverage.judged;
      ++coverage.judged_around;
      if (--coverage.unjudged[reason] == 0) coverage.unjudged.erase(reason);
    }
  }

  void count_unjudged_before() {
    if (verdict_.candidates.empty()) return;
    const Finding& first = verdict_.candidates.front();
    std::set<size_t> operators;
    for (const OwnError& output : stages_.own->outputs) {
      if (output.state == OwnError::State::Judged || output.state == OwnError::State::Exact ||
          output.state == OwnError::State::NotPredictable ||
          output.op >= stages_.mine->operators.size())
        continue;
      const Operator& one = stages_.mine->operators[output.op];
      if (one.rank == first.rank && std::tie(one.step, one.time) < std::tie(first.step, first.time))
        operators.insert(output.op);
    }
    verdict_.coverage.unjudged_before = operators.size();
  }

  // What healthy runs differ by names the first value beyond it; without an order there is none.
  bool only_order_would_tell() const {
    return !verdict_.order_known && !verdict_.candidates.empty() &&
           std::ranges::all_of(verdict_.candidates, [](const Finding& finding) {
             return finding.kind == FindingKind::MeasuredFloor;
           });
  }

  void decide() {
    if (only_order_would_tell()) {
      verdict_.outcome = VerdictOutcome::CannotJudge;
      verdict_.reason =
          "values differ more from golden than healthy runs do, but the order of execution is not "
          "known on either side, so the first of them cannot be named (one is in " +
          first_place(verdict_.candidates) + ")";
      verdict_.confidence = Confidence::Low;
      verdict_.suspicions.insert(verdict_.suspicions.end(), verdict_.candidates.begin(),
                                 verdict_.candidates.end());
      verdict_.candidates.clear();
      return;
    }
    if (!verdict_.candidates.empty()) {
      verdict_.outcome = VerdictOutcome::FirstWrong;
      verdict_.confidence = verdict_.candidates.front().confidence;
      if (verdict_.order_known) find_power();
      if (stages_.inputs)
        verdict_.notes.push_back("from step " + std::to_string(stages_.inputs->step) +
                                 " on mine was not given what golden was: " + stages_.inputs->text);
      if (!undecided_.empty()) {
        verdict_.notes.push_back("the program differs in " +
                                 counted(undecided_.size(), "more place") +
                                 ", cannot judge there: first in " + first_place(undecided_));
      }
      return;
    }
    find_power();
    verdict_.obligations = clean_obligations(stages_, verdict_, undecided_);
    const auto open = std::ranges::find_if(verdict_.obligations,
                                           [](const Obligation& one) { return !one.open.empty(); });
    verdict_.outcome =
        open == verdict_.obligations.end() ? VerdictOutcome::Clean : VerdictOutcome::CannotJudge;
    if (verdict_.outcome == VerdictOutcome::CannotJudge) verdict_.reason = open->open;
    if (verdict_.outcome == VerdictOutcome::Clean) verdict_.clean_up_to = first_step_behind_all();
    if (verdict_.outcome != VerdictOutcome::Clean) verdict_.power = {};
    verdict_.coverage.values = std::max(verdict_.coverage.values, stages_.identical.values);
    verdict_.confidence = clean_confidence();
  }

  /// The first of the steps that were not judged, where no judged one comes behind it; -1: none.
  int64_t first_step_behind_all() const {
    if (stages_.inputs) return stages_.inputs->step;
    if (verdict_.unjudged_steps.empty() || verdict_.unjudged_steps.front().of != StepsOf::Golden)
      return -1;
    const int64_t first = verdict_.unjudged_steps.front().steps.front();
    const bool is_last = std::ranges::all_of(
        stages_.mine->calls, [&](const ModuleCall& call) { return call.step < first; });
    return is_last && first > 0 ? first : -1;
  }

  /// In front of what is wrong, where something is.
  template <typename Made>
  bool is_asked_about(const Made& one, uint64_t time) const {
    // Of steps that were put together all: their times are not the findings'.
    if (verdict_.candidates.empty() || stages_.steps_by_tokens) return true;
    const Finding& first = verdict_.candidates.front();
    return one.rank == first.rank && std::pair(one.step, time) < std::pair(first.step, first.time);
  }

  /// The largest of the errors that no limit would have shown, inside operators and between them.
  void find_power() {
    const auto consider = [&](double error, double allowed, const std::string& module, int64_t step,
                              const std::string& why, bool may_cancel) {
      Power& power = verdict_.power;
      if (!std::isfinite(error) || error <= 0) return;
      if (may_cancel && error > 1)
        ++power.cancelled;
      else if (!(error / allowed <= power.error / power.allowed))
        power = {error, module, step, allowed, why, power.cancelled};
    };
    if (verdict_.level == JudgedBy::Operators && stages_.own != nullptr) {
      for (const OwnError& output : stages_.own->outputs) {
        if (output.state != OwnError::State::Judged) continue;
        if (output.op != kNone && !is_asked_about(stages_.mine->operators[output.op],
                                                  stages_.mine->operators[output.op].time))
          continue;
        const auto [place, step] = place_of(output);
        // An operator's error is relative to its result, which may cancel.
        consider(own_error_limit(output.dtype) * output.floor_l2,
                 unseen_in(output.dtype, record_of(output)), place, step, "", true);
      }
    }
    if (stages_.walk == nullptr) return;
    for (const WalkStep& step : stages_.walk->steps) {
      const ModuleCall& call = stages_.mine->calls[step.call];
      const Use* use = use_of(step);
      if (step.on_path && step.reason.empty() && use != nullptr && is_asked_about(call, use->time))
        consider(stages_.walk->limit * step.noise_floor, unseen_in(step.type, use->record),
                 call.module, call.step, step.narrowed, stages_.across_engines);
    }
  }

  /// Of few values, as one number that is nearly zero, the size says nothing.
  double unseen_in(DType type, size_t record) const {
    if (stages_.mine->run != nullptr && record < stages_.mine->run->records.size()) {
      const InternedDims shape = stages_.mine->run->records[record].shape;
      if (shape && element_count(*shape).value_or(0) <= kFewToAverage) return 1;
    }
    const int bits = info(type).element_bits;
    return bits <= 8 ? 1 : bits <= 16 ? kUnseen16 : kUnseen32;
  }

  size_t record_of(const OwnError& output) const {
    if (output.op == kNone) return output.record;
    const std::vector<Use>& uses = stages_.mine->operators[output.op].outputs;
    return output.output < uses.size() ? uses[output.output].record : kNone;
  }

  /// (module, step); of an ATB operation (its node, step).
  std::pair<std::string, int64_t> place_of(const OwnError& output) const {
    if (output.op != kNone) {
      const Operator& one = stages_.mine->operators[output.op];
      return {one.module, one.step};
    }
    if (output.record == kNone) return {};
    const run::TensorRecord& record = stages_.mine->run->records[output.record];
    return {record.node, record.step};
  }

  /// Of z; where kernels round more than once, the limit of those without peers, which is the
  /// widest.
  double own_error_limit(DType type) const {
    const auto strict = stages_.own->strict.find(type);
    return strict == stages_.own->strict.end() || strict->second ? kOwnErrorLimit : kLoneLimit;
  }

  // More of golden's module calls, in the steps that mine has, have no partner than have one.
  bool sees_the_lesser_part() const {
    if (stages_.pairing == nullptr || stages_.across_engines) return false;
    const std::set<std::pair<int, int64_t>> captured = captured_steps(*stages_.mine);
    size_t seen = 0, unseen = 0;
    for (size_t i = 0; i < stages_.pairing->mine_call_of.size(); ++i) {
      const ModuleCall& call = stages_.golden->calls[i];
      if (stages_.pairing->mine_call_of[i] != kNone) {
        ++seen;
      } else if (captured.contains({call.rank, call.step})) {
        ++unseen;
      }
    }
    return unseen > seen;
  }

  Confidence clean_confidence() const {
    if (verdict_.outcome != VerdictOutcome::Clean || verdict_.level == JudgedBy::Layers ||
        is_measured(verdict_.level))
      return Confidence::Low;
    if (verdict_.level == JudgedBy::Identity) return Confidence::High;  // bit for bit
    if (sees_the_lesser_part()) return Confidence::Low;
    if (verdict_.level != JudgedBy::Operators || stages_.own == nullptr ||
        verdict_.coverage.weights_by_function > 0)
      return Confidence::Medium;
    if (verdict_.coverage.without_partner > verdict_.coverage.paired) return Confidence::Low;
    const bool strict =
        std::ranges::all_of(stages_.own->strict, [](const auto& type) { return type.second; });
    return strict && verdict_.coverage.around() == 0 ? Confidence::High : Confidence::Medium;
  }

  void list_records() {
    if (stages_.own != nullptr) {
      for (const OwnError& output : stages_.own->outputs) list_own_error(output);
    }
    if (stages_.walk != nullptr && (stages_.own == nullptr || stages_.across_engines)) {
      for (const WalkStep& step : stages_.walk->steps) list_step(step);
    } else if (stages_.own == nullptr && stages_.floors != nullptr) {
      for (const auto& [index, judgement] : stages_.floors->records) list_floor(index, judgement);
    }
    for (const Finding& finding : verdict_.candidates) {
      if (finding.mine_record == kNone) continue;
      Verdict::RecordJudgement& record = verdict_.records[finding.mine_record];
      record.verdict = judgement_of(finding.kind);
      record.confidence = confidence_name(finding.confidence);
    }
  }

  void list_own_error(const OwnError& output) {
    const bool judged =
        output.state == OwnError::State::Judged || output.state == OwnError::State::Exact;
    if (!judged || output.op >= stages_.mine->operators.size()) return;
    const Operator& one = stages_.mine->operators[output.op];
    if (output.output >= one.outputs.size() || one.outputs[output.output].record == kNone) return;
    Verdict::RecordJudgement& record = verdict_.records[one.outputs[output.output].record];
    record.err_own = output.relative_l2;
    record.noise_floor = output.floor_l2;
    record.own_source = OwnSource::Exact;
    record.verdict = RowJudgement::Noise;
    record.confidence = confidence_name(verdict_.confidence);
  }

  void list_step(const WalkStep& step) {
    const Use* use = use_of(step);
    if (!step.reason.empty() || use == nullptr || use->record == kNone) return;
    Verdict::RecordJudgement& record = verdict_.records[use->record];
    record.err_own = step.err_own;
    record.noise_floor = step.noise_floor;
    record.own_source = OwnSource::Replay;
    record.verdict = step.suspicious ? RowJudgement::OwnError : RowJudgement::Noise;
    record.confidence = confidence_name(Confidence::Medium);
  }

  void list_floor(size_t index, const FloorFindings::Judgement& judgement) {
    Verdict::RecordJudgement& record = verdict_.records[index];
    record.err_out = judgement.err_out;
    record.noise_floor = judgement.floor;
    record.own_source = OwnSource::Measured;
    record.verdict = judgement.beyond ? RowJudgement::Inherited : RowJudgement::Noise;
    record.confidence = confidence_name(Confidence::Low);
  }

  const Stages& stages_;
  Verdict verdict_;
  std::vector<Finding> suspicions_;
  std::vector<Finding> gaps_;
  std::map<ValueId, bool> boundaries_;
  std::vector<Finding> undecided_;  // suspicions that no replay could confirm or refute
};

}  // namespace

Verdict compose_verdict(const Stages& stages) { return Composer(stages).compose(); }

}  // namespace assay::locate
