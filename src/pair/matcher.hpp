// SPDX-License-Identifier: Apache-2.0
// The work of match_runs(), a part a file: matcher_align.cpp (ranks, tokens), matcher_explicit.cpp,
// matcher_policies.cpp (every pair that a rule makes), matcher_one_to_one.cpp (each tensor at most
// once), matcher_values.cpp (what values teach), matcher_ranks.cpp (shards), and order and
// leftovers in match.cpp.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pair/by_value.hpp"
#include "pair/match.hpp"
#include "pair/merge_ranks.hpp"
#include "pair/policies.hpp"
#include "pair/side.hpp"
#include "pair/step_tokens.hpp"
#include "pair/tokens.hpp"
#include "pair/tree.hpp"
#include "tensor/node.hpp"

namespace assay::pair {

// How sure a rule is before anybody looked at values.
inline constexpr double kTableConfidence = 0.9;     // a table names both sides
inline constexpr double kPositionConfidence = 0.7;  // as many of one type, in order

/// False for a leaf that never was a tensor (None, a number): it has no partner to look for.
[[nodiscard]] bool is_tensor(const run::TensorRecord& record);
struct PlacePair {
  int64_t token = 0;
  Place golden;  // rank of the group's first
  Place mine;
  const StepRows* rows = nullptr;  // tokens that the two steps have in common; null: all
};

/// A pair of tensors that holds for every token of two trees.
struct LearnedRule {
  int golden = 0;  // node
  std::string golden_slot;
  int mine = 0;
  std::string mine_slot;
  double confidence = 0;
  Role golden_role = Role::Output;
  Role mine_role = Role::Output;
};

/// What is known about a pair of trees, whatever the token.
struct TreeState {
  NodePairs rules;
  std::vector<LearnedRule> learned;
  bool is_learned = false;
};

class Matcher {
 public:
  /// All outlive this.
  Matcher(const run::Run& golden, const run::Run& mine, const Correspondence& pairs,
          const MatchOptions& options);
  Result<Matching> match();
  /// The pairs that the user named, and no others.
  Result<Matching> match_named();

 private:
  void group_tensors();
  /// Of ranks that are compared together, a node that the first one has not stands with the first
  /// one's: an expert, say, that another rank holds.
  void gather_ranks();
  static void gather_ranks(MatchSide& side, const std::vector<int>& ranks);

  // ---- alignment of ranks and tokens ----

  Status use_ranks();
  // Elements of the first layer's output in a place of mine; nothing when it is not there.
  std::optional<int64_t> first_layer_elements(MatchSide& side, const Place& place);
  TokenTable token_table(MatchSide& side, MatchSide& other);
  // Whether the decoder's run 1 is the step after run 0: its sequence is longer by one.
  static int decoder_goes_on(const MatchSide& side, int rank);
  std::vector<TokenPlace> places_of(MatchSide& side, TokenTable table);
  void add_token_pair(const TokenPlace& golden, const TokenPlace& mine, int64_t token);
  Status align_tokens();
  // Steps of PyTorch that hold other tokens than the other side's of the same number. False: none
  // do.
  bool align_rows();
  void match_place(const PlacePair& places);
  // Tensors that are in pairs with other ranks are free for these places.
  void match_again(const PlacePair& places);
  // Cuts the pairs from `first` on down to the tokens that both steps hold; drops those that have
  // none.
  void keep_common_rows(const StepRows& rows, size_t first);
  // A step's tensors take part in one pair for each step that has tokens of it.
  static std::vector<size_t> release(MatchSide& side, const Place& place);
  static std::set<int64_t> steps_in(const std::vector<TokenPlace>& places);
  void note_table(const std::string& side, TokenTable table);
  void note_missing_tokens(const std::vector<TokenPlace>& places,
                           const std::vector<TokenPlace>& others, const std::string& side);
  // The user's pairs name folders. Of an ATB folder with both models, token 0 of PyTorch is the
  // prompt's and every other one the decoder's.
  Status map_tokens(const std::vector<TokenPlace>& golden, const std::vector<TokenPlace>& mine);
  void name_layer_types();

  // ---- explicit pairs ----

