// SPDX-License-Identifier: Apache-2.0
// Arrows mark the calls into the probe. Their order within a condition matters: C++ stops at the first no, so which
// questions a probe is asked depends on what it answered before.
#include "runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atb/probe.h"

namespace atb_host {
namespace {

using atb::Probe;

constexpr size_t kTilingAlignment = 32;

// The library's helpers that describe a tensor in words.
Probe::Tensor described(const Tensor& tensor, std::string path) {
  return {dtype_word(tensor.desc.dtype), "nd", dims_text(tensor.desc.dims), std::move(path)};
}

std::vector<Probe::Tensor> described(const std::vector<Tensor>& tensors, const std::string& stem) {
  std::vector<Probe::Tensor> result;
  for (const Tensor& tensor : tensors) {
    result.push_back(described(tensor, stem + std::to_string(result.size()) + ".bin"));
  }
  return result;
}

bool has_overflow(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    const DType dtype = tensor.desc.dtype;
    if (dtype == DType::kInt8 || dtype == DType::kInt32 || dtype == DType::kInt64) continue;
    const std::vector<float> values = load(tensor);
    if (std::any_of(values.begin(), values.end(), [](float v) { return !std::isfinite(v); })) {
      return true;
    }
  }
  return false;
}

std::vector<Dims> dims_of(const std::vector<Tensor>& tensors) {
  std::vector<Dims> dims;
  for (const Tensor& tensor : tensors) dims.push_back(tensor.desc.dims);
  return dims;
}

}  // namespace

Runner::Runner(const Operation& operation, std::string name, const std::string& runner_name,
               Ids ids, Context& context)
    : name_(std::move(name)),
      ids_(std::move(ids)),
      context_(context),
      directory_(runner_name),
      in_count_(operation.in_count()) {}

void Runner::ask_flag() { flag_ = Probe::IsTensorNeedSave(ids_, name_); }  // ->

void Runner::setup(const VariantPack& pack) {
  pack_ = pack;
  setup_below();
  if (context_.version().updates_config) Probe::UpdateConfig();  // ->
}

bool Runner::in_directory(const std::string& directory) const {
  return !context_.version().updates_config || Probe::IsSaveTensorInSpecificDir(directory);  // ->
}

bool Runner::wants_tensors() const {
  return Probe::IsExecuteCountInRange(execute_count_) && flag_ && in_directory(directory_);  // ->
}

void Runner::save_pack(const std::string& directory, const std::vector<Tensor>& in,
                       const std::vector<Dims>& in_views, const std::vector<Tensor>& out,
                       bool with_names) const {
  Probe::
      IsSaveTensorData();  // -> yes: the stream is synchronised here, so that the values are final
  const auto ending = [&](const std::vector<std::string>& names, size_t i) {
    return std::to_string(i) + (with_names && i < names.size() ? "_" + names[i] : "") + ".bin";
  };
  for (size_t i = 0; i < in.size(); ++i) {
    const Dims& dims = i < in_views.size() ? in_views[i] : in[i].desc.dims;
    context_.save_tensor(in[i], dims, directory + "/intensor" + ending(in_names(), i));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const std::string path = directory + "/outtensor" + ending(out_names(), i);
    context_.save_tensor(out[i], out[i].desc.dims, path);
  }
}

void Runner::report_tensors() const {
  // Inputs and outputs are named in the same sub-folder, whatever is saved there.
  const std::string stem =
      directory_ + (Probe::IsSaveTensorBefore() ? "/before/" : "/after/");  // ->
  const std::string text = parameters();
  Probe::ReportOperationIOTensor(execute_count_, operation_name(name_, ids_),  // ->
                                 text.empty() ? "{}" : text, described(pack_.in, stem + "intensor"),
                                 described(pack_.out, stem + "outtensor"));
}

Status Runner::execute() {
  const bool with_names = context_.version().parameter_names;
  if (wants_tensors() && Probe::IsSaveTensorBefore()) {  // ->
    save_pack(directory_ + "/before", pack_.in, {}, pack_.out, with_names);
  }
  const Status status = run();
  if (wants_tensors() && Probe::IsSaveTensorAfter()) {  // ->
    save_pack(directory_ + "/after", pack_.in, {}, pack_.out, with_names);
  }
  if (wants_tensors() && Probe::IsSaveParam()) {  // ->
    const std::string text = parameters();
    if (!text.empty()) Probe::SaveParam(text, directory_ + "/op_param.json");  // ->
  }
  if (Probe::ReportOperationIOTensorEnable() && !is_graph()) report_tensors();  // ->
  ++execute_count_;
  return status;
}

