// SPDX-License-Identifier: Apache-2.0
// Golden's operators as a program that runs in fp64 on values of mine.
//   docs/localisation.md, "Cross substitution"
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "locate/judge/coded_weights.hpp"
#include "locate/noise/kernel_rounding.hpp"
#include "locate/program/pairing.hpp"
#include "locate/program/storage_state.hpp"
#include "locate/replay/close_choices.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {

/// A value of mine at the boundary of a module call, and which value of golden it corresponds to.
struct Boundary {
  ValueId golden = kNoValue;
  size_t golden_record = kNone;  // golden's record of it at the same place
  size_t call = kNone;           // index into the run under test's calls
  size_t use = 0;                // index into its inputs or outputs
  bool input = false;
  uint64_t time = 0;  // of the run under test's record
  /// Golden's value at the same place, of another shape: this one stands for nothing of golden's,
  /// and `golden` is kNoValue.
  ValueId reshaped = kNoValue;
  /// The last rows of golden's value: judged as these, but nothing is judged on it.
  bool last_rows = false;
};

/// Of the run under test, whose boundary it is.
[[nodiscard]] const Use& use_of(const Program& program, const Boundary& boundary);

/// How golden's named float leaves are rounded before they meet the run under test's values.
enum class LeafRounding : uint8_t {
  // to the type that mine holds this leaf in; the type of the computation where that is not known
  OwnType,
  None,       // golden's values
  Narrowest,  // to the type of the computation, whatever mine holds it in: casts on the fly
  // as OwnType, and what is made of parameters alone is rounded as well: 1 + weight in a norm
  Prepared,
};

/// In which order equal values leave a sort that promises none.
enum class TieOrder : uint8_t {
  Captured,  // as golden's did, where golden sorted the same values; otherwise by place
  Reversed,  // the other way round: a result that stays the same does not depend on the order
  // as captured; and where rounding decides the last one that is taken, the runner-up is taken
  RunnerUp,
};

/// What golden's program has of mine in place of its own.
struct Substitutes {
  std::map<std::string, size_t> leaves = {};  // golden's parameters and buffers: records of mine
  std::map<std::string, const Tensor*> made_leaves = {};  // or tensors, which outlive it
  std::map<size_t, size_t> arguments = {};  // golden's operators: mine's whose arguments they take
  const Tensor* value = nullptr;            // in place of mine's value at a boundary; outlives it
  size_t boundary = kNone;
  [[nodiscard]] bool empty() const {
    return leaves.empty() && made_leaves.empty() && arguments.empty() && value == nullptr;
  }
  friend auto operator<=>(const Substitutes&, const Substitutes&) = default;
};

/// How golden's program is run on the run under test's values.
struct How {
  LeafRounding rounding = LeafRounding::OwnType;
  TieOrder order = TieOrder::Captured;
  AttentionKernel kernel = AttentionKernel::Fused;
  /// What is recorded only as an input of a module, and added to something, is a residual that the
  /// run under test keeps in a wider type and cast for that module.
  bool wide_residual = false;
  Statistics statistics = Statistics::Wide;
  /// Which draw of the noise: 0 rounds as a kernel does, others move each result by as much at
  /// random.
  uint32_t draw = 0;
  Substitutes of_mine = {};
  friend auto operator<=>(const How&, const How&) = default;
};

/// What has to run for one value.
struct Region {
  struct Value {
    enum class Source : uint8_t { Recorded, Leaf, Anonymous, Assembled, Produced, Carried };
    Source source = Source::Anonymous;
    ValueId value = kNoValue;
    size_t boundary = kNone;  // Recorded: index into Replay's boundaries
    size_t record = kNone;    // golden's record with its bytes; kNone: none
    size_t op = kNone;        // Produced: index into `operators`
    size_t output = 0;
    Assembly assembly;          // Assembled
    std::vector<size_t> parts;  // Assembled: indices into `values`
    size_t carried = kNone;     // Carried: its number, see Replay::carried()
    bool floating = false;      // depends on a floating value of mine
    bool learned = false;       // or on a parameter
  };
  struct Call {
    size_t op = kNone;  // index into golden's operators
    // by input of the operator: index into `values`; kNone: only its shape counts
    std::vector<size_t> operands;
    std::vector<size_t> results;  // by output: index into `values`; kNone: not read
    bool floating = false;        // depends on a floating value of mine
    // or on a parameter; what is not is a table: made of positions and constants alone
    bool learned = false;
    bool constant = false;  // depends on no recorded value at all, whichever is asked for
  };
  std::vector<Value> values;    // [0] is what is asked for
  std::vector<Call> operators;  // in golden's order
  // narrowest float type of the value asked for and the recorded ones used
  DType dtype = DType::Float32;
  bool casts = false;  // the run under test's values are wider and were cast to that before use
  bool data_dependent = false;  // holds operators whose shapes depend on values
  bool from_before = false;     // needs a large value that was made before the capture began
  size_t around =
      kNone;           // the first boundary of another shape than golden's that was not used for it
  uint64_t bytes = 0;  // of working tensors, about
  std::vector<size_t> carried;  // distinct numbers of its Carried values
};