  // Shards in order of their ranks when the user wants several records to become one.
  static std::vector<size_t> one_a_rank(const run::Run& run, std::vector<size_t> records);
  Status match_explicit();
  // Several records a name: tokens, ranks, slots pair with their equals.
  Status add_named(const ExplicitPair& wanted, const std::vector<size_t>& golden_found,
                   const std::vector<size_t>& mine_found);
  Status add_wanted(const ExplicitPair& wanted, size_t golden, size_t mine);
  Status add_merged(const ExplicitPair& wanted, const std::vector<size_t>& golden_found,
                    const std::vector<size_t>& mine_found);
  static Status add_steps(MatchSide& side, const std::vector<RecipeStep>& steps, Recipe* recipe);
  static bool is_trivial(const Recipe& recipe);
  void set_recipes(RecordPair* pair, Recipe golden, Recipe mine);

  // ---- pairs of records ----

  void add(size_t golden, size_t mine, Rule rule, double confidence, bool speculative = false);
  // Pairs two records that a rule names when their shapes can belong together. A tensor with one
  // row belongs to the last row of one with many: a head that computes the last position only.
  bool add_fitting(size_t golden, size_t mine, Rule rule, double confidence);
  // As many elements, or a whole number of shards of the other.
  [[nodiscard]] bool fits(const Dims& golden, const Dims& mine) const;

  // ---- rules between trees ----

  struct Trees {
    const Tree* golden = nullptr;
    const Tree* mine = nullptr;
    TreeState* state = nullptr;
  };
  TreePair tree_pair(size_t golden, size_t mine) const;
  Trees trees_at(const PlacePair& places);
  // The rules of the wanted level, every pair they make.
  [[nodiscard]] NodePairs policy_pairs(const TreePair& trees) const;
  // The same rules for pairing every tensor once: the most specific first.
  [[nodiscard]] static NodePairs ordered_pairs(const TreePair& trees);
  static bool is_strong(Rule rule);
  // Names of golden's q, k and v projections keep only the part of a fused result that is theirs.
  void filter_fused(const std::vector<size_t>& golden, std::vector<size_t>* mine) const;

  // ---- every pair that a rule makes ----

  void match_place_by_policy(const PlacePair& places);
  void apply_policy(const NodePair& pair, const Trees& trees, const NodeRecords& golden_nodes,
                    const NodeRecords& mine_nodes);
  // A pair of the level whatever its shapes, with the last position cut out where that makes it
  // fit.
  void add_level_pair(size_t golden, size_t mine, Rule rule);
  // One of all combinations: the report leaves it out when the shapes do not fit, and its number
  // stays taken. The last position is cut out where that makes it fit.
  void add_tried_pair(size_t golden, size_t mine, Rule rule);
  // Each golden tensor with the one tensor of mine that its shape fits.
  void add_only_fitting(const std::vector<size_t>& golden, const std::vector<size_t>& mine,
                        Rule rule);
  // What rotary embeddings of PyTorch compute (cos, sin of all positions) against what the
  // operation of ATB is given: cosine, sine and the length of the sequence.
  void add_rope(const std::vector<size_t>& golden, const std::vector<size_t>& mine);
  // At layer and module level only the nodes that the level is about are candidates.
  void count_levels();
  void count_level_side(Side name_of_side, const MatchSide& side, const Tree& tree,
                        const Place& place);
  void count(Side side, size_t record, bool matched, const std::string& reason);

  // ---- each tensor at most once ----

  [[nodiscard]] bool is_candidate(const run::TensorRecord& record) const;
  void match_place_one_to_one(const PlacePair& places);
  static bool is_single(const NodeRecords& nodes);
  // Equal role, call and slot first; then, when as many are left on both sides, by position.
  void pair_slots(const std::vector<size_t>& golden_records,
                  const std::vector<size_t>& mine_records, Rule rule, double confidence);
  static void sort_by_slot(const run::Run& run, std::vector<size_t>* records);
  // Rules for nodes whose name the other side does not know.
  // strong   the rules that need no look at values
  void apply_rules(const Trees& trees, const PlacePair& places, bool strong);
  // False when both nodes have one output and their sizes cannot belong together.
  bool shapes_fit(const std::vector<size_t>& golden_records,
                  const std::vector<size_t>& mine_records);
  void apply_cross_rule(const NodePair& pair, const std::string& golden_name,
                        const std::string& mine_name, const NodeRecords& golden_nodes,
                        const NodeRecords& mine_nodes, double confidence);

  // ---- what values teach ----

