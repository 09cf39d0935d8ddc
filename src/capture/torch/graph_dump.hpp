// SPDX-License-Identifier: Apache-2.0
// What assay.torch.graph hands over for each operator of a compiled graph, on its way to the files
// of docs/formats/ge-tree.md.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "capture/intake/buffer_pool.hpp"
#include "capture/torch/tensor_access.hpp"
#include "formats/cann_dump.hpp"
#include "formats/cann_statistics.hpp"
#include "writer/async_writer.hpp"
#include "writer/layouts/ge_tree.hpp"

namespace assay::capture {

/// One input or output as the caller gives it. `tensor` is borrowed; nullptr or None: there is
/// none.
struct GraphOperand {
  PyObject* tensor = nullptr;
  bool is_input = true;
  uint32_t index = 0;  // among the operator's inputs or outputs
  std::optional<formats::CannOrigin> origin;
};

/// One operator that ran.
struct DumpedOperator {
  std::string folder;  // absolute
  std::string op_type, op_name;
  std::string file_op_name;  // stands in the file's name for op_name; "" for op_name itself
  int64_t task_id = 0, stream_id = 0;
  std::string message;
  std::vector<formats::CannAttribute> attributes;
  std::vector<GraphOperand> operands;  // inputs, then outputs; those left out are not in the list
  bool left_out = false;               // operands are missing from the list
  /// Statistics instead of the tensors; an empty choice means the six of the classic header.
  std::optional<std::vector<formats::CannStatistic>> statistics;
};

/// An operand that could not be read.
struct GraphMiss {
  std::string folder, op_name;
  std::string reason;  // "input 1: sparse or opaque layout"
  uint64_t count = 0;
};

/// Copies tensors, or reduces them, and queues the files. Every member needs the GIL, and releases
/// it around large copies and while it waits. In a forked child nothing happens.
class GraphDump {
 public:
  GraphDump(TensorAccess& access, writer::AsyncWriterOptions options);
  ~GraphDump();
  GraphDump(const GraphDump&) = delete;
  GraphDump& operator=(const GraphDump&) = delete;

  /// Returns when the tensors may be overwritten. An operator of more bytes than the queue has is
  /// written from the tensors' own memory before the call returns.
  ///
  /// returns   the path the file will have; "" when it is dropped, or nothing is written any more
  [[nodiscard]] std::string write_operator(const DumpedOperator& op);

  /// One tensor as .npy, or as .pth when the path ends in .pth or .pt.
  /// errors  Usage (path) | Unsupported (no such tensor in this format, the reason)
  [[nodiscard]] Status write_array(const std::string& path, PyObject* tensor, bool widen_bfloat16);
  /// errors  Usage (path)
  [[nodiscard]] Status write_bytes(const std::string& path, std::string_view data);

  /// The operands that could not be read since the last call, in the order of their names.
  [[nodiscard]] std::vector<GraphMiss> take_missed();

  void flush();
  void close();
  [[nodiscard]] writer::WriterCounters counters() const;
  [[nodiscard]] const writer::GeTree& tree() const { return *tree_; }
  /// Whether files are still written: not closed, not in a forked child, disk not full.
  [[nodiscard]] bool live() const;

 private:
  struct Look;
  struct Job;
  [[nodiscard]] bool look_at(const GraphOperand& operand, Look* out);
  [[nodiscard]] bool take_buffer(const std::string& path, uint64_t size_bytes,
                                 BufferPool::Buffer* buffer);
  void miss(const DumpedOperator& op, std::string reason);
  [[nodiscard]] bool admit(uint64_t size_bytes);
  [[nodiscard]] std::string submit_statistics(const DumpedOperator& op,
                                              const std::vector<Look>& looks, uint64_t time_us);
  [[nodiscard]] std::string submit_tensors(const DumpedOperator& op, const std::vector<Look>& looks,
                                           uint64_t time_us);

  TensorAccess& access_;
  uint64_t queue_bytes_;
  std::unique_ptr<writer::AsyncWriter> writer_;
  std::shared_ptr<writer::GeTree> tree_;
  BufferPool buffers_;
  std::map<std::tuple<std::string, std::string, std::string>, uint64_t> missed_;
  bool closed_ = false;
};

}  // namespace assay::capture
