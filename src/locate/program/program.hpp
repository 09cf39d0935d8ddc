// SPDX-License-Identifier: Apache-2.0
// A captured run as a program: operators in execution order, the values between them, the module
// calls around them.
//   docs/formats/native.md, "Operator level"
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/interned_text.hpp"
#include "compare/gguf_weights.hpp"
#include "locate/program/product_type.hpp"
#include "pair/operand.hpp"
#include "pair/program_weights.hpp"
#include "reference/aten/call.hpp"
#include "run/run.hpp"

namespace assay::locate {

using ValueId = int64_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr size_t kNone = static_cast<size_t>(-1);

/// One tensor that goes into or comes out of an operator or a module call.
struct Use {
  InternedText slot;  // "self", "tensors.0"; of modules "0", "kwargs.mask"; "" for a single output
  InternedText leaf;  // named leaf: parameter or buffer. No producer and no name: anonymous leaf
  size_t record = kNone;     // index into Run::records
  ValueId value = kNoValue;  // unique over all ranks of the run; kNoValue: captured without ids
  uint64_t time = 0;         // order of production of the record
  /// Of inputs of operators and modules: who made the value. kNone: no operator did.
  size_t producer = kNone;     // index into Program::operators
  size_t producer_output = 0;  // index into its outputs
};

struct Operator {
  InternedText node;    // "model.norm::aten.mul.Tensor.1"
  InternedText name;    // "aten.mul.Tensor"
  InternedText module;  // path of the innermost module; "" the root
  uint32_t module_call = 0;
  int rank = 0;
  int64_t step = 0;
  uint64_t time = 0;
  /// Non-tensor arguments by schema name; tensor arguments are absent here: they are inputs, by
  /// slot.
  std::map<std::string, reference::aten::Argument, std::less<>> attributes;
  /// The shape of list arguments: "tensors" -> 3 with slots tensors.0 ...; a None inside a list has
  /// no input.
  std::map<std::string, size_t, std::less<>> list_sizes;
  std::vector<Use> inputs;   // in schema order
  std::vector<Use> outputs;  // in schema order; TensorLists are spread
  std::vector<std::string> writes;
  std::string problem;         // why it cannot be replayed: an argument that was not understood
  bool input_missing = false;  // the problem is an input that was not captured
};

/// One call of one module: the boundary values of a run.
struct ModuleCall {
  InternedText module;
  InternedText type;  // class name
  uint32_t call = 0;
  int rank = 0;
  int64_t step = 0;
  uint64_t begin = 0;  // time of its first input record; of outputs when inputs were not captured
  uint64_t end = 0;    // time of its last output record
  std::vector<Use> inputs;
  std::vector<Use> outputs;
  bool leaf = false;  // no captured module inside it
};

/// What was captured of a run; decides what can be judged.
///   docs/localisation.md, "What to capture"
enum class CaptureLevel : uint8_t {
  Operators,   // O: every operator with inputs and outputs
  Leaves,      // L: inputs and outputs of leaf modules
  Modules,     // M: outputs of all modules
  Layers,      // B: outputs of decoder layers only
  Statistics,  // S: no bytes at all
  Nothing,
};
[[nodiscard]] std::string_view level_name(CaptureLevel level);  // "operators" ...

/// A weight as the file of the run under test's model holds it: in one tensor, or in several that
/// are its rows (the last axis but one).
struct StoredWeight {
  struct Part {
    run::TensorRecord record;
    compare::GgufWeight how;  // what the converter did to it
    std::string type;         // "q8_0", "f16", "f32"; kernels convert what they multiply with it
    int64_t first_row = 0;    // of golden's
  };
  std::vector<Part> parts;  // in order of their rows
};

/// What attention errs in a query, key or value that it reads, beyond one rounding to its type.
struct AttentionRounding {
  std::string blocks;         // type that it is rounded to, "q8_0"; empty: none
  double spread = 1;          // how much more than one such rounding a correct kernel may be off
  double roundoffs = 0;       // of float16, relative: standard deviation
  int64_t first_channel = 0;  // those before are something else: queries and keys beside values
};

class Engine;

struct Program {
  const run::Run* run = nullptr;   // outlives the program
  const Engine* engine = nullptr;  // that made the run; null: its operators are PyTorch's
  CaptureLevel level = CaptureLevel::Nothing;
  bool has_bytes = false;  // full data
  /// A program of which most parameters have no bytes: it can be read, and not run.
  bool lacks_leaves = false;
  std::vector<Operator> operators;  // by rank, then time
  std::vector<ModuleCall> calls;    // by rank, then end
  pair::LeafRecords leaves;         // each with its bytes, or statistics
  /// Of them those in codes; null in programs that make_program() did not make.
  std::shared_ptr<const pair::CodedLeaves> coded;
  std::map<std::string, DType> leaf_types;  // of topology where there are no records
  /// Of an engine: weights by name, in the model's file.
  std::map<std::string, run::TensorRecord, std::less<>> model_weights;
  // Of an engine's run that is held against Hugging Face's modules:
  std::map<std::string, StoredWeight, std::less<>> stored_weights;  // by golden's name
  /// Weights and tables that the test of weights judged, and that more than one rounding parts from
  /// golden's: what is computed with them is judged on mine's.
  std::set<std::string> own;
  /// A matrix of the run under test's file, not in float32, that is no known parameter of golden;
  /// empty: none. What golden computes with a matrix that is none of the file's is not judged then.
  std::string lonely_weight;
  /// Type of keys and values inside attention, where it is narrower than the values around it.
  std::optional<DType> attention_type;
  /// Its ranks compute together what golden's one process did: module calls of the first rank are
  /// golden's, operators are others.
  bool is_shared = false;
  /// Then, by record of the first rank: how what all ranks hold of it becomes golden's tensor.
  std::map<size_t, pair::Recipe> joined;
  /// And records of the other ranks that are parts of those, or equal to the first rank's.
  std::set<size_t> joined_parts;
  /// By record: the rows (last axis but one) that mine computed; the others are golden's.
  std::map<size_t, std::vector<int64_t>> computed_rows;
  /// Module calls are in golden's steps, operators in the run under test's own: the steps hold
  /// other tokens.
  bool regrouped = false;
  /// Angles of the rotary embedding are made one from the other, in float32.
  bool multiplies_angles = false;
  /// By record: of queries, keys and values.
  std::map<size_t, AttentionRounding> attention_roundings;
  /// Of float32 operands, in products and fused attention.
  ProductType products = ProductType::Float32;
  std::string cache_blocks;  // what attention reads in blocks: "keys in q8_0, values in q4_0"
  /// A type of blocks that attention works in, where it cannot be told what is rounded how; it is
  /// not judged then.
  std::string unknown_blocks;
  std::vector<std::string> problems;  // sentences for coverage: what was left out and why
};

/// What is not needed by those who only ask which value went where: Operator::attributes,
/// list_sizes and problem.
enum class Arguments : uint8_t { Read, Skip };

/// Builds the program of a run of any layout; a run without operator records has calls only.
/// engines  one of them may have made the run
[[nodiscard]] Program make_program(const run::Run& run, std::span<const Engine* const> engines = {},
                                   Arguments arguments = Arguments::Read);

/// What run.operations say of the operators of the run's program, in their order.
[[nodiscard]] std::vector<const run::OperationRecord*> operations_in_order(const run::Run& run);

/// The captured call with its operands mapped, ready for evaluate().
/// errors  NotFound (an input without bytes, with its slot) | Invalid (Operator::problem) | of
///         run::load_tensor()
[[nodiscard]] Result<reference::aten::Call> load_call(const Program& program, const Operator& one);
/// errors  NotFound | of run::load_tensor()
[[nodiscard]] Result<Tensor> load_use(const Program& program, const Use& use);
/// The call with the given operands, by slot, in place of captured ones.
/// errors  Invalid (a slot is missing, Operator::problem)
[[nodiscard]] Result<reference::aten::Call> make_call(
    const Operator& one, const std::map<std::string, Tensor>& operands);

/// An argument of a call, or an attribute; null: it was not given, or is something else.
template <typename T>
[[nodiscard]] const T* argument_of(
    const std::map<std::string, reference::aten::Argument, std::less<>>& arguments,
    std::string_view name) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? nullptr : std::get_if<T>(&found->second.value);
}

/// The type of a value that is a float.
[[nodiscard]] std::optional<DType> float_type(const Program& program, const Use& use);
/// Elements of a record; 0 where they are not known.
[[nodiscard]] int64_t elements_of(const run::TensorRecord& record);
/// Ranks and steps of module calls.
[[nodiscard]] std::set<std::pair<int, int64_t>> captured_steps(const Program& program);

/// Names that are left out of sequences: they differ legitimately between precisions (casts, clone,
/// alias, detach,
/// lift_fresh, empty).   docs/localisation.md, "Pair tests"
[[nodiscard]] bool is_transparent(std::string_view name);
/// "aten.mul.Tensor in model.norm", of several there with its number from 1: "aten.mul.Tensor (2)
/// in model.norm".
[[nodiscard]] std::string operator_text(const Operator& one);

}  // namespace assay::locate
