// SPDX-License-Identifier: Apache-2.0
// The checks go from what the trees of modules tell to what has to be read.
#include "locate/verdict/same_model.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.hpp"
#include "locate/verdict/same_placement.hpp"
#include "measure/metrics.hpp"
#include "pair/ranks.hpp"
#include "run/load.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;
using topology::ModuleNode;

/// Below this share of common names two trees of modules are two models ...
constexpr double kCommonModules = 0.1;
/// ... where there are enough modules to tell.
constexpr size_t kFewestModules = 4;
/// Share of the weights that must be of another size, or unlike golden's, before it is the model
/// that differs.
constexpr double kMostWeights = 0.5;
constexpr size_t kFewestWeights = 3;
/// Weights that are read: spread over all that differ.
constexpr size_t kWeightsRead = 24;
/// Share of the weights that are read and must be unlike golden's.
constexpr double kMostUnlike = 0.75;
/// |cos| of two weights that have something to do with each other is above. Independent ones of N elements have 1 / sqrt(N).
constexpr double kUnlikeCosine = 0.5;
/// A weight of so few elements may be like or unlike another one by chance.
constexpr int64_t kFewestElements = 16;
/// Extremes of one weight in two types differ by less: half a unit in the last place of bfloat16,
/// and the same of golden's.
constexpr double kSameExtreme = 0x1p-7;

// ---- modules ----

std::map<std::string, std::string> module_types(const Program& program) {
  std::map<std::string, std::string> types;
  for (const ModuleCall& call : program.calls) types.emplace(call.module, call.type);
  return types;
}

std::optional<std::string> other_modules(const Program& golden, const Program& mine) {
  const auto theirs = module_types(golden);
  const auto ours = module_types(mine);
  const size_t fewest = std::min(theirs.size(), ours.size());
  if (fewest < kFewestModules) return std::nullopt;
  const auto common = static_cast<size_t>(std::ranges::count_if(ours, [&](const auto& module) {
    return !module.first.empty() && theirs.contains(module.first);
  }));
  if (static_cast<double>(common) >= kCommonModules * static_cast<double>(fewest))
    return std::nullopt;
  const auto type_of = [](const auto& types) {
    const auto root = types.find("");
    return root == types.end() || root->second.empty() ? std::string("model") : root->second;
  };
  const std::string kind = type_of(ours);
  const std::string what =
      kind == type_of(theirs)
          ? "the run under test holds other modules than golden, both of a " + kind
          : "the run under test is of another model (" + kind + ", golden's is " + type_of(theirs) +
                ")";
  return what + ": " + std::to_string(common) + " of its " + counted(ours.size(), "module") +
         " bear a name of golden's; --map pairs others";
}

/// How many numbered children each node has: "model.layers" -> 32, "model.layers.0.mlp.experts" ->
/// 8.
void count_lists(const ModuleNode& node, std::map<std::string, size_t>* lists) {
  size_t numbered = 0;
  for (const ModuleNode& child : node.children) {
    const std::string_view last = std::string_view(child.name).substr(child.name.rfind('.') + 1);
    const bool is_number =
        !last.empty() && last.find_first_not_of("0123456789") == std::string_view::npos;
    numbered += is_number ? 1 : 0;
    count_lists(child, lists);
  }
  if (numbered > 0) lists->emplace(node.name, numbered);
}

std::optional<std::string> other_layers(const run::Run& golden, const run::Run& mine) {
  if (!golden.topology || !mine.topology) return std::nullopt;
  std::map<std::string, size_t> theirs;
  std::map<std::string, size_t> ours;
  count_lists(*golden.topology, &theirs);
  count_lists(*mine.topology, &ours);
  for (const auto& [list, count] : ours) {
    const auto found = theirs.find(list);
    if (found == theirs.end() || found->second == count) continue;
    return "the run under test has " + counted(count, "module") + " in " +
           (list.empty() ? "the model" : list) + ", golden " + std::to_string(found->second);
  }
  return std::nullopt;
}

// ---- weights ----

struct WeightPair {
  std::string_view name;
  const TensorRecord* golden = nullptr;
  const TensorRecord* mine = nullptr;
};