namespace {

/// Runs the kernels of one operation.
class KernelRunner final : public Runner {
 public:
  KernelRunner(const KernelOperation& operation, const std::string& name, const Ids& ids,
               Context& context)
      : Runner(operation, name, runner_name(operation.type()), ids, context),
        operation_(operation),
        behind_if_(name != operation.type()) {}

  size_t tiling_bytes() const override {
    size_t total = 0;
    for (const Kernel& kernel : kernels_) total += tiling_bytes(kernel);
    return total;
  }

  void fill_tiling(uint8_t* base) override {
    size_t offset = 0;
    for (size_t k = 0; k < kernels_.size(); ++k) {
      const size_t size = tiling_bytes(kernels_[k]);
      if (size == 0) continue;
      if (context_.version().host_tiling) {
        std::memcpy(base + offset, kernels_[k].tiling.data(),
                    kernels_[k].tiling.size() * sizeof(int32_t));
      }
      if (kernel_flags_[k] && Probe::IsExecuteCountInRange(execute_count_) &&  // ->
          Probe::IsSaveTiling() && in_directory(kernel_directory(k))) {        // ->
        // The library adds the offset twice: right for the first kernel only. Context::host_tiling has room for it.
        Probe::SaveTiling(base + 2 * offset, size,  // ->
                          kernel_directory(k) + "/kernel_tilingdata.bin");
      }
      offset += size;
    }
  }

 protected:
  void setup_below() override {
    kernels_ = operation_.kernels(pack_);
    const std::vector<Dims> shapes = dims_of(pack_.in);
    if (kernel_flags_.empty()) {
      for (size_t k = 0; k < kernels_.size(); ++k) {
        Ids ids = ids_;
        ids.push_back(static_cast<int64_t>(k));
        kernel_flags_.push_back(Probe::IsTensorNeedSave(ids, name_));  // -> the operation's name
      }
    } else if (context_.version().cached_tiling && shapes == shapes_) {
      for (size_t k = 0; k < kernels_.size(); ++k) Probe::IsSaveTiling();  // ->
    }
    shapes_ = shapes;
  }

  Status run() override {
    for (size_t k = 0; k < kernels_.size(); ++k) {
      const Kernel& kernel = kernels_[k];
      const std::string directory = kernel_directory(k);
      if (kernel_flags_[k] && Probe::IsExecuteCountInRange(execute_count_) &&  // ->
          Probe::IsSaveTensorBefore() && in_directory(directory)) {            // ->
        save_pack(directory + "/before", kernel.in, kernel.in_views, kernel.out, false);
      }
      kernel.run();
      if (Probe::IsOverflowCheck() && has_overflow(kernel.out)) {                      // ->
        Probe::ReportOverflowKernel(operation_name(name_, ids_) + ":" + kernel.name);  // ->
        if (Probe::IsOverflowStop()) return Status::kOverflow;                         // ->
      }
      if (Probe::ReportKernelIOTensorEnable()) report_kernel(kernel);          // ->
      if (kernel_flags_[k] && Probe::IsExecuteCountInRange(execute_count_) &&  // ->
          Probe::IsSaveTensorAfter() && in_directory(directory)) {             // ->
        save_pack(directory + "/after", kernel.in, kernel.in_views, kernel.out, false);
      }
    }
    return Status::kOk;
  }

  std::string parameters() const override {
    const Json param = operation_.param();
    return behind_if_ || param.is_null() ? "" : param.dump();
  }
  std::vector<std::string> in_names() const override {
    return behind_if_ ? std::vector<std::string>{} : operation_.in_names();
  }
  std::vector<std::string> out_names() const override {
    return behind_if_ ? std::vector<std::string>{} : operation_.out_names();
  }

 private:
  // "LinearOperation" is run by "LinearOpsRunner".
  static std::string runner_name(const std::string& type) {
    return type.substr(0, type.rfind("Operation")) + "OpsRunner";
  }

  static size_t tiling_bytes(const Kernel& kernel) {
    const size_t size = kernel.tiling.size() * sizeof(int32_t);
    return (size + kTilingAlignment - 1) / kTilingAlignment * kTilingAlignment;
  }

  std::string kernel_directory(size_t k) const {
    return directory_ + "/" + std::to_string(k) + "_" + kernels_[k].name;
  }

