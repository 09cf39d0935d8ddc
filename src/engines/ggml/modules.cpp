// SPDX-License-Identifier: Apache-2.0
// Adds to the ggml run a record for each tensor of a module and for each weight of the model's
// file, under golden's names. Then tells the program what caches and flash attention round.
//   docs/design/ggml-pairs.md, "The verdict"
#include "engines/ggml/modules.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>

#include "engines/ggml/operands.hpp"
#include "engines/ggml/parameters.hpp"
#include "locate/noise/conversion_noise.hpp"
#include "locate/noise/error_classes.hpp"
#include "locate/verdict/made_rows.hpp"
#include "pair/weight_names.hpp"
#include "reference/ggml/operators.hpp"
#include "reference/wide.hpp"
#include "run/checkpoint.hpp"
#include "run/load.hpp"
#include "tensor/block_types.hpp"
#include "tensor/convert.hpp"

namespace assay::engines::ggml {
namespace {

using locate::EnginePlace;
using locate::Finding;
using locate::has_block_steps;
using locate::kNone;
using locate::MadeRows;
using locate::ModuleCall;
using locate::Operator;
using locate::Program;
using locate::StoredWeight;
using locate::Use;
using run::Run;
using run::TensorRecord;

/// The records of a pair, put together; rows that ggml lacks are those of golden.
std::shared_ptr<MadeRows> module_tensor(const Run& hf, const Run& ggml, const TensorPair& pair) {
  auto made = std::make_shared<MadeRows>(ggml, pair.ggml_recipe(hf, ggml));
  if (static_cast<int64_t>(pair.hf_rows.size()) != pair.hf_row_count)
    made->fill_from(hf.records[pair.hf], pair.hf_rows, pair.hf_row_count);
  return made;
}

/// A weight of the model's file in the checkpoint's order.
class FileWeight final : public run::MadeTensor {
 public:
  explicit FileWeight(StoredWeight weight) : weight_(std::move(weight)) {}
  [[nodiscard]] Result<Tensor> make() const override {
    std::vector<Tensor> parts;
    for (const StoredWeight::Part& part : weight_.parts) {
      ASSAY_TRY(Tensor stored, run::load_tensor(part.record));
      ASSAY_TRY(parts.emplace_back(), compare::in_checkpoint_order(std::move(stored), part.how));
    }
    return parts.size() == 1 ? std::move(parts.front()) : joined(parts);
  }

 private:
  /// Rows of each matrix one part after the other: [matrices, rows, columns].
  static Result<Tensor> joined(const std::vector<Tensor>& parts) {
    Dims shape = parts.front().view.shape;
    shape[1] = 0;
    for (const Tensor& part : parts) shape[1] += part.view.shape[1];
    reference::Wide whole(shape);
    int64_t first = 0;
    for (const Tensor& part : parts) {
      const int64_t count = part.view.shape[1] * shape[2];
      for (int64_t matrix = 0; matrix < shape[0]; ++matrix)
        read_values(part.view, matrix * count, count,
                    std::span(whole.values)
                        .subspan(static_cast<size_t>((matrix * shape[1] + first) * shape[2]),
                                 static_cast<size_t>(count)));
      first += part.view.shape[1];
    }
    return reference::narrow(reference::to_tensor(std::move(whole)).view, DType::Float32);
  }

