// SPDX-License-Identifier: Apache-2.0
// The acceleration library in small: operations, graphs of operations, plugin operations, the runners that execute
// them, and the calls into atb::Probe that the real library makes on the way, in its order and with its arguments.
//
// What a probe sees of one top-level operation (the calls stand beside the code in library.cpp):
//
//   setup()    runners are made         IsTensorNeedSave per node; ReportOperationGraph once
//              directories are named    IsSaveTensorDesc
//              runners are set up       IsTensorNeedSave per kernel, UpdateConfig per runner
//              tiling is filled         SaveTiling per kernel
//              statistics               ReportOperationSetupStatistic
//   execute()  per graph, node, kernel  SaveTensor before and after, ReportKernelIOTensor, SaveParam,
//                                       ReportOperationIOTensor
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "tensor.h"

namespace atb_host {

using Ids = std::vector<int64_t>;

/// As the library's own numbers; anything but kOk ends the inference.
enum class Status : int { kOk = 0, kOutOfHostMemory = 27, kOverflow = 31 };

/// What differs between releases of the library, as far as a probe can see it.
struct Version {
  bool updates_config = true;  // UpdateConfig and IsSaveTensorInSpecificDir exist: since 8.3
  bool execute_statistics =
      false;                     // ReportOperationExecuteStatistic is called, numbers are real: 8.0
  bool host_tiling = false;      // the tiling buffer on the host is really filled: 8.0
  bool cached_tiling = true;     // the tiling of a shape seen before is reused: since 8.1
  bool parameter_names = false;  // intensor0_x.bin instead of intensor0.bin for operations: 9.1
};

/// "8.0", "8.3" or "9.1".
std::optional<Version> version_from_name(std::string_view name);

struct VariantPack {
  std::vector<Tensor> in;
  std::vector<Tensor> out;
};

/// One stream of work on one device. Not for several threads; each thread has a context of its own.
class Context {
 public:
  Context(int device, const Version& version);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void set_stream();

  int device() const { return device_; }
  const Version& version() const { return version_; }
  uint64_t saved_tensors() const { return saved_tensors_; }
  uint64_t saved_bytes() const { return saved_bytes_; }

  /// Hands a copy of the tensor to the probe; the copy is overwritten by the next call.
  void save_tensor(const Tensor& tensor, const Dims& dims, const std::string& path);

  /// At least `bytes` of memory, zeros where nobody has written yet.
  uint8_t* host_tiling(size_t bytes);

 private:
  int device_;
  Version version_;
  std::vector<std::byte> staging_;
  std::vector<uint8_t> tiling_;
  uint64_t saved_tensors_ = 0;
  uint64_t saved_bytes_ = 0;
};

/// One launch on the device. Tensors are bound when the operation is set up.
struct Kernel {
  std::string name;       // "MatMulNdF16Kernel"
  std::string operation;  // name of the kernel library's operation: "MatMulOperation"
  std::string param;      // its parameters as text, in no particular form
  std::vector<int32_t> tiling;
  std::vector<Tensor> in;
  std::vector<Tensor> out;
  std::vector<Dims> in_views;  // dims after the kernel's view functions; empty: unchanged
  std::function<void()> run;
};

class Runner;

/// Anything that can be set up and executed, alone or as a node of a graph.
class Operation {
 public:
  Operation(std::string type, size_t in_count, size_t out_count);
  virtual ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Class name, or name of the graph or plugin: "LinearOperation", "Prefill_layer".
  const std::string& type() const { return type_; }
  size_t in_count() const { return in_count_; }
  size_t out_count() const { return out_count_; }

  /// Dims and element types of the outputs.
  virtual std::vector<TensorDesc> infer(const std::vector<TensorDesc>& in) const = 0;

  /// Null for operations without parameters.
  virtual Json param() const { return {}; }

  /// The object that ReportOperationGraph passes as text, for this operation and all below it.
  virtual Json::Object topology(const Ids& ids) const;

