// SPDX-License-Identifier: Apache-2.0
// The order in which all is asked: own errors, pair tests, replay of golden's program where it
// decides, one verdict.
#include "locate/verdict/locate.hpp"

#include <algorithm>

#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "compare/resident_files.hpp"
#include "locate/judge/leaf_modules.hpp"
#include "locate/judge/learned_codes.hpp"
#include "locate/noise/narrow_products.hpp"
#include "locate/program/shards.hpp"
#include "locate/verdict/hidden_infinities.hpp"
#include "locate/verdict/locate_errors.hpp"
#include "locate/verdict/locate_hypotheses.hpp"
#include "locate/verdict/locate_identical.hpp"
#include "locate/verdict/nan_origin.hpp"
#include "locate/verdict/next_command.hpp"
#include "locate/verdict/obligations.hpp"
#include "locate/verdict/rank_divergence.hpp"
#include "locate/verdict/same_model.hpp"
#include "locate/verdict/sentence.hpp"
#include "locate/verdict/slice.hpp"
#include "locate/verdict/step_modules.hpp"
#include "locate/verdict/token_choices.hpp"
#include "locate/verdict/verdict.hpp"
#include "pair/paired_runs.hpp"
#include "run/strided_payload.hpp"

namespace assay::locate {
namespace {

constexpr uint64_t kShareOfFiles = 8;  // file pages beside working tensors

/// Values behind products, spread over the run.
std::vector<size_t> probes_of(const Walk& walk) {
  constexpr size_t kProbes = 64;
  std::vector<size_t> all, some;
  for (size_t i = 0; i < walk.steps.size(); ++i) {
    if (walk.steps[i].by_product && walk.steps[i].reason.empty()) all.push_back(i);
  }
  const size_t count = std::min(all.size(), kProbes);
  for (size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

class Locator {
 public:
  /// across  what the run under test's modules are, when its engine is not golden's; null: the same
  ///         engine
  /// steps   the run under test's modules in golden's steps, when its own hold other tokens; null:
  ///         they do not
  Locator(const run::Run& golden, const run::Run& mine, const LocateOptions& options,
          const EngineModules* across = nullptr, const StepModules* steps = nullptr)
      : options_(options),
        across_(across),
        steps_(steps),
        golden_(make_program(golden, options.engines)),
        mine_(make_program(mine, options.engines)) {
    if (steps_ != nullptr) steps_->describe(&mine_);
    if (across_ == nullptr) return;
    across_->describe(&mine_);
    across_->add_inner_values(&golden_);
  }

  Result<Verdict> locate() {
    if (!options_.slice.empty()) {
      ASSAY_TRY(slice_, Slice::make(mine_, options_.slice));
    }
    if (options_.own_error) {
      ASSAY_TRY(own_, find_own_errors(mine_, "own errors of mine", false));
      // Golden's values decide nothing about mine: large products may be judged by sums.
      if (own_) mine_.products = own_->products;
      if (!golden_.run->has(run::Trait::WithoutValues)) {
        ASSAY_TRY(golden_own_, find_own_errors(golden_, "own errors of golden", true));
      }
    }
    if (across_ == nullptr) learn_codes(golden_, &mine_);
    pairing_ = pair_programs(golden_, mine_);
    join_shards(golden_, pairing_, &mine_);
    if (mine_.is_shared) pairing_ = pair_programs(golden_, mine_);
    inputs_ = find_input_difference(golden_, mine_, pairing_);
    ASSAY_TRY(tests_, test_pairs(golden_, mine_, pairing_, options_.interrupted));
    mine_.own = tests_.own;
    if (across_ == nullptr) {
      ASSAY_TRY(const auto difference, find_model_difference(golden_, mine_, pairing_, tests_));
      if (difference) return verdict_on_other_models(*difference);
    }
    if (needs_walk()) {
      ASSAY_TRY(walk_, walk_as_products_are());
    }
    describe_products();
    if (across_ != nullptr) name_places();
    if (steps_ != nullptr) name_steps();
    ASSAY_TRY_STATUS(judge_without_program());
    ASSAY_TRY(nan_origins_, find_nan_origins(*golden_.run, *mine_.run, options_.jobs,
                                             options_.interrupted, options_.seen));
    forgive_hidden_infinities();
    ASSAY_TRY(rank_divergence_,
              find_rank_divergence(*golden_.run, *mine_.run, options_.interrupted));
    Verdict verdict = compose_verdict(stages());
    for (const size_t record : nan_origins_.inherited)
      verdict.records[record].verdict = RowJudgement::NanInherited;
    add_errors_against_golden(golden_, mine_, pairing_, &verdict);
    add_hypotheses(golden_, mine_, walk_ ? walk_->references : std::map<size_t, Tensor>(),
                   &verdict);
    add_failed_parts(own_, "the run under test", &verdict);
    add_failed_parts(golden_own_, "golden", &verdict);
    return verdict;
  }

 private:
  [[nodiscard]] Verdict verdict_on_other_models(const ModelDifference& difference) const {
    Verdict verdict;
    verdict.golden_level = golden_.level;
    verdict.mine_level = mine_.level;
    verdict.order_known = mine_.run->order_known;
    verdict.obligations = {{std::string(kModelsAreTheSame), difference.text}};
    verdict.reason = difference.text;
    if (difference.exchanged)
      verdict.next =
          "assay locate " + shell_quote(mine_.run->path) + " " + shell_quote(golden_.run->path);
    return verdict;
  }

  Result<std::optional<OwnErrors>> find_own_errors(const Program& program, std::string_view stage,
                                                   bool by_sums) const {
    OwnErrorOptions options;
    options.by_sums = by_sums;
    options.parts = options_.parts;
    options.jobs = options_.jobs;
    options.max_memory = options_.max_memory / 2;
    options.interrupted = options_.interrupted;
    if (options_.progress) {
      options.progress = [this, stage](size_t done, size_t total) {
        options_.progress(stage, done, total);
      };
    }
    if (program.level == CaptureLevel::Operators) return own_errors(program, options);
    if (program.run->has(run::Trait::AtbOperations)) {
      ASSAY_TRY(OwnErrors errors, own_errors_of_operations(*program.run, options));
      if (errors.judged > 0) return errors;  // a dump without parameters says nothing
    }
    return std::optional<OwnErrors>();
  }

  // Modules of known classes need no golden; everything else is held against what healthy runs
  // differ by.
  Status judge_without_program() {
    if (options_.own_error && !own_ && !walk_) {
      OwnErrorOptions options;
      options.jobs = options_.jobs;
      options.max_memory = options_.max_memory / 2;
      options.interrupted = options_.interrupted;
      ASSAY_TRY(leaves_, judge_leaf_modules(mine_, options));
    }
    const bool has_program = golden_.level == CaptureLevel::Operators && !golden_.lacks_leaves;
    if (options_.floors != nullptr && !walk_ && !(own_ && has_program)) {
      ASSAY_TRY(floors_, judge_by_floors(*golden_.run, *mine_.run, *options_.floors,
                                         {.jobs = options_.jobs,
                                          .interrupted = options_.interrupted,
                                          .judged_already = &leaves_.records}));
    }
    return {};
  }

  // A mine without operators is judged by replaying golden's; one with operators where the programs
  // differ, and before it is called clean: casts, and storages that nobody was seen to write, show
  // in no operator's own error.
  bool needs_walk() const {
    if (golden_.level != CaptureLevel::Operators || golden_.lacks_leaves || mine_.calls.empty() ||
        !mine_.has_bytes)
      return false;
    if (mine_.level != CaptureLevel::Operators || is_judged_by_modules()) return true;
    if (inputs_ && inputs_->shape_differs) return false;
    // An operator that is wrong by itself needs no second witness. What else differs may be
    // written otherwise.
    const auto is_hard = [](const Finding& finding) { return finding.hard; };
    return !tests_.findings.empty() || !own_ || std::ranges::none_of(own_->findings, is_hard);
  }

  /// Below the level of operators golden's program tells whether the run under test narrows the
  /// operands of products: most values behind products are then beyond what float32 explains, and
  /// what a narrower type makes of them is of their size and direction.
  Result<Walk> walk_as_products_are() {
    WalkOptions options = walk_options();
    options.stops_at_narrow_products = mine_.products == ProductType::Float32;
    ASSAY_TRY(Walk plain, walk(golden_, mine_, pairing_, options));
    if (!options.stops_at_narrow_products || !plain.are_narrow) return plain;
    options.stops_at_narrow_products = false;
    options.probes = probes_of(plain);
    std::vector<ProductType> types(kNarrowProducts.begin(), kNarrowProducts.end());
    // Of products that are exact by themselves only the smallest difference may be one of operands.
    if (own_) types = {ProductType::BFloat16Pairs};
    types.insert(types.end(), kNarrowActivations.begin(), kNarrowActivations.end());
    for (const ProductType type : types) {
      mine_.products = type;
      ASSAY_TRY(const Walk probe, walk(golden_, mine_, pairing_, options));
      if (probe.are_explained) break;
      mine_.products = ProductType::Float32;
    }
    options.probes.clear();
    return walk(golden_, mine_, pairing_, options);
  }

  void describe_products() {
    if (mine_.products == ProductType::Float32) return;
    std::string note =
        "operands of float32 products are rounded to " + std::string(product_name(mine_.products));
    if (own_ && !own_->narrow_kinds.empty()) note += " (" + own_->narrow_kinds + ")";
    const auto said = mine_.run->properties.find("config.fp32_precision");
    if (said != mine_.run->properties.end() && !said->second.empty())
      note += "; torch says: " + said->second;
    tests_.notes.push_back(std::move(note));
  }

  bool is_judged_by_modules() const {
    return across_ != nullptr ||
           ((steps_ != nullptr || mine_.is_shared) && mine_.level == CaptureLevel::Operators);
  }

  WalkOptions walk_options() const {
    WalkOptions options;
    options.level = is_judged_by_modules() ? CaptureLevel::Leaves : mine_.level;
    options.jobs = options_.jobs;
    options.max_memory = options_.max_memory;
    options.interrupted = options_.interrupted;
    options.padded = !tests_.padded.empty();
    for (const Finding& finding : tests_.findings) {
      if (finding.kind == FindingKind::Weight && has_values_of_golden(finding))
        options.other_leaves.push_back(other_leaf(finding));
      if (finding.kind == FindingKind::Attribute && finding.golden_operator != kNone)
        options.other_arguments.push_back({finding.mine_operator, finding.golden_operator});
    }
    if (options_.progress) {
      options.progress = [this](size_t done, size_t total) {
        options_.progress("replay of golden's program", done, total);
      };
    }
    return options;
  }

  /// As many as golden's weight: no shard and no part of it, which are joined to be compared.
  bool has_values_of_golden(const Finding& finding) const {
    if (finding.golden_record == kNone || finding.mine_record == kNone) return false;
    const InternedDims golden = golden_.run->records[finding.golden_record].shape;
    const InternedDims mine = mine_.run->records[finding.mine_record].shape;
    return golden && mine && element_count(*golden) == element_count(*mine);
  }

  OtherLeaf other_leaf(const Finding& finding) const {
    OtherLeaf leaf;
    leaf.name = finding.module.empty() ? finding.slot : finding.module + '.' + finding.slot;
    leaf.module = finding.module;
    leaf.mine_record = finding.mine_record;
    const std::vector<run::TensorRecord>& records = golden_.run->records;
    for (const auto& [name, record] : golden_.leaves) {
      // A table that is also the head has two names, and may have two records.
      if (record == finding.golden_record ||
          run::has_same_payload(records[record], records[finding.golden_record]))
        leaf.golden.push_back(name);
    }
    const run::TensorRecord& mine = mine_.run->records[finding.mine_record];
    leaf.buffer = mine.role == Role::Buffer;
    leaf.other_shape = mine.shape != records[finding.golden_record].shape;
    return leaf;
  }

  /// Findings say where they are in the captured graph, and stand in its order.
  void name_places() {
    const auto name = [this](Finding& finding) { across_->complete(golden_, mine_, &finding); };
    std::ranges::for_each(tests_.findings, name);
    if (walk_) std::ranges::for_each(walk_->findings, name);
    if (own_) std::ranges::for_each(own_->findings, name);
    tests_.notes.insert(tests_.notes.begin(), across_->notes().begin(), across_->notes().end());
  }

  void add_failed_parts(const std::optional<OwnErrors>& errors, const std::string& side,
                        Verdict* verdict) const {
    if (!errors) return;
    for (const auto& [why, count] : errors->failed_parts)
      verdict->failed_parts.push_back(counted(count, "operator") + " of " + side +
                                      " could not be judged on their own inputs: " + why);
  }

  void forgive_hidden_infinities() {
    if (!walk_) return;
    const std::vector<Finding> hidden = take_hidden_infinities(mine_, *walk_, &nan_origins_);
    if (hidden.empty()) return;
    const Finding& first = hidden.front();
    tests_.notes.push_back(counted(hidden.size(), "operator") +
                           " made infinities that its module hides: first " + place_of(first) +
                           ", " + first.detail + "; the module's output is golden's");
  }

  /// Findings in golden's steps stand where mine computed their tokens.
  void name_steps() {
    for (Finding& finding : tests_.findings) steps_->complete(&finding);
    if (walk_) {
      for (Finding& finding : walk_->findings) steps_->complete(&finding);
    }
    tests_.notes.insert(tests_.notes.begin(), steps_->notes().begin(), steps_->notes().end());
  }

  Stages stages() const {
    Stages stages;
    stages.across_engines = is_judged_by_modules();
    if (across_ != nullptr) stages.missing = across_->missing();
    stages.order_known = mine_.run->order_known;
    stages.golden = &golden_;
    stages.mine = &mine_;
    stages.pairing = &pairing_;
    stages.tests = &tests_;
    if (own_) stages.own = &*own_;
    if (golden_own_) stages.golden_own = &*golden_own_;
    if (walk_) stages.walk = &*walk_;
    if (floors_) stages.floors = &*floors_;
    stages.more = nan_origins_.findings;
    stages.more.insert(stages.more.end(), rank_divergence_.begin(), rank_divergence_.end());
    stages.tokens = find_token_choices(golden_, mine_, inputs_);
    stages.more.insert(stages.more.end(), leaves_.findings.begin(), leaves_.findings.end());
    stages.more_coarse = leaves_.coarse;
    if (!own_ && !walk_ && !floors_ && (steps_ == nullptr || !steps_->is_partial()))
      stages.identical = find_identical_values(*golden_.run, *mine_.run);
    stages.inputs = inputs_;
    stages.steps_by_tokens = across_ != nullptr || steps_ != nullptr;
    if (steps_ != nullptr) {
      stages.missing = steps_->missing();
      stages.unpaired_steps = steps_->unpaired();
    }
    if (slice_) stages.in_slice = [this](const Finding& finding) { return slice_->holds(finding); };
    return stages;
  }

  const LocateOptions& options_;
  const EngineModules* across_;
  const StepModules* steps_;
  Program golden_;
  Program mine_;
  std::optional<Slice> slice_;
  std::optional<OwnErrors> own_;
  std::optional<OwnErrors> golden_own_;
  Pairing pairing_;
  std::optional<InputDifference> inputs_;
  PairTests tests_;
  std::optional<Walk> walk_;
  LeafErrors leaves_;
  std::optional<FloorFindings> floors_;
  NanOrigins nan_origins_;
  std::vector<Finding> rank_divergence_;
};

/// The verdict on two runs of one engine.
Result<Verdict> locate_by_steps(const run::Run& golden, const run::Run& mine,
                                const pair::Correspondence& pairs, const LocateOptions& options) {
  if (pairs.steps.by_number) return Locator(golden, mine, options).locate();
  const StepModules modules(golden, mine, pairs);
  ASSAY_TRY(Verdict verdict, Locator(golden, modules.run(), options, nullptr, &modules).locate());
  modules.put_back(&verdict);
  return verdict;
}

/// Ranks, steps and modules are called as mine calls them.
void use_names_of_mine(const pair::PairedRuns& runs, Verdict* verdict) {
  for (std::vector<Finding>* list : {&verdict->candidates, &verdict->suspicions}) {
    for (Finding& finding : *list) {
      finding.rank = runs.rank_of_mine(finding.rank);
      finding.step = runs.step_of_mine(finding.step);
      for (std::string* name : {&finding.module, &finding.also, &finding.node})
        *name = runs.name_of_mine(*name);
    }
  }
  for (ChainLink& link : verdict->chain) {
    link.step = runs.step_of_mine(link.step);
    link.module = runs.name_of_mine(link.module);
  }
  TokenChoices& tokens = verdict->tokens;
  for (TokenChoice& choice : tokens.choices) choice.step = runs.step_of_mine(choice.step);
  for (UnjudgedSteps& unjudged : verdict->unjudged_steps) {
    if (unjudged.of == StepsOf::Golden) continue;
    for (int64_t& step : unjudged.steps) step = runs.step_of_mine(step);
  }
  for (int64_t* step : {&tokens.first.step, &tokens.other_inputs_from, &verdict->clean_up_to}) {
    if (*step >= 0) *step = runs.step_of_mine(*step);
  }
}

/// Moves records of modules to the captured ones, and to the side that the caller has as mine.
///
/// turned   the caller's golden is the engine's run
void put_on_sides(const EngineModules& modules, bool turned, std::string_view engine,
                  Verdict* verdict) {
  const auto captured = [&](size_t record) {
    const EnginePlace* place = modules.place_of(record);
    return place == nullptr ? record : turned ? place->golden : place->record;
  };
  for (std::vector<Finding>* list :
       {&verdict->candidates, &verdict->suspicions, &verdict->golden_findings}) {
    for (Finding& finding : *list) {
      const EnginePlace* place = modules.place_of(finding.mine_record);
      if (place == nullptr) continue;
      finding.mine_record = turned ? place->golden : place->record;
      if (turned) finding.golden_record = place->record;
    }
  }
  std::map<size_t, Verdict::RecordJudgement> records;
  for (const auto& [record, judgement] : verdict->records) {
    const bool made = modules.place_of(record) != nullptr;
    const size_t at = captured(record);
    if (at == kNone || (turned && !made)) continue;
    // What golden's program says of a value comes before what its own operator does.
    if (made || !records.contains(at)) records.insert_or_assign(at, judgement);
  }
  verdict->records = std::move(records);
  if (turned) {
    verdict->notes.insert(
        verdict->notes.begin(),
        "golden is the " + std::string(engine) +
            " run, which knows no modules: the run under test's program was replayed on "
            "golden's values, and what is said of \"mine\" above is golden's");
    std::swap(verdict->golden_level, verdict->mine_level);
    for (UnjudgedSteps& unjudged : verdict->unjudged_steps) {
      if (unjudged.of != StepsOf::Both)
        unjudged.of = unjudged.of == StepsOf::Golden ? StepsOf::Mine : StepsOf::Golden;
    }
  }
}

/// One of the two is of another engine. The program is that of the run with modules, whichever side
/// it is on.
Result<Verdict> locate_across_engines(const run::Run& golden, const run::Run& mine,
                                      const pair::EngineAlignment& alignment,
                                      const LocateOptions& options) {
  const Engine* engine = pair::engine_between(golden, mine, options.engines);
  if (engine == nullptr)
    return fail(Errc::Unsupported, "the runs are of engines that cannot be held together");
  const bool turned = engine->made(golden);
  const std::unique_ptr<const EngineModules> modules =
      engine->modules(turned ? mine : golden, turned ? golden : mine, alignment);
  ASSAY_TRY(Verdict verdict,
            Locator(turned ? mine : golden, modules->run(), options, modules.get()).locate());
  put_on_sides(*modules, turned, engine->name(), &verdict);
  return verdict;
}

Result<Verdict> locate_whole(const run::Run& golden, const run::Run& mine,
                             const pair::Correspondence& pairs, const LocateOptions& options) {
  compare::ResidentFiles files(options.max_memory / kShareOfFiles);
  files.add(golden);
  files.add(mine);
  if (pairs.engine != nullptr) return locate_across_engines(golden, mine, *pairs.engine, options);
  if (!pair::PairedRuns::are_needed(pairs)) return locate_by_steps(golden, mine, pairs, options);
  ASSAY_TRY(const pair::PairedRuns runs, pair::PairedRuns::make(golden, mine, pairs));
  ASSAY_TRY(Verdict verdict, locate_by_steps(runs.golden(), runs.mine(), pairs, options));
  use_names_of_mine(runs, &verdict);
  return verdict;
}

}  // namespace

// Damage accuses nobody: what the capture wrote is not there.
std::optional<Verdict> refuse_damaged(const run::Run& golden, const run::Run& mine) {
  for (const auto& [run, side] :
       {std::pair(&golden, "golden is"), std::pair(&mine, "the run under test is")}) {
    const std::string damage = run->first_damage();
    if (damage.empty()) continue;
    Verdict verdict;
    verdict.reason = std::string(side) + " damaged: " + damage;
    verdict.obligations.push_back({std::string(kRunsAreWhole), verdict.reason});
    verdict.next = "assay verify " + shell_quote(run->path);
    return verdict;
  }
  return std::nullopt;
}

Result<Verdict> locate(const run::Run& golden, const run::Run& mine,
                       const pair::Correspondence& pairs, const LocateOptions& options) {
  if (std::optional<Verdict> refused = refuse_damaged(golden, mine)) return *std::move(refused);
  ASSAY_TRY(Verdict verdict, locate_whole(golden, mine, pairs, options));
  if (std::optional<Verdict> refused = refuse_damaged(golden, mine)) return *std::move(refused);
  if (verdict.next.empty()) add_next_command(golden, mine, options.asked, &verdict);
  return verdict;
}

}  // namespace assay::locate