/// What is known of a value that golden made in an earlier step than the one that reads it, such as
/// a key/value cache.
struct Carried {
  std::optional<DType> narrowest;  // of the recorded values behind it
  bool floating = false;           // depends on a floating value of mine
  bool data_dependent = false;
  bool from_before = false;
  std::vector<std::string_view> modules;  // of golden's operators that depend on a floating value
  std::vector<size_t> operators;          // of golden, of its own step
  std::vector<size_t> carried;            // numbers of the values of earlier steps behind it
  std::vector<size_t> recorded;           // boundaries that it is made of
};

/// Whether values of earlier steps are replayed once for all that read them, or anew.
enum class Carry : uint8_t { Yes, No };

struct Replayed {
  Tensor reference;  // fp64, or integers
  Tensor simulated;  // the same with the rounding of a kernel
  /// Choices (top-k, arg max) in it that are so close that rounding may decide them.
  std::vector<Choice> choices;
  /// There are others, in rows that are not rows of the result: of earlier steps, or in front of
  /// attention.
  bool tie_elsewhere = false;
  /// It went through the order of equal values in a sort, which is open.
  bool order_open = false;
  /// Integers that shapes depend on are not golden's: its operators may not be what mine had to
  /// run.
  bool other_path = false;
  /// A choice (top-k, sort) took other places than golden's.
  bool other_choice = false;
};

using TypeCounts = std::map<DType, size_t>;  // how many values are of a type

/// Immutable after construction but for caches, which never change a result; threads may share it.
class Replay {
 public:
  /// boundaries   all recorded values of mine
  /// dropped      by boundary: as if it had not been recorded; empty: none
  /// rewritten    golden's parameters that mine may hold in another form, rounded in that: they are
  ///              golden's, and half a ULP of mine's type is noise
  /// cache_bytes  for values that do not depend on the run under test's and for rounded weights; as
  ///              much for values of earlier steps
  Replay(const Program& golden, const Program& mine, std::vector<Boundary> boundaries,
         uint64_t cache_bytes, const std::vector<bool>& dropped = {},
         std::set<std::string> rewritten = {});
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  [[nodiscard]] const std::vector<Boundary>& boundaries() const { return boundaries_; }
  [[nodiscard]] const StorageState& values() const { return state_; }
  /// The float type that rounding is forgiven in at a boundary: its record's own; where few of its
  /// peers (the same place in other layers; of a place without layers all others) is computed in so
  /// narrow a type, neither golden nor a weight of the module is, theirs. Nothing: no float.
  [[nodiscard]] const std::optional<DType>& type_at(size_t boundary) const {
    return types_[boundary];
  }
  /// The recorded value of mine that stands for a value of golden when boundary `target` is judged:
  /// one that was recorded before it. Of several the later of the last module output and of what
  /// entered the innermost module call around the target; a module's input alone says nothing about
  /// what its neighbours read. kNone: none.
  ///
  /// unusable  by boundary: values of mine that stand for nothing of golden's; empty: none
  [[nodiscard]] size_t recorded(ValueId golden, size_t target,
                                const std::vector<bool>& unusable = {}) const;

  /// With Carry::Yes the walk stops at values that golden made in earlier steps: their numbers
  /// stand in Region::carried. Where these would not be the same for every reader (unusable values,
  /// shapes that depend on values) it goes on as with Carry::No.
  ///
  /// errors  NotFound | Unsupported | Invalid: a sentence why golden's program cannot be run for
  ///         this value
  [[nodiscard]] Result<Region> plan(size_t target, const std::vector<bool>& unusable = {},
                                    Carry carry = Carry::Yes) const;
  /// The region reads golden's parameter or buffer that has these names.
  [[nodiscard]] bool reads(const Region& region, const std::vector<std::string>& leaf) const;
  /// It reads it to put other values there, and for nothing else.
  [[nodiscard]] bool overwrites(const Region& region, const std::vector<std::string>& leaf) const;
  /// Whether mine has every parameter that the region reads, under golden's name.
  [[nodiscard]] bool has_parameters_of(const Region& region) const;
  /// The narrowest type that rounding is forgiven in, golden's own casts to eight bits among them.
  [[nodiscard]] DType rounding_type(const Region& region) const;
  /// That of mine's narrowest parameter where it is narrower.
  [[nodiscard]] DType parameter_type(DType type) const {
    return parameter_type_ && is_narrower(*parameter_type_, type) ? *parameter_type_ : type;
  }
  /// A buffer that mine holds in a narrower type than golden, with both; "" for none.
  ///
  /// deciding  only such as decide: see find_deciding_leaves()
  [[nodiscard]] std::string narrowed_buffer(const Region& region, bool deciding) const;
  /// Precondition: the number is from a Region or Carried of this object.
  [[nodiscard]] const Carried& carried(size_t number) const;
  /// errors  of evaluate() and of loading, with the operator's node in the sentence
  [[nodiscard]] Result<Replayed> run(const Region& region, const How& how) const;