  /// Makes the runners of this operation and of all below it; asks IsTensorNeedSave for those below.
  virtual std::unique_ptr<Runner> make_runner(const Ids& ids, Context& context) = 0;

  /// For top-level operations: what an application calls, always in this order.
  Status setup(const VariantPack& pack, Context& context);
  Status execute(Context& context);

 protected:
  /// Name in topologies.
  virtual std::string topology_type() const { return type_; }

 private:
  void prepare(const VariantPack& pack, Context& context);

  std::string type_;
  size_t in_count_;
  size_t out_count_;
  Ids ids_;  // empty until the first setup
  std::unique_ptr<Runner> runner_;
  uint64_t count_ = 0;  // completed calls of setup()
  double setup_us_ = 0;
};

/// "LinearOperation_2_0".
std::string operation_name(const std::string& type, const Ids& ids);

/// An operation that is a short list of kernels.
class KernelOperation : public Operation {
 public:
  using Operation::Operation;
  std::unique_ptr<Runner> make_runner(const Ids& ids, Context& context) override;
  virtual std::vector<Kernel> kernels(const VariantPack& pack) const = 0;

  /// Names of the tensors, which release 9.1 puts into file names.
  virtual std::vector<std::string> in_names() const = 0;
  virtual std::vector<std::string> out_names() const = 0;
};

/// Chooses one of two operations when its runner is made; to a probe it is one node named IfOperation.
class IfOperation : public Operation {
 public:
  IfOperation(std::function<bool()> condition, std::unique_ptr<KernelOperation> then,
              std::unique_ptr<KernelOperation> otherwise);
  std::vector<TensorDesc> infer(const std::vector<TensorDesc>& in) const override;
  std::unique_ptr<Runner> make_runner(const Ids& ids, Context& context) override;

 private:
  KernelOperation& chosen() const;

  std::function<bool()> condition_;
  std::unique_ptr<KernelOperation> then_;
  std::unique_ptr<KernelOperation> otherwise_;
};

/// An operation written by the application. In topologies it is a PluginOperation, whatever its name.
class PluginOperation : public Operation {
 public:
  using Operation::Operation;
  std::unique_ptr<Runner> make_runner(const Ids& ids, Context& context) override;
  virtual Status setup_plugin(const VariantPack& pack, Context& context) = 0;
  virtual Status execute_plugin(Context& context) = 0;

 protected:
  std::string topology_type() const override { return "PluginOperation"; }
};

/// Nodes in execution order. Tensors of a graph are numbered: its inputs, its outputs, then its internal ones.
class GraphOperation : public Operation {
 public:
  using Reshape = std::function<Dims(const Dims&)>;

  struct Node {
    std::unique_ptr<Operation> operation;
    std::vector<size_t> in;
    std::vector<size_t> out;
    std::vector<Reshape> reshapes;  // one an input, empty functions for none; may be shorter
  };

  /// Names stand for numbers while a graph is built; a probe never sees them.
  GraphOperation(std::string name, std::vector<std::string> in, std::vector<std::string> out);

  /// Appends a node. Output names that are new become internal tensors.
  void add(std::unique_ptr<Operation> operation, const std::vector<std::string>& in,
           const std::vector<std::string>& out, std::vector<Reshape> reshapes = {});

  std::vector<TensorDesc> infer(const std::vector<TensorDesc>& in) const override;
  Json param() const override { return ""; }
  Json::Object topology(const Ids& ids) const override;
  std::unique_ptr<Runner> make_runner(const Ids& ids, Context& context) override;

  const std::vector<Node>& nodes() const { return nodes_; }
  size_t tensor_count() const { return names_.size(); }

  /// Descriptions of all tensors of the graph, in the order of their numbers.
  std::vector<TensorDesc> infer_all(const std::vector<TensorDesc>& in) const;

 private:
  size_t number_of(const std::string& name) const;

  std::vector<std::string> names_;
  std::vector<Node> nodes_;
};

}  // namespace atb_host