std::vector<WeightPair> float_weights(const Program& golden, const Program& mine,
                                      const Pairing& pairing) {
  std::vector<WeightPair> pairs;
  for (const pair::LeafPair& one : pairing.leaves.pairs) {
    const WeightPair pair{one.name, &golden.run->records[one.golden], &mine.run->records[one.mine]};
    const auto is_real = [](const TensorRecord& record) {
      return record.shape && record.dtype && is_float(*record.dtype);
    };
    if (is_real(*pair.golden) && is_real(*pair.mine)) pairs.push_back(pair);
  }
  return pairs;
}

/// A matrix that is stored the other way round is of no other size.
bool has_other_sizes(const Dims& golden, const Dims& mine) {
  return !std::is_permutation(golden.begin(), golden.end(), mine.begin(), mine.end());
}

std::optional<std::string> other_sizes(const std::vector<WeightPair>& weights) {
  std::vector<const WeightPair*> other;
  for (const WeightPair& pair : weights) {
    if (has_other_sizes(*pair.golden->shape, *pair.mine->shape)) other.push_back(&pair);
  }
  if (other.size() < kFewestWeights ||
      static_cast<double>(other.size()) < kMostWeights * static_cast<double>(weights.size()))
    return std::nullopt;
  const WeightPair& first = *other.front();
  return "the run under test is of another size: " + std::string(first.name) + " is " +
         list_text(first.mine->shape->span()) + ", golden's " +
         list_text(first.golden->shape->span()) + ", and " + std::to_string(other.size() - 1) +
         " more of " + counted(weights.size(), "weight") + " differ in shape";
}

/// Every so many of a list, so that `most` are left.
/// A table that golden looks rows up in has fewer of them in mine: no token beyond has a partner.
/// More of them are padding.
std::optional<std::string> smaller_table(const Program& golden,
                                         const std::vector<WeightPair>& weights) {
  std::set<std::string_view> tables;
  for (const Operator& one : golden.operators) {
    if (!one.name.starts_with("aten.embedding.")) continue;
    for (const Use& use : one.inputs)
      if (use.slot == "weight") tables.insert(use.leaf);
  }
  for (const WeightPair& pair : weights) {
    const Dims& theirs = *pair.golden->shape;
    const Dims& ours = *pair.mine->shape;
    if (!tables.contains(pair.name) || theirs.size() != 2 || ours.size() != 2 ||
        theirs[1] != ours[1] || ours[0] >= theirs[0])
      continue;
    return "the run under test has another vocabulary, or fewer positions: " +
           std::string(pair.name) + " is " + list_text(ours.span()) + ", golden's " +
           list_text(theirs.span());
  }
  return std::nullopt;
}

template <typename T>
std::vector<T> spread(const std::vector<T>& all, size_t most) {
  const size_t step = (all.size() + most - 1) / std::max<size_t>(most, 1);
  std::vector<T> some;
  for (size_t i = 0; i < all.size(); i += std::max<size_t>(step, 1)) some.push_back(all[i]);
  return some;
}

/// Whether golden's weight is that of the run under test rounded to golden's type, and rounding
/// lost something.
enum class Rounded : uint8_t { No, Equal, Yes };

Result<Rounded> is_mine_rounded(const WeightPair& pair) {
  ASSAY_TRY(const Tensor golden, run::load_tensor(*pair.golden));
  ASSAY_TRY(const Tensor mine, run::load_tensor(*pair.mine));
  // The sides of the test are exchanged, so its units are those of golden's type: half of one is
  // one rounding.
  ASSAY_TRY(const WeightDifference rounded, weight_difference(mine.view, golden.view));
  if (rounded.shape_differs || rounded.half_ulp > kWeightLimit) return Rounded::No;
  return rounded.half_ulp > 0 ? Rounded::Yes : Rounded::Equal;
}

