// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "atb/probe.h"
#include "runner.h"

namespace atb_host {
namespace {

using atb::Probe;

std::atomic<int64_t> next_base_id{0};  // of the process, in the order of first execution

// The numbers are real in release 8.0 only; from 8.2 on they are cleared before they are reported.
std::string setup_statistic(bool real, double total_us, double fill_us, bool first) {
  const auto number = [&](double value) {
    return std::to_string(real ? static_cast<int64_t>(value) : 0);
  };
  const std::string hits = number(first ? 0 : 1);
  const std::string misses = number(first ? 1 : 0);
  return "totalTime:" + number(total_us) +
         ", runnerCreateTime:" + number(first ? total_us / 4 : 0) +
         ", runnerSetupTime:" + number(total_us / 2) +
         ", runnerFillHostTilingTime:" + number(fill_us) + ", setupTotalCount:" + number(1) +
         ", setupCacheHitCount:" + hits + ", setupCacheMissCount:" + misses +
         // "Luanch" is the library's spelling.
         ", opsInitLuanchBufferTime:0, tilingCacheHitCount:" + hits +
         ", tilingCacheMissCount:" + misses + ", tilingLocalCacheHitCount:" + hits +
         ", tilingGlobalCacheHitCount:0, kernelCacheGetTilingTime:0, kernelCacheAddTilingTime:0, "
         "kernelCacheCompareRunInfoTime:0, kernelCacheGetRunInfoTime:0";
}

std::string execute_statistic(double total_us) {
  const std::string total = std::to_string(static_cast<int64_t>(total_us));
  return "totalTime:" + total +
         ", streamSyncTime:0, tillingCopyTime:0, kernelExecuteTime:" + total +
         ", launchTime:" + total + ", preLaunchTime:0";
}

}  // namespace

std::optional<Version> version_from_name(std::string_view name) {
  if (name == "8.0") {
    return Version{.updates_config = false,
                   .execute_statistics = true,
                   .host_tiling = true,
                   .cached_tiling = false};
  }
  if (name == "8.3") return Version{};
  if (name == "9.1") return Version{.parameter_names = true};
  return std::nullopt;
}

std::string operation_name(const std::string& type, const Ids& ids) {
  std::string name = type;
  for (const int64_t id : ids) name += "_" + std::to_string(id);
  return name;
}

Context::Context(int device, const Version& version) : device_(device), version_(version) {
  Probe::IsOverflowCheck();  // ->
}

Context::~Context() { Probe::IsOverflowCheck(); }  // ->

void Context::set_stream() { Probe::IsOverflowCheck(); }  // ->

void Context::save_tensor(const Tensor& tensor, const Dims& dims, const std::string& path) {
  staging_ = *tensor.memory;
  ++saved_tensors_;
  saved_bytes_ += staging_.size();
  try {
    Probe::SaveTensor(std::to_string(kFormatNd),
                      std::to_string(static_cast<int>(tensor.desc.dtype)),  // ->
                      dims_text(dims), staging_.data(), staging_.size(), path);
  } catch (...) {
    std::fprintf(stderr, "the probe threw from SaveTensor, the library goes on\n");
  }
}

uint8_t* Context::host_tiling(size_t bytes) {
  if (tiling_.size() < bytes) tiling_.resize(bytes);
  return tiling_.data();
}

Operation::Operation(std::string type, size_t in_count, size_t out_count)
    : type_(std::move(type)), in_count_(in_count), out_count_(out_count) {}

Operation::~Operation() = default;

Json::Object Operation::topology(const Ids& ids) const {
  return {{"opName", operation_name(topology_type(), ids)},
          {"opType", topology_type()},
          {"inTensorNum", in_count_},
          {"outTensorNum", out_count_},
          {"param", param()}};
}

void Operation::prepare(const VariantPack& pack, Context& context) {
  if (ids_.empty()) ids_ = {next_base_id++};
  if (!runner_) {
    runner_ = make_runner(ids_, context);       // -> IsTensorNeedSave for all below
    if (Probe::ReportOperationGraphEnable()) {  // ->
      Probe::ReportOperationGraph(operation_name(topology_type(), ids_),
                                  Json(topology(ids_)).dump());  // ->
    }
  }
  runner_->ask_flag();
  if (Probe::IsSaveTensorDesc()) {  // ->
    runner_->set_directory(std::to_string(context.device()) + "_" +
                           std::to_string(syscall(SYS_getpid)) + "/" + std::to_string(count_) +
                           "/" + std::to_string(ids_[0]) + "_" + type_);
  }
  runner_->setup(pack);
}

Status Operation::setup(const VariantPack& pack, Context& context) {
  const Stopwatch total;
  const bool first = !runner_;
  double fill_us = 0;
  Status status = Status::kOk;
  try {
    prepare(pack, context);
    const Stopwatch fill;
    // Twice the size: the pointers that the probe gets are offset twice.
    runner_->fill_tiling(context.host_tiling(2 * runner_->tiling_bytes()));
    fill_us = fill.elapsed_us();
    ++count_;
  } catch (...) {
    status = Status::kOutOfHostMemory;
  }
  if (Probe::ReportOperationStatisticEnable()) {  // ->
    Probe::ReportOperationSetupStatistic(         // ->
        count_, operation_name(type_, ids_),
        setup_statistic(context.version().execute_statistics, total.elapsed_us(), fill_us, first));
  }
  return status;
}

Status Operation::execute(Context& context) {
  const Stopwatch total;
  Status status = Status::kOk;
  try {
    status = runner_->execute();
  } catch (...) {
    status = Status::kOutOfHostMemory;
  }
  if (context.version().execute_statistics && Probe::ReportOperationStatisticEnable()) {  // ->
    Probe::ReportOperationExecuteStatistic(count_, operation_name(type_, ids_),           // ->
                                           execute_statistic(total.elapsed_us()));
  }
  return status;
}

IfOperation::IfOperation(std::function<bool()> condition, std::unique_ptr<KernelOperation> then,
                         std::unique_ptr<KernelOperation> otherwise)
    : Operation("IfOperation", then->in_count(), then->out_count()),
      condition_(std::move(condition)),
      then_(std::move(then)),
      otherwise_(std::move(otherwise)) {}

KernelOperation& IfOperation::chosen() const { return condition_() ? *then_ : *otherwise_; }

std::vector<TensorDesc> IfOperation::infer(const std::vector<TensorDesc>& in) const {
  return chosen().infer(in);
}

GraphOperation::GraphOperation(std::string name, std::vector<std::string> in,
                               std::vector<std::string> out)
    : Operation(std::move(name), in.size(), out.size()), names_(std::move(in)) {
  names_.insert(names_.end(), out.begin(), out.end());
}

size_t GraphOperation::number_of(const std::string& name) const {
  return static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
}

void GraphOperation::add(std::unique_ptr<Operation> operation, const std::vector<std::string>& in,
                         const std::vector<std::string>& out, std::vector<Reshape> reshapes) {
  Node node{
      .operation = std::move(operation), .in = {}, .out = {}, .reshapes = std::move(reshapes)};
  for (const std::string& name : in) node.in.push_back(number_of(name));
  for (const std::string& name : out) {
    node.out.push_back(number_of(name));
    if (node.out.back() == names_.size()) names_.push_back(name);
  }
  nodes_.push_back(std::move(node));
}

std::vector<TensorDesc> GraphOperation::infer_all(const std::vector<TensorDesc>& in) const {
  std::vector<TensorDesc> descs = in;
  descs.resize(names_.size());
  for (const Node& node : nodes_) {
    std::vector<TensorDesc> node_in;
    for (size_t i = 0; i < node.in.size(); ++i) {
      TensorDesc desc = descs.at(node.in[i]);
      if (i < node.reshapes.size() && node.reshapes[i]) desc.dims = node.reshapes[i](desc.dims);
      node_in.push_back(std::move(desc));
    }
    const std::vector<TensorDesc> node_out = node.operation->infer(node_in);
    for (size_t i = 0; i < node.out.size(); ++i) descs.at(node.out[i]) = node_out[i];
  }
  return descs;
}

std::vector<TensorDesc> GraphOperation::infer(const std::vector<TensorDesc>& in) const {
  const std::vector<TensorDesc> descs = infer_all(in);
  const auto first = descs.begin() + static_cast<int64_t>(in_count());
  return {first, first + static_cast<int64_t>(out_count())};
}

Json::Object GraphOperation::topology(const Ids& ids) const {
  Json::Object graph = Operation::topology(ids);
  graph["internalTensorNum"] = names_.size() - in_count() - out_count();
  Json::Array nodes;
  for (const Node& node : nodes_) {
    Ids node_ids = ids;
    node_ids.push_back(static_cast<int64_t>(nodes.size()));
    Json::Object child = node.operation->topology(node_ids);
    child["inTensorIds"] = json_array(node.in);
    child["outTensorIds"] = json_array(node.out);
    nodes.emplace_back(std::move(child));
  }
  graph["nodes"] = std::move(nodes);
  return graph;
}

}  // namespace atb_host