  // The way from a layer to a node below it, by place among siblings: "1.3".
  static std::string way_below(const Tree& tree, int layer, int node);
  static int follow(const Tree& tree, int layer, std::string_view way);
  std::vector<size_t> unused_outputs_below(const MatchSide& side, const Tree& tree, int layer,
                                           const NodeRecords& nodes) const;
  [[nodiscard]] ValueMatchOptions value_options() const;
  // Looks at the values of a few layers; what corresponds there corresponds in all of them.
  void learn(const Trees& trees, const PlacePair& places);
  static std::map<std::string, int> index_of(const Tree& tree, int layer);
  static std::optional<size_t> unused_at(const MatchSide& side, const NodeRecords& nodes,
                                         const std::string& node, Role role,
                                         const std::string& slot);
  void apply_learned(const Trees& trees, const PlacePair& places);
  // The records that nothing has paired yet, in execution order.
  std::vector<size_t> leftovers(const MatchSide& side, const NodeRecords& nodes) const;
  // A tensor that is handed on appears several times; who made it stands for the others.
  void keep_first_of_equals(const run::Run& run, std::vector<size_t>* records) const;
  // Inputs of PyTorch's modules. Some are the result of code outside of modules, which ATB has
  // operations for: what attention gives to o_proj, the sum before the second norm.
  [[nodiscard]] std::vector<size_t> unused_inputs(const MatchSide& side,
                                                  const NodeRecords& nodes) const;
  // Pairs each content that is left once, PyTorch's inputs included.
  void pair_contents(const Trees& trees, const PlacePair& places);
  static run::Run as_outputs(const run::Run& run, const std::vector<size_t>& records);
  static std::vector<size_t> counted(size_t count);
  // The same two nodes belong together in the other tokens of these trees.
  void teach(const Trees& trees, size_t golden, size_t mine, double confidence);
  // What values found in the first token is a rule for the other tokens of the same trees.
  /// Tensors of files of other names that have one key in both, as in two checkpoints or two npz.
  void pair_equal_keys(const NodeRecords& golden_nodes, const NodeRecords& mine_nodes);
  /// Keys of tensors in files without those that occur twice.
  [[nodiscard]] std::map<std::string, size_t> unused_keys(const MatchSide& side,
                                                          const NodeRecords& nodes) const;
  void pair_leftovers_by_value(const Trees& trees, const PlacePair& places);

  // ---- shards ----

  // Several ranks against fewer: every pair of the first ranks becomes one of all their shards.
  void merge_ranks();
  struct ShardFindings {
    size_t doubtful = 0;  // pairs
    std::string first_problem;
  };
  void merge_group(const RankGroup& group, const std::vector<RecordPair*>& pairs,
                   ShardFindings* found);

  // ---- order, what is left alone ----

  void list_leftovers();
  void list_side_leftovers(Side name_of_side, const MatchSide& side,
                           const std::set<Place>& compared,
                           const std::set<std::pair<Place, InternedText>>& paired);
  std::string place_reason(const MatchSide& side, const Place& place,
                           const std::string& other) const;
  static std::string leftover_reason(const run::TensorRecord& record, const std::string& other,
                                     bool node_is_paired, bool other_has_node);
  void finish();

  const Correspondence& whole_;
  const MatchOptions& options_;
  const MappingTables& tables_;
  const bool levels_;
  MatchSide golden_;
  MatchSide mine_;
  bool crosses_ = false;  // ATB against another layout
  bool outputs_only_ = false;
  bool by_policy_ = false;  // every pair that a rule makes instead of each tensor once
  Matching out_;
  std::vector<PlacePair> tokens_;  // rank 0 stands for any
  std::map<std::pair<size_t, size_t>, TreeState> states_;
  std::set<Place> golden_levels_, mine_levels_;  // places that were matched at a level
  std::set<std::pair<int, int>> looked_at_;      // parts whose leftovers values have seen
  std::set<std::pair<Place, InternedText>> golden_paired_;
  std::set<std::pair<Place, InternedText>> mine_paired_;
  /// Of records that a rule named, but whose rows are not the other's.
  std::map<std::pair<Side, size_t>, std::string_view> why_alone_;
  std::map<size_t, int> show_order_;  // of a pair: my node
  int64_t token_ = 0;                 // of the place that is being matched
};

}  // namespace assay::pair