Result<std::optional<std::string>> exchanged_sides(const std::vector<WeightPair>& weights) {
  std::vector<WeightPair> narrower;
  for (const WeightPair& pair : weights) {
    if (info(*pair.golden->dtype).element_bits < info(*pair.mine->dtype).element_bits &&
        pair.golden->bytes && pair.mine->bytes)
      narrower.push_back(pair);
  }
  if (narrower.empty() ||
      static_cast<double>(narrower.size()) < kMostWeights * static_cast<double>(weights.size()))
    return std::optional<std::string>();
  bool lost = false;
  for (const WeightPair& pair : spread(narrower, kWeightsRead)) {
    ASSAY_TRY(const Rounded rounded, is_mine_rounded(pair));
    if (rounded == Rounded::No) return std::optional<std::string>();
    lost = lost || rounded == Rounded::Yes;
  }
  if (!lost) return std::optional<std::string>();
  return std::optional("golden's weights are those of the run under test, rounded to " +
                       std::string(name(*narrower.front().golden->dtype)) +
                       ": the two look exchanged");
}

/// Golden's weights by their statistics, to find one that stands in another one's place.
class KnownWeights {
 public:
  explicit KnownWeights(const std::vector<WeightPair>& weights) {
    for (const WeightPair& pair : weights) {
      if (pair.golden->stats) stats_.push_back(*pair.golden->stats);
    }
  }
  [[nodiscard]] bool hold(const stats::TensorStats& mine) const {
    return std::ranges::any_of(
        stats_, [&](const stats::TensorStats& golden) { return holds_same(golden, mine); });
  }
  /// The same values in some order, to the rounding of either side.
  static bool holds_same(const stats::TensorStats& golden, const stats::TensorStats& mine) {
    if (golden.count != mine.count) return false;
    const auto is_near = [](double a, double b, double share) {
      return std::abs(a - b) <= share * std::max(std::abs(a), std::abs(b));
    };
    // Roundings are independent, so the norm moves by far less than an element.
    const double norm =
        kSameExtreme / std::sqrt(std::max(static_cast<double>(golden.count), 1.0)) + 1e-6;
    return is_near(golden.l2_norm, mine.l2_norm, norm) &&
           is_near(golden.min, mine.min, kSameExtreme) &&
           is_near(golden.max, mine.max, kSameExtreme);
  }

 private:
  std::vector<stats::TensorStats> stats_;
};

Result<bool> is_unlike(const TensorRecord& golden, const TensorRecord& mine,
                       const KnownWeights& known) {
  ASSAY_TRY(const Tensor theirs, run::load_tensor(golden));
  ASSAY_TRY(const Tensor ours, run::load_tensor(mine));
  const measure::PairMetrics metrics =
      measure::compare_tensors(theirs.view, ours.view, {.kl_divergence = false});
  // NaN: one of them is all zeros, or not finite, which no other checkpoint is.
  if (!(std::abs(metrics.cosine_similarity) < kUnlikeCosine)) return false;
  return !KnownWeights::holds_same(metrics.golden, metrics.mine) && !known.hold(metrics.mine);
}

/// The weights that differ, each once, of which the values can be read.
std::vector<const Finding*> other_values(const Program& golden, const Program& mine,
                                         const PairTests& tests) {
  std::vector<const Finding*> findings;
  std::set<size_t> seen;
  for (const Finding& finding : tests.findings) {
    if (finding.kind != FindingKind::Weight || finding.mine_record == kNone ||
        finding.golden_record == kNone || !seen.insert(finding.mine_record).second)
      continue;
    const TensorRecord& theirs = golden.run->records[finding.golden_record];
    const TensorRecord& ours = mine.run->records[finding.mine_record];
    if (theirs.bytes && ours.bytes && theirs.shape && theirs.shape == ours.shape &&
        element_count(*theirs.shape).value_or(0) >= kFewestElements)
      findings.push_back(&finding);
  }
  return findings;
}

