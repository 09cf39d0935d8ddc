// SPDX-License-Identifier: Apache-2.0
// One compute call being recorded: asked before each node, told after each wanted one.
#pragma once
#include <chrono>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "capture/ggml/graph_plan.hpp"

namespace assay::capture::ggml {

/// One thread. Borrows the session, the settings and the engine, which live until the process ends.
class GraphCapture {
 public:
  GraphCapture(std::shared_ptr<const GraphPlan> plan, uint64_t step);
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  /// Before the node is computed: whether it is wanted. Inputs that the host has filled are read here, since the engine
  /// may use their memory for results later.
  [[nodiscard]] bool ask(const EngineTensor* tensor);
  /// After it, with the memory as it is then.
  void deliver(const EngineTensor* tensor);
  /// After the last node.
  void finish();

  [[nodiscard]] Session& session() const { return *plan_->session; }

 private:
  /// A tensor's elements, where they are or copied from a device.
  struct Content {
    TensorView view;
    bool raw = false;  // rows of blocks, as bytes
    std::vector<std::byte> copied;
    std::optional<stats::TensorStats> stats;
  };

  [[nodiscard]] std::optional<size_t> index_of(const EngineTensor* tensor);
  [[nodiscard]] bool is_host_input(const TensorFields& fields) const;
  [[nodiscard]] bool read(const TensorFields& fields, bool keep, Content* content) const;
  void read_inputs_of(const PlannedNode& node);
  void skip_until(size_t index);
  void pass(const PlannedNode& node);
  void record(const PlannedNode& node, const Content* output);
  void record_input(const PlannedNode& node, const EngineTensor* source, size_t slot);
  void record_output(const PlannedNode& node, const Content* output);
  [[nodiscard]] Storage& storage_of(const TensorFields& root);
  [[nodiscard]] Value& value_of(Storage& storage, const TensorFields& fields);
  void share_payload(const Storage& storage, const TensorFields& fields, Value* value) const;
  [[nodiscard]] writer::Record record_of(const PlannedNode& node) const;
  void describe(const TensorFields& fields, const Storage& storage, const Value& value,
                writer::Record* record, Dims* shape, Dims* strides);
  void store(const Content& content, writer::Record* record, Value* value);
  [[nodiscard]] const std::string* written_argument(const TensorFields& fields) const;

  const std::shared_ptr<const GraphPlan> plan_;
  const Engine& engine_;
  const Settings& settings_;
  const uint64_t step_;
  size_t next_ = 0;      // the node expected to be asked for
  size_t recorded_ = 0;  // nodes before it are recorded or passed over
  std::unordered_map<const EngineTensor*, Storage*> storages_;  // by root
  std::deque<Storage> own_storages_;  // of what lives no longer than this call
  std::unordered_map<const EngineTensor*, Content> host_inputs_;  // read and not yet stored
  std::unordered_map<std::string_view, size_t> node_by_name_;     // made when a copy is met
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::duration spent_{};
  writer::ManifestStep counts_;
  uint64_t captured_ = 0;
};

}  // namespace assay::capture::ggml