 private:
  struct Pair {
    Tensor reference;
    Tensor simulated;
    bool same = true;  // simulated is reference
  };
  /// What a replayed value of an earlier step hands on.
  struct CarriedValue {
    Pair pair;
    bool tie = false;
    bool order_open = false;
  };
  using CarriedValues = std::map<size_t, CarriedValue>;  // by number
  struct Mode {
    DType dtype = DType::Float32;
    How how;
    friend auto operator<=>(const Mode&, const Mode&) = default;
  };
  /// For whom a region is planned: a recorded value of mine, or everybody behind the end of a step.
  struct Reader {
    size_t target = kNone;  // index into boundaries
    const std::vector<bool>* unusable = nullptr;
    int64_t step = 0;
    Carry carry = Carry::Yes;
  };
  class Machine;
  class Planner;
  class Carrier;
  void find_constant_operators();
  [[nodiscard]] bool is_buffer(const std::string& leaf) const;
  void find_types();
  void find_autocast(const TypeCounts& types);
  void find_parameter_type();
  /// Leaves that mine holds in a narrower type, and whose values go nowhere but into choices and
  /// comparisons: a router's bias. They are judged by what is chosen, so their rounding is none that
  /// has to be forgiven.
  void find_deciding_leaves();
  [[nodiscard]] bool only_decides(
      ValueId leaf, const std::unordered_map<ValueId, std::vector<size_t>>& readers) const;
  [[nodiscard]] TypeCounts types_of_products() const;
  [[nodiscard]] bool is_deliberate(const Boundary& boundary, DType type) const;
  [[nodiscard]] size_t recorded_by(ValueId golden, int64_t step) const;
  [[nodiscard]] Result<std::unique_ptr<Planner>> walk_carried(size_t number) const;
  [[nodiscard]] Result<Region> plan_carried(size_t number) const;
  [[nodiscard]] Status describe_carried(const std::vector<size_t>& numbers) const;
  [[nodiscard]] Result<CarriedValue> carried_value(size_t number, const Mode& mode) const;
  [[nodiscard]] Result<CarriedValue> run_carried(size_t number, const Mode& mode,
                                                 const CarriedValues& earlier) const;
  [[nodiscard]] size_t operators_before(size_t record) const;
  /// The value that an operand is, views, casts or takes rows or matrices of (those of experts).
  [[nodiscard]] size_t behind_views(const Region& region, size_t at) const;
  /// Its name where it is a leaf; "" for none.
  [[nodiscard]] std::string_view leaf_behind(const Region& region, size_t at) const;
  /// The run under test's record of the leaf that golden calls so; nullptr: it was not captured.
  [[nodiscard]] const run::TensorRecord* leaf_of_mine(const std::string& leaf) const;
  /// Nothing where it is not known.
  [[nodiscard]] std::optional<DType> stored_type(const std::string& leaf) const;
  [[nodiscard]] DType leaf_type(const std::string& leaf, DType computed) const;

  const Program& golden_;
  const Program& mine_;
  std::set<std::string> rewritten_;
  StorageState state_;
  std::vector<Boundary> boundaries_;
  std::vector<std::optional<DType>> types_;  // by boundary
  // of the run under test's products, where they are narrower than its weights
  std::optional<DType> autocast_;
  std::optional<DType> parameter_type_;  // the narrowest of mine
  std::unordered_map<ValueId, std::vector<size_t>>
      recorded_;                                  // by golden's value, in order of time
  std::unordered_map<ValueId, size_t> reshaped_;  // by golden's value: the first boundary
  std::vector<bool> constant_;                    // by operator of golden
  std::unordered_map<ValueId, size_t> readers_;   // of leaves: operators of golden
  std::map<int, int64_t> first_step_;             // by rank, of golden
  std::map<int, std::vector<size_t>> of_rank_;    // golden's operators, in order of time
  std::set<std::string> deciding_;                // names of leaves

  struct Cache {
    std::mutex mutex;
    uint64_t bytes = 0;
    uint64_t limit = 0;
    std::map<std::tuple<size_t, DType, LeafRounding>, std::vector<Pair>> operators;
    std::map<std::pair<size_t, DType>, Tensor> leaves;
  };
  std::unique_ptr<Cache> cache_;

  std::unique_ptr<Carrier> carrier_;
};

}  // namespace assay::locate