  StoredWeight weight_;
};

/// What golden calls its parameters, as a checkpoint lists them.
Run parameters_of(const Run& hf) {
  Run names;
  std::map<std::string, size_t> seen;
  const auto add = [&](const std::string& name, const TensorRecord& record) {
    if (name.empty()) return;
    const auto [found, is_new] = seen.emplace(name, names.records.size());
    if (is_new) names.records.emplace_back().node = name;
    if (!names.records[found->second].shape) names.records[found->second].shape = record.shape;
  };
  for (const TensorRecord& record : hf.records) {
    if (record.role == Role::Weight || record.role == Role::Buffer) {
      const std::string& node = record.node;
      add(node.empty() || record.slot.empty() ? node + record.slot : node + "." + record.slot,
          record);
    }
    add(record.leaf, record);
  }
  return names;
}

/// "q8_0", "f16"; "f32" for values that no kernel converts anything for.
std::string stored_type(const TensorRecord& record) {
  if (!record.memory_format.empty()) return record.memory_format;
  if (record.dtype == DType::Float16) return "f16";
  if (record.dtype == DType::BFloat16) return "bf16";
  return "f32";
}

/// The experts of a layer, where golden has their matrices in one parameter as the file has:
/// "[experts, out, in]", gate and up one after the other. Nothing for axes in another order, which
/// some families have.
std::optional<StoredWeight> stacked_experts(const Run& file, const TensorRecord& golden) {
  if (!golden.shape || golden.shape->size() != 3) return std::nullopt;
  for (const std::vector<std::string>& names : pair::gguf_experts_of(golden.node)) {
    StoredWeight weight;
    int64_t rows = 0;
    for (const std::string& name : names) {
      const auto found = std::ranges::find_if(
          file.records, [&](const TensorRecord& record) { return record.node == name; });
      if (found == file.records.end() || !found->shape || found->shape->size() != 3 ||
          (*found->shape)[0] != (*golden.shape)[0] || (*found->shape)[2] != (*golden.shape)[2])
        break;
      StoredWeight::Part& part = weight.parts.emplace_back();
      part.record = *found;
      part.how.name = name;
      part.type = stored_type(*found);
      part.first_row = rows;
      rows += (*found->shape)[1];
    }
    if (weight.parts.size() == names.size() && rows == (*golden.shape)[1]) return weight;
  }
  return std::nullopt;
}

std::string inner_name(const TensorPair& pair) {
  return pair.tensor.module +
         (pair.tensor.place == ModulePlace::RotatedQuery ? ".query_rope" : ".key_rope");
}

constexpr std::string_view kFusedProjection = ".qkv_proj";

std::optional<AttentionInput> attention_input(const TensorPair& pair) {
  if (pair.tensor.place == ModulePlace::RotatedQuery) return AttentionInput::Query;
  if (is_rotated(pair.tensor.place)) return AttentionInput::Key;
  const std::string& module = pair.tensor.module;
  const bool fused = pair.node.starts_with("wqkv-") &&
                     (module.ends_with(kFusedProjection) || module.ends_with("v_proj"));
  if (pair.node.starts_with("Vcur-") || fused) return AttentionInput::Value;
  return std::nullopt;
}

}  // namespace

Modules::Modules(const Run& hf, const Run& ggml, const Alignment& alignment)
    : run_(std::make_unique<Run>(ggml)), notes_(alignment.notes), missing_(alignment.missing) {
  add_tensors(hf, alignment);
  add_weights(hf);
}

void Modules::add_tensors(const Run& hf, const Alignment& alignment) {
  uint64_t order = 0;
  for (const TensorRecord& record : run_->records) order = std::max(order, record.order + 1);
  for (const run::OperationRecord& one : run_->operations) order = std::max(order, one.order + 1);
  Run ggml_records;  // a copy: run_->records grows below, which would move its records
  ggml_records.records = run_->records;
  for (const TensorPair& pair : alignment.pairs) {
    if (pair.hf_last > 0) continue;     // a part of the tensor of golden
    if (!pair.cells.empty()) continue;  // attention is judged by what comes out of it
    // Experts, and the few weights of each token, are judged by what comes out of all experts.
    if (pair.tensor.place == ModulePlace::RouterWeights || is_of_experts(pair.tensor.place))
      continue;
    const bool captured = std::ranges::all_of(pair.ggml, [&](size_t record) {
      return ggml_records.records[record].bytes && ggml_records.records[record].shape;
    });
    if (!captured) continue;
    const TensorRecord& golden = hf.records[pair.hf];
    const TensorRecord& first = ggml_records.records[pair.ggml.front()];
    const bool rotated = is_rotated(pair.tensor.place);
    TensorRecord record;
    record.rank = golden.rank;
    record.step = golden.step;
    record.step_name = golden.step_name;
    record.node = rotated ? inner_name(pair) : golden.node.str();
    record.op_type = rotated ? InternedText() : golden.op_type;
    record.role = golden.role;
    record.slot = rotated ? InternedText() : golden.slot;
    record.call = golden.call;
    // The golden order of modules, in which they enclose each other.
    record.order = order + pair.hf;
    record.dtype = first.dtype;
    record.shape = golden.shape;
    record.strides = golden.shape ? std::optional(contiguous_strides(*golden.shape)) : std::nullopt;
    record.bytes = first.bytes;
    record.bytes->raw = false;
    record.set_made(module_tensor(hf, ggml_records, pair));
    if (rotated) inner_.emplace_back(pair.hf, inner_name(pair));
    if (const std::optional<AttentionInput> input = attention_input(pair))
      attention_inputs_.emplace(run_->records.size(), *input);
    places_.emplace(run_->records.size(),
                    EnginePlace{pair.ggml.front(), pair.hf, pair.node,
                                static_cast<int64_t>(pair.hf_rows.size()) == pair.hf_row_count
                                    ? std::vector<int64_t>()
                                    : pair.hf_rows});
    run_->records.push_back(std::move(record));
  }
}

void Modules::add_weights(const Run& hf) {
  const Run names = parameters_of(hf);
  std::vector<std::string> files = model_files(*run_);
  // The other shards belong to the first.
  if (!files.empty()) {
    if (const auto shards = run::gguf_files(files.front(), "")) {
      std::erase_if(files, [&](const std::string& file) {
        return file != files.front() &&
               std::ranges::find(shards->paths, file) != shards->paths.end();
      });
    }
  }
  if (files.size() > 1)
    notes_.push_back("the captured command names several models, so no weights were compared");
  if (files.empty())
    notes_.push_back(
        "the model's file is not where the captured command says, so its weights are not compared");
  if (files.size() != 1) return;
  Result<Run> opened = run::open_checkpoint(files.front());
  if (!opened) {
    notes_.push_back("the model's file cannot be read: " + opened.error().describe());
    return;
  }
  std::set<std::string> paired;  // of the file
  for (const TensorRecord& golden : names.records) {
    const auto experts = stacked_experts(*opened, golden);
    if (!experts) continue;
    add_weight(golden.node, *golden.shape, *experts);
    for (const StoredWeight::Part& part : experts->parts) paired.insert(part.how.name);
  }
  std::erase_if(opened->records,
                [&](const TensorRecord& record) { return paired.contains(record.node); });
  paired.clear();
  Run others;
  compare::take_experts_apart(&*opened, &others);
  compare::GgufSide side = compare::as_checkpoint(*opened, names);
  const pair::CheckpointSide of_golden(names, /*as_stored=*/true);
  const pair::CheckpointSide of_file(side.run, /*as_stored=*/true);
  for (const pair::WeightPair& one : pair::WeightPairing(of_golden, of_file).pairs()) {
    const auto how = side.weights.find(one.mine);
    const TensorRecord& stored = side.run.records[one.mine];
    if (how == side.weights.end() || !stored.shape || one.rule == pair::Rule::TiedEmbedding)
      continue;
    StoredWeight whole;
    whole.parts.push_back({stored, how->second, stored_type(stored), 0});
    add_weight(names.records[one.golden].node, *stored.shape, whole);
    paired.insert(how->second.name);
  }
  for (const TensorRecord& record : opened->records) {
    if (!record.shape || record.shape->size() < 2 || stored_type(record) == "f32" ||
        paired.contains(record.node))
      continue;
    lonely_weight_ = record.node;
    return;
  }
}

void Modules::add_weight(const std::string& name, const Dims& shape, const StoredWeight& stored) {
  const TensorRecord& first = stored.parts.front().record;
  const size_t dot = name.rfind('.');
  TensorRecord record;
  record.step_name = "weights";
  record.node = name.substr(0, dot == std::string::npos ? 0 : dot);
  record.slot = name.substr(dot == std::string::npos ? 0 : dot + 1);
  record.role = Role::Weight;
  record.order = run_->records.empty() ? 0 : run_->records.back().order + 1;
  const bool decoded = !first.memory_format.empty() || stored.parts.size() > 1;
  record.dtype = decoded ? DType::Float32 : first.dtype;
  record.shape = shape;
  record.bytes = first.bytes;
  record.bytes->raw = false;
  record.set_made(std::make_shared<FileWeight>(stored));
  weights_.insert_or_assign(name, stored);
  places_.emplace(run_->records.size(),
                  EnginePlace{kNone, kNone, stored.parts.front().how.name, {}});
  run_->records.push_back(std::move(record));
}

void Modules::describe(Program* mine) const {
  // Weights that the capture has, too, under the engine's names: each counts once, as the file's.
  for (const auto& [name, stored] : weights_)
    for (const StoredWeight::Part& part : stored.parts) mine->leaves.erase(part.how.name);
  mine->stored_weights = weights_;
  mine->lonely_weight = lonely_weight_;
  for (const auto& [record, place] : places_) {
    if (!place.rows.empty()) mine->computed_rows.emplace(record, place.rows);
  }
  AttentionTypes types;
  for (const Operator& one : mine->operators) {
    mine->multiplies_angles |= one.name == "ggml.rope";
    const bool writes = one.name == "ggml.set_rows";
    const bool attends = one.name == "ggml.flash_attn_ext";
    if (!writes && !attends) continue;
    // Rows are written in the type of the cache; flash attention multiplies in that of its keys,
    // and sums up in that of its values.
    for (const Use& use : writes ? one.outputs : one.inputs) {
      const bool is_key = use.slot == "src1";
      if ((attends && !is_key && use.slot != "src2") || use.record >= run_->records.size())
        continue;
      const TensorRecord& record = run_->records[use.record];
      const bool halves = record.dtype == DType::Float16;
      if (!record.memory_format.empty()) {
        const bool keys = attends ? is_key : record.node.find("cache_k") != std::string::npos;
        (keys ? types.key_blocks : types.value_blocks) = record.memory_format;
      } else if ((writes || is_key) && (halves || record.dtype == DType::BFloat16)) {
        mine->attention_type = record.dtype;
      }
      types.sums_in_halves |= attends && !is_key && halves && record.memory_format.empty();
    }
    if (attends && !mine->attention_type) mine->attention_type = DType::Float16;
  }
  describe_attention(types, mine);
}

int64_t Modules::key_count() const {
  std::map<std::string, int64_t> counts;  // by module, over all steps
  int64_t most = 0;
  for (const auto& [record, input] : attention_inputs_) {
    const TensorRecord& values = run_->records[record];
    if (input != AttentionInput::Value || !values.shape || values.shape->size() < 2) continue;
    int64_t& count = counts[values.node];
    count += (*values.shape)[values.shape->size() - 2];
    most = std::max(most, count);
  }
  return most;
}

void Modules::describe_attention(const AttentionTypes& types, Program* mine) const {
  // Queries are converted to go with keys in blocks: to q8_0, or to q8_1, whose steps are the same.
  const std::string* const blocks[] = {&types.key_blocks, &types.key_blocks, &types.value_blocks};
  std::array<bool, 3> known{};
  for (const auto& [record, input] : attention_inputs_) known[static_cast<size_t>(input)] = true;
  for (size_t i = 0; i < known.size(); ++i) {
    if (blocks[i]->empty() || (known[i] && has_block_steps(*blocks[i]))) continue;
    mine->unknown_blocks = *blocks[i];
    return;
  }
  if (types.sums_in_halves && !known[static_cast<size_t>(AttentionInput::Value)]) {
    mine->unknown_blocks = "float16";
    return;
  }
  for (const auto& [what, type] :
       {std::pair("keys in ", &types.key_blocks), std::pair("values in ", &types.value_blocks)}) {
    if (!type->empty())
      mine->cache_blocks += (mine->cache_blocks.empty() ? "" : ", ") + (what + *type);
  }
  // A score that is off moves all of a row. With the few keys of a text's first rows one draw of
  // that noise may be several times another.
  constexpr double kSpreadOfScores = 2;
  // A sum over n keys is rounded n times: n (kRoundingL2 roundoffs)^2 of the squares of its terms.
  const double of_sums =
      types.sums_in_halves ? locate::kRoundingL2 * std::sqrt(static_cast<double>(key_count())) : 0;
  for (const auto& [record, input] : attention_inputs_) {
    const std::string& type = *blocks[static_cast<size_t>(input)];
    const bool is_value = input == AttentionInput::Value;
    if (type.empty() && !(is_value && of_sums > 0)) continue;
    mine->attention_roundings[record] = {
        input == AttentionInput::Query && !type.empty() ? "q8_0" : type,
        is_value ? 1 : kSpreadOfScores, is_value ? of_sums : 0,
        is_value ? first_value_channel(record) : 0};
  }
}

int64_t Modules::first_value_channel(size_t record) const {
  const TensorRecord& fused = run_->records[record];
  if (!fused.node.ends_with(kFusedProjection) || !fused.shape) return 0;
  const std::string keys =
      fused.node.substr(0, fused.node.size() - kFusedProjection.size()) + ".key_rope";
  for (const auto& [index, input] : attention_inputs_) {
    const TensorRecord& key = run_->records[index];  // [1, heads, tokens, channels]
    if (input != AttentionInput::Key || key.node != keys || key.step != fused.step) continue;
    return fused.shape->span().back() - (*key.shape)[1] * (*key.shape)[3];
  }
  return 0;
}

void Modules::add_inner_values(Program* golden) const {
  std::map<size_t, std::string_view> wanted;
  for (const auto& [record, name] : inner_) wanted.emplace(record, name);
  for (const Operator& one : golden->operators) {
    for (const Use& use : one.outputs) {
      const auto found = wanted.find(use.record);
      if (found == wanted.end()) continue;
      ModuleCall call;
      call.module = found->second;
      call.call = one.module_call;
      call.rank = one.rank;
      call.step = one.step;
      call.begin = call.end = use.time;
      call.leaf = true;
      call.outputs.push_back(use);
      call.outputs.back().slot.clear();
      golden->calls.push_back(std::move(call));
    }
  }
  std::ranges::stable_sort(golden->calls, [](const ModuleCall& a, const ModuleCall& b) {
    return std::pair(a.rank, a.end) < std::pair(b.rank, b.end);
  });
}

void Modules::complete(const Program& golden, const Program& mine, Finding* finding) const {
  Parameters(golden, mine, *this).complete(finding);
}

const EnginePlace* Modules::place_of(size_t record) const {
  const auto found = places_.find(record);
  return found == places_.end() ? nullptr : &found->second;
}

}  // namespace assay::engines::ggml
