// SPDX-License-Identifier: Apache-2.0
// One captured run, whatever wrote it: the only model that compare, opcheck and report know.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/interned_text.hpp"
#include "base/rare_value.hpp"
#include "base/result.hpp"
#include "formats/native/manifest.hpp"
#include "formats/native/schema.hpp"
#include "run/layout.hpp"
#include "run/payload_check.hpp"
#include "run/record_stats.hpp"
#include "stats/digest.hpp"
#include "stats/tensor_stats.hpp"
#include "tensor/interned_dims.hpp"
#include "tensor/tensor_view.hpp"
#include "topology/model_tree.hpp"

namespace assay::run {

using native::Role;
using native::role_name;

/// What a record is beside an operand in the course of the run. Only operands are compared.
enum class RecordKind : uint8_t {
  Operand,
  WatchedAgain,    // an output looked at once more, after another operator ran
  OverflowReport,  // what a device reported
  Exception,       // an operand of an operator that failed
};

/// When an operand was taken, as far as the layout tells: before or after its operation ran.
enum class Moment : uint8_t { Unknown, Before, After };

/// Where a tensor's bytes are. `member` addresses a tensor inside a container file (a key of a
/// .safetensors or .npz, a path inside a nested .pth); empty for a file that holds one tensor.
struct ByteLocation {
  InternedText file = {};  // absolute, or relative to the current folder: as it can be opened
  InternedText member = {};
  uint64_t offset = 0;  // used when `raw`
  uint64_t size_bytes = 0;
  bool raw = false;  // offset and size are exact and the payload is C-contiguous; otherwise the
                     // file's format decides
};

/// Reads as a std::optional<ByteLocation>, in no more memory than one.
class MaybeLocation : private ByteLocation {  // whose last bytes are free
 public:
  MaybeLocation() = default;
  MaybeLocation(std::nullopt_t) {}
  MaybeLocation(const ByteLocation& location) : ByteLocation(location), is_there_(true) {}

  [[nodiscard]] bool has_value() const { return is_there_; }
  explicit operator bool() const { return is_there_; }
  [[nodiscard]] const ByteLocation& operator*() const { return *this; }
  [[nodiscard]] ByteLocation& operator*() { return *this; }
  [[nodiscard]] const ByteLocation* operator->() const { return this; }
  [[nodiscard]] ByteLocation* operator->() { return this; }
  ByteLocation& emplace() { return *(*this = ByteLocation()); }
  void reset() { *this = MaybeLocation(); }