Result<std::optional<std::string>> other_checkpoint(const Program& golden, const Program& mine,
                                                    const PairTests& tests,
                                                    const std::vector<WeightPair>& weights) {
  const std::vector<const Finding*> differing = other_values(golden, mine, tests);
  if (differing.size() < kFewestWeights ||
      static_cast<double>(differing.size()) <
          kMostWeights * static_cast<double>(tests.weights_compared))
    return std::optional<std::string>();
  const KnownWeights known(weights);
  const std::vector<const Finding*> read = spread(differing, kWeightsRead);
  std::vector<const Finding*> unlike;
  for (const Finding* finding : read) {
    ASSAY_TRY(const bool is_other, is_unlike(golden.run->records[finding->golden_record],
                                             mine.run->records[finding->mine_record], known));
    if (is_other) unlike.push_back(finding);
  }
  if (static_cast<double>(unlike.size()) < kMostUnlike * static_cast<double>(read.size()))
    return std::optional<std::string>();
  const Finding& first = *unlike.front();
  return std::optional(
      "the run under test has another checkpoint: " + std::to_string(differing.size()) + " of " +
      counted(tests.weights_compared, "weight") +
      " are not golden's and have nothing in common with them, first " +
      (first.module.empty() ? "" : first.module + ".") + first.slot);
}

// ---- values dropped at random ----

/// 0 where the argument is absent or no number.
double number_of(const Operator& one, std::string_view name) {
  if (const auto* real = argument_of<double>(one.attributes, name)) return *real;
  const auto* integer = argument_of<int64_t>(one.attributes, name);
  return integer != nullptr ? static_cast<double>(*integer) : 0;
}

bool drops_values(const Operator& one) {
  if (one.name.find("bernoulli") != std::string::npos) return true;
  if (number_of(one, "dropout_p") > 0) return true;
  if (one.name.find("dropout") == std::string::npos || !(number_of(one, "p") > 0)) return false;
  const bool* trains = argument_of<bool>(one.attributes, "train");
  return trains == nullptr || *trains;
}

/// What a run drops; empty: nothing that is known. Of a run without operators its manifest tells.
std::string dropped_in(const Program& program) {
  const auto found = std::ranges::find_if(program.operators, drops_values);
  if (found != program.operators.end())
    return found->name + " in " + (found->module.empty() ? "the root" : found->module);
  const auto said = program.run->properties.find("config.dropout");
  const bool is_known = said != program.run->properties.end() && said->second != "null";
  return program.operators.empty() && is_known ? said->second : std::string();
}

std::optional<std::string> dropped_values(const Program& golden, const Program& mine) {
  const std::string theirs = dropped_in(golden);
  const std::string ours = dropped_in(mine);
  if (theirs.empty() && ours.empty()) return std::nullopt;
  const std::string who = theirs.empty() ? "the run under test drops"
                          : ours.empty() ? "golden drops"
                                         : "both runs drop";
  return who + " values at random (" + (ours.empty() ? theirs : ours) +
         "), as models do in training: call model.eval() before it runs";
}

}  // namespace

Result<std::optional<ModelDifference>> find_model_difference(const Program& golden,
                                                             const Program& mine,
                                                             const Pairing& pairing,
                                                             const PairTests& tests) {
  using Found = std::optional<ModelDifference>;
  if (const auto text = other_modules(golden, mine)) return Found(ModelDifference{*text});
  if (const auto text = other_layers(*golden.run, *mine.run)) return Found(ModelDifference{*text});
  if (const auto text = find_other_placement(golden, mine, pairing))
    return Found(ModelDifference{*text});
  // Of other numbers of ranks shards are put together elsewhere; of as many, which are cut alike by
  // now, the first rank's tell.
  if (pair::ranks_of(*golden.run).size() == pair::ranks_of(*mine.run).size()) {
    const std::vector<WeightPair> weights = float_weights(golden, mine, pairing);
    if (const auto text = other_sizes(weights)) return Found(ModelDifference{*text});
    if (const auto text = smaller_table(golden, weights)) return Found(ModelDifference{*text});
    ASSAY_TRY(const auto exchanged, exchanged_sides(weights));
    if (exchanged) return Found(ModelDifference{*exchanged, true});
    ASSAY_TRY(const auto checkpoint, other_checkpoint(golden, mine, tests, weights));
    if (checkpoint) return Found(ModelDifference{*checkpoint});
  }
  if (const auto text = dropped_values(golden, mine)) return Found(ModelDifference{*text});
  return Found();
}

}  // namespace assay::locate