  // The paths are those of the operation, and the name has no ids.
  void report_kernel(const Kernel& kernel) const {
    const std::string stem =
        directory_ + (Probe::IsSaveTensorBefore() ? "/before/" : "/after/");     // ->
    Probe::ReportKernelIOTensor(execute_count_, kernel.operation, kernel.param,  // ->
                                described(kernel.in, stem + "intensor"),
                                described(kernel.out, stem + "outtensor"));
  }

  const KernelOperation& operation_;
  const bool behind_if_;
  std::vector<Kernel> kernels_;
  std::vector<bool> kernel_flags_;
  std::vector<Dims> shapes_;
};

/// Runs a plugin; what the plugin does inside is its own affair.
class PluginRunner final : public Runner {
 public:
  PluginRunner(PluginOperation& operation, const Ids& ids, Context& context)
      : Runner(operation, operation.type(), "PluginRunner", ids, context), operation_(operation) {}

 protected:
  void setup_below() override { status_ = operation_.setup_plugin(pack_, context_); }
  Status run() override {
    return status_ == Status::kOk ? operation_.execute_plugin(context_) : status_;
  }

 private:
  PluginOperation& operation_;
  Status status_ = Status::kOk;
};

/// Runs the nodes of a graph one after the other.
class GraphRunner final : public Runner {
 public:
  GraphRunner(GraphOperation& operation, const Ids& ids, Context& context)
      : Runner(operation, operation.type(), operation.type() + "Runner", ids, context),
        operation_(operation) {
    for (const GraphOperation::Node& node : operation.nodes()) {
      Ids node_ids = ids_;
      node_ids.push_back(static_cast<int64_t>(children_.size()));
      children_.push_back(node.operation->make_runner(node_ids, context));
      children_.back()->ask_flag();
    }
  }

  void set_directory(const std::string& directory) override {
    Runner::set_directory(directory);
    for (size_t n = 0; n < children_.size(); ++n) {
      children_[n]->set_directory(directory + "/" + std::to_string(n) + "_" +
                                  operation_.nodes()[n].operation->type());
    }
  }

  size_t tiling_bytes() const override {
    size_t total = 0;
    for (const auto& child : children_) total += child->tiling_bytes();
    return total;
  }

  void fill_tiling(uint8_t* base) override {
    for (const auto& child : children_) {
      child->fill_tiling(base);
      base += child->tiling_bytes();
    }
  }

 protected:
  void setup_below() override {
    std::vector<TensorDesc> in_descs;
    for (const Tensor& tensor : pack_.in) in_descs.push_back(tensor.desc);
    const std::vector<TensorDesc> descs = operation_.infer_all(in_descs);
    std::vector<Tensor> tensors = pack_.in;
    tensors.insert(tensors.end(), pack_.out.begin(), pack_.out.end());
    for (size_t i = tensors.size(); i < descs.size(); ++i) tensors.push_back(make_tensor(descs[i]));
    for (size_t n = 0; n < children_.size(); ++n) {
      const GraphOperation::Node& node = operation_.nodes()[n];
      VariantPack pack;
      for (size_t i = 0; i < node.in.size(); ++i) {
        const Tensor& tensor = tensors[node.in[i]];
        const bool reshaped = i < node.reshapes.size() && node.reshapes[i];
        pack.in.push_back(reshaped ? with_dims(tensor, node.reshapes[i](tensor.desc.dims))
                                   : tensor);
      }
      for (const size_t number : node.out) pack.out.push_back(tensors[number]);
      children_[n]->setup(pack);
    }
  }

  Status run() override {
    for (const auto& child : children_) {
      const Status status = child->execute();
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }

  bool is_graph() const override { return true; }

 private:
  GraphOperation& operation_;
  std::vector<std::unique_ptr<Runner>> children_;
};

}  // namespace

std::unique_ptr<Runner> KernelOperation::make_runner(const Ids& ids, Context& context) {
  return std::make_unique<KernelRunner>(*this, type(), ids, context);
}

std::unique_ptr<Runner> IfOperation::make_runner(const Ids& ids, Context& context) {
  return std::make_unique<KernelRunner>(chosen(), type(), ids, context);
}

std::unique_ptr<Runner> PluginOperation::make_runner(const Ids& ids, Context& context) {
  return std::make_unique<PluginRunner>(*this, ids, context);
}

std::unique_ptr<Runner> GraphOperation::make_runner(const Ids& ids, Context& context) {
  return std::make_unique<GraphRunner>(*this, ids, context);
}

}  // namespace atb_host