 private:
  bool is_there_ = false;
};

/// A tensor that no file holds as it is: made of others whenever it is loaded.
class MadeTensor {
 public:
  virtual ~MadeTensor() = default;
  [[nodiscard]] virtual Result<Tensor> make() const = 0;
};

/// Something that a run's files contradict each other in: it is not as its capture left it.
struct Damage {
  std::string file;
  std::string what;  // one clause
  [[nodiscard]] std::string describe() const { return file + ": " + what; }
  friend bool operator==(const Damage&, const Damage&) = default;
};

/// Damage that is found while payloads are read. Used by all threads that read.
class FoundDamage {
 public:
  void add(Damage damage);
  [[nodiscard]] std::vector<Damage> list() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Damage> list_;
};

/// A token and its logit.
struct Choice {
  int64_t token = 0;
  double logit = 0;
};

/// What a model chose from: the largest logits of the last position of each sequence, largest
/// first.
struct TopChoices {
  int64_t vocabulary = 0;
  std::vector<std::vector<Choice>> rows;  // two or more each
};

/// What hardly any record has.
struct InsteadOfBytes {
  /// Is loaded in place of `bytes`, which then say of what it is made in the first place; null for
  /// captured tensors.
  std::shared_ptr<const MadeTensor> made;
  /// Of logits whose bytes are not there: what is known of them. Null: nothing.
  std::shared_ptr<const TopChoices> choices;
};

using native::kOperatorMark;
/// The module in front of the mark; all of a node that is no operator.
[[nodiscard]] inline std::string_view module_of_node(std::string_view node) {
  return node.substr(0, node.find(kOperatorMark));
}

/// One tensor of one execution of one node. Plain data: nothing is opened until load_tensor().
/// There may be millions, so what many have in common is kept once: texts, shapes.
struct TensorRecord {
  int rank = 0;
  uint32_t call = 0;   // which call of the node within the step
  uint32_t graph = 0;  // graph mode: place of the compiled graph within the process
  Role role = Role::Output;
  RecordKind kind = RecordKind::Operand;
  Moment moment = Moment::Unknown;
  bool not_captured = false;  // the problem: the capture could not have it, which is no damage
  InternedText step_name;     // folder name as on disk: "0", "weights"
  InternedText node;          // "root.model.layers.0.mlp" (strict), "model.layers.0.mlp" (native)
  InternedText op_type;       // module class or operator type; empty when unknown
  InternedText slot;          // "0", "1.0", "kwargs.mask", "" for a single output
  // dtype and shape are known from the records (native) or after the file's header was read
  // (load_header()).
  InternedDims shape;
  InternedDims strides;
  InternedText leaf;  // name of the parameter or buffer that the value is; "" for none
  /// Order of the values in memory where it is not the plain one: "fractal_nz". The shape is that
  /// of the memory.
  InternedText memory_format;
  InternedText value;    // for non-tensor leaves: their text
  InternedText problem;  // why the tensor is missing or unusable; empty when all is well
  int64_t step = 0;      // token id; -1 when step_name is no number
  /// Position in execution order within the run where known, else in tree order; unique.
  uint64_t order = 0;
  [[no_unique_address]] MaybeLocation bytes;  // the next two lie in its last bytes
  std::optional<DType> dtype;
  InternedText stats_file;  // where the statistics are from, if they have a file of their own
  RecordStats stats;
  stats::MaybeDigest digest;
  /// What the capture saw in `bytes`, shared by all records of them; null: nothing is known.
  PayloadCheck check;
  RareValue<InsteadOfBytes> instead;
  // Operator level: which value this is.
  /// Records of one rank with the same id are the same value: the same place in the same storage,
  /// shape, strides and dtype, and nothing written to the storage in between. -1: not known.
  int64_t value_id = -1;
  int64_t storage_id = -1;      // of the storage that holds it; -1: not known
  int64_t storage_offset = 0;   // elements from the start of the storage
  int64_t storage_version = 0;  // writes to the storage so far
  /// `order` of the output record (of an operator) that made an input's value; -1: no operator made
  /// it.
  int64_t producer = -1;

  [[nodiscard]] const MadeTensor* made() const { return instead ? instead->made.get() : nullptr; }
  [[nodiscard]] const TopChoices* choices() const {
    return instead ? instead->choices.get() : nullptr;
  }
  void set_made(std::shared_ptr<const MadeTensor> made) {
    (instead ? *instead : instead.emplace()).made = std::move(made);
  }
  void set_choices(std::shared_ptr<const TopChoices> choices) {
    (instead ? *instead : instead.emplace()).choices = std::move(choices);
  }
  [[nodiscard]] bool is_of_operator() const {
    return node.find(kOperatorMark) != std::string::npos;
  }
};

/// A module or operator tree as the host declared it.
using TopologyNode = topology::ModuleNode;

/// One execution of an operation, with what it was told besides tensors. Texts are kept once, as
/// those of tensors.
struct OperationRecord {
  int rank = 0;
  InternedText step_name;
  int64_t step = 0;
  InternedText node;        // as in the tensor records
  InternedText op_type;     // "LinearOperation", "aten.mm.default"
  InternedText parameters;  // JSON as the host wrote it; empty when there is none
  // Operator level of a torch run:
  InternedText module;       // path of the innermost module in whose call it ran
  uint32_t module_call = 0;  // number of that call within the step; `call` of its tensor records
  uint64_t order = 0;        // place of its line among the records, before its inputs
  std::vector<std::string> writes;  // arguments that the schema marks as written: "self", "out"
};

/// What was planned, captured and lost.
struct Coverage {
  bool complete = true;  // false: the host was killed or is still writing
  uint64_t planned = 0;  // nodes, in an ATB dump tensors; 0 when the layout does not say
  uint64_t captured = 0;
  std::vector<native::MissedNode> missed;
  uint64_t lost = 0;  // tensors that were seen and could not be kept
};

struct Run {
  std::string path;  // as the user gave it
  Layout layout = Layout::None;
  /// In (rank, step, order, role, slot) order; the same for any order of a directory listing.
  std::vector<TensorRecord> records;
  /// False where the layout does not tell the order of execution: the records then stand in that of
  /// registration, or of their names.
  bool order_known = true;
  std::vector<OperationRecord> operations;  // where the layout knows parameters; in that order, too
  std::optional<TopologyNode> topology;
  /// Where several ranks have trees: each that differs, that of the first rank first. `topology` is
  /// that one until reconcile() makes one of all.
  struct RankTree {
    std::vector<int> ranks;  // ascending
    TopologyNode tree;
  };
  std::vector<RankTree> rank_trees;
  /// Models whose nodes stand one after the other below the root of the topology, as a prompt's and
  /// a decoder's in ATB, by the numbers in front of their names.
  struct Model {
    std::string name;
    std::vector<uint64_t> ids;              // ascending
    std::vector<std::string> weights = {};  // tensors, by the names that operations read them by
  };
  std::vector<Model> models;  // by their first id
  /// Graph mode: text of the compiled graphs, by rank and graph number; empty in other layouts.
  struct GraphFile {
    int rank = -1;  // -1: valid for all
    uint32_t graph = 0;
    std::string path;
  };
  std::vector<GraphFile> graph_files;
  /// By rank and step, where nodes are folders: the folder that they lie in.
  std::map<std::pair<int, std::string>, std::string> step_folders;
  /// By rank: its places in the parallel groups of the job, where the capture knew them.
  std::map<int, native::ParallelPlaces> parallel;
  Coverage coverage;
  std::map<std::string, std::string>
      properties;                     // host program, versions, configuration: for people
  std::vector<std::string> warnings;  // unreadable folders, truncated lines: one sentence each
  /// Of modules that bear another name than in the run's files: theirs, by the new one.
  std::map<std::string, std::string, std::less<>> own_names;
  /// What records point into.
  std::vector<std::shared_ptr<const void>> held;
  /// Found by the reader, without looking at payloads.
  std::vector<Damage> damage;
  std::shared_ptr<FoundDamage> found_damage = std::make_shared<FoundDamage>();
  /// What the capture itself found, for people: graph breaks, overflows, an output that another
  /// operator changed. One sentence each.
  std::vector<std::string> findings;
  /// What healthy runs differ from this one by, as JSON of a floor profile, where its file tells.
  std::string floors;

