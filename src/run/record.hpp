// SPDX-License-Identifier: Apache-2.0
// What was captured of one tensor, and of one execution of an operation, whatever wrote it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/interned_text.hpp"
#include "base/rare_value.hpp"
#include "base/result.hpp"
#include "run/payload_check.hpp"
#include "run/record_stats.hpp"
#include "stats/digest.hpp"
#include "tensor/interned_dims.hpp"
#include "tensor/node.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::run {

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

}  // namespace assay::run
