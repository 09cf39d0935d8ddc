// SPDX-License-Identifier: Apache-2.0
// A weight comes from the model's file when name, shape and type agree; a view is followed back,
// through operators that only view, to a captured value of the same storage and version.
//   docs/reference-ggml.md, "Operands that a capture does not copy"
#include "engines/ggml/operands.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "reference/ggml/operators.hpp"
#include "run/checkpoint.hpp"
#include "run/container.hpp"
#include "run/load.hpp"

namespace assay::engines::ggml {
namespace {

using locate::kNone;
using locate::Operator;
using locate::Program;
using locate::Use;
using nlohmann::json;
using reference::aten::ArgumentList;
using reference::aten::Call;
using run::TensorRecord;

/// The same weight as far as the records tell.
bool is_same_weight(const TensorRecord& captured, const TensorRecord& stored) {
  if (!captured.shape || !stored.shape || captured.dtype != stored.dtype ||
      captured.memory_format != stored.memory_format)
    return false;
  // Captured shapes have no leading ones.
  const std::span<const int64_t> a = captured.shape->span();
  std::span<const int64_t> b = stored.shape->span();
  while (b.size() > a.size() && b.front() == 1) b = b.subspan(1);
  return std::ranges::equal(a, b);
}

const TensorRecord* record_of(const Program& program, const Use& use) {
  return use.record < program.run->records.size() ? &program.run->records[use.record] : nullptr;
}

/// The captured value that views lead to; null when there is none.
const TensorRecord* viewed_value(const Program& program, const Use& use) {
  const Use* at = &use;
  // Every step goes to an earlier operator.
  while (at->producer < program.operators.size()) {
    const Operator& maker = program.operators[at->producer];
    if (!reference::ggml::is_ggml(maker.name) || !reference::aten::is_view(maker.name) ||
        maker.inputs.empty())
      return nullptr;
    const Use* source = &maker.inputs.front();
    if (source->producer != kNone && source->producer >= at->producer) return nullptr;
    at = source;
    const TensorRecord* record = record_of(program, *at);
    if (record != nullptr && record->bytes) return record;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> model_files(const run::Run& run) {
  std::set<std::string> files;
  // Older captures know the command only: "model.gguf", "--model=model.gguf".
  for (const char* property : {"host.models", "host.program"}) {
    const auto text = run.properties.find(property);
    if (text == run.properties.end() || !files.empty()) continue;
    const json words = json::parse(text->second, nullptr, /*allow_exceptions=*/false);
    if (!words.is_array()) continue;
    for (const json& word : words) {
      if (!word.is_string()) continue;
      std::string path = word.get<std::string>();
      if (!path.ends_with(".gguf")) continue;
      std::error_code ignored;
      if (!std::filesystem::is_regular_file(path, ignored)) path = path.substr(path.find('=') + 1);
      if (std::filesystem::is_regular_file(path, ignored)) files.insert(std::move(path));
    }
  }
  return {files.begin(), files.end()};
}

std::map<std::string, TensorRecord, std::less<>> model_weights(const run::Run& run) {
  std::map<std::string, TensorRecord, std::less<>> weights;
  std::set<std::string> ambiguous;
  std::set<std::string> files;  // all shards of each
  for (const std::string& path : model_files(run)) {
    files.insert(path);
    if (const auto shards = run::gguf_files(path, ""))
      files.insert(shards->paths.begin(), shards->paths.end());
  }
  for (const std::string& path : files) {
    const auto file = run::open_container(path);
    if (!file) continue;  // not judged then, as without the file
    const auto records = (*file)->list();
    if (!records) continue;
    for (const TensorRecord& record : *records) {
      if (!record.bytes || !record.problem.empty()) continue;
      const std::string& name = record.bytes->member;
      if (!weights.emplace(name, record).second) ambiguous.insert(name);
    }
  }
  for (const std::string& name : ambiguous) weights.erase(name);
  return weights;
}

Result<Tensor> load_uncopied(const Program& program, const Use& use) {
  const TensorRecord& record = program.run->records[use.record];
  const auto weight = program.model_weights.find(use.leaf);
  if (!use.leaf.empty() && weight != program.model_weights.end() &&
      is_same_weight(record, weight->second)) {
    ASSAY_TRY(Tensor tensor, run::load_tensor(weight->second));
    if (tensor.view.shape == *record.shape) return tensor;
    return reference::reshaped(tensor, *record.shape);
  }
  const TensorRecord* root = viewed_value(program, use);
  if (root == nullptr || root->storage_id < 0 || root->storage_id != record.storage_id ||
      root->storage_version != record.storage_version || root->dtype != record.dtype ||
      !root->memory_format.empty() || !record.shape || !record.strides || !root->shape ||
      !root->strides || *root->strides != contiguous_strides(*root->shape))
    return run::load_tensor(record);
  ASSAY_TRY(Tensor tensor, run::load_tensor(*root));
  ASSAY_TRY(tensor.view,
            make_view(*record.dtype, *record.shape, *record.strides, tensor.view.storage,
                      tensor.view.offset_elements + record.storage_offset - root->storage_offset));
  return tensor;
}

Status add_facts(const Program& program, const Operator& one, Call* call) {
  const auto& records = program.run->records;
  for (const Use& use : one.inputs) {
    if (use.record >= records.size()) continue;
    const run::TensorRecord& record = records[use.record];
    if (!record.memory_format.empty())
      call->arguments[use.slot + "_type"].value = record.memory_format;
    // What is loaded has no gaps; offsets count in what the host had.
    if (one.name == "ggml.view" && record.shape && record.strides &&
        *record.strides != contiguous_strides(*record.shape))
      return fail(Errc::Unsupported, one.name + ": a view of a view with gaps");
  }
  if (one.outputs.empty() || one.outputs[0].record >= records.size()) return {};
  const run::TensorRecord& result = records[one.outputs[0].record];
  if (!result.memory_format.empty())
    return fail(Errc::Unsupported, one.name + ": no reference for results in blocks");
  if (!result.shape || result.shape->size() > 4) return {};
  ArgumentList ne(4);
  for (size_t i = 0; i < 4; ++i) {
    const size_t rank = result.shape->size();
    ne[i].value = i < rank ? (*result.shape)[rank - 1 - i] : int64_t{1};
  }
  call->arguments["ne"].value = std::move(ne);
  if (one.name != "ggml.view" || !result.strides) return {};
  ArgumentList strides;
  for (const int64_t stride : result.strides->span()) strides.emplace_back().value = stride;
  call->arguments["strides"].value = std::move(strides);
  return {};
}

}  // namespace assay::engines::ggml