  [[nodiscard]] bool has(Trait trait) const { return has_trait(layout, trait); }
  /// Nodes are modules, or files and names that stand for some; otherwise they are the operators of
  /// another program.
  [[nodiscard]] bool has_modules() const {
    return !has(Trait::AtbOperations) && !has(Trait::CompiledGraphs);
  }
  /// Captured in a host that is no PyTorch program: nodes are operators of its graphs, some of
  /// which only view others.
  [[nodiscard]] bool has_own_engine() const { return properties.contains("host.kind"); }
  /// Nodes have parents: the run tells its topology, or their names do.
  [[nodiscard]] bool has_tree() const { return topology.has_value() || has(Trait::AtbOperations); }

  /// Two engines may order the units of a layer differently; runs of one layout are of one engine,
  /// and so are a run and a fingerprint.
  [[nodiscard]] bool is_laid_out_like(const Run& other) const {
    return layout == other.layout || (has(Trait::AtenOperators) && other.has(Trait::AtenOperators));
  }

  /// The folder of a record's node; empty where nodes are none.
  [[nodiscard]] std::string node_folder(const TensorRecord& record) const;

  /// The same thing twice is one.
  void add_damage(const std::string& file, std::string what);
  /// What is damaged as far as it is known by now.
  [[nodiscard]] std::vector<Damage> all_damage() const;
  /// The first of it as "FILE: what"; empty while nothing is known to be damaged.
  [[nodiscard]] std::string first_damage() const;
};

/// Recognises the layout and reads the list of records; reads no payload.
/// path    a run folder of any supported layout, a step or module folder inside a torch tree, or
///         one tensor file
/// errors  NotFound | Permission | Unsupported (the sentence names the layouts that were tried) |
///         Invalid
[[nodiscard]] Result<Run> open_run(const std::string& path);

/// Maps the tensor of a record. The result keeps the file mapped.
/// errors  of the format's reader, with path and offset; NotFound when the record has no bytes;
///         Invalid when the values are not those that the record tells of: then the run's
///         found_damage says so, too
[[nodiscard]] Result<Tensor> load_tensor(const TensorRecord& record);
/// The same without a copy of what lies there with strides (run/strided_payload.hpp): for those who
/// read a transpose as one, or only parts of it.
[[nodiscard]] Result<Tensor> load_as_stored(const TensorRecord& record);
/// load_tensor() whatever the record says of the values: for those who hold it against them themselves,
/// or show them all the same.
[[nodiscard]] Result<Tensor> load_unchecked(const TensorRecord& record);

/// Fills dtype, shape, strides from the file's header when the record does not have them yet.
[[nodiscard]] Status load_header(TensorRecord& record);

}  // namespace assay::run
