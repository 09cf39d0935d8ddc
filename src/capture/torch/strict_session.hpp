// SPDX-License-Identifier: Apache-2.0
// One registration of the strict hook dump: which token it is, what of it is wanted, and the way of
// a call's tensors
// from the hook to the writer.
//   Behaviour: docs/commands/register_hook.md, design: docs/design/torch-capture.md
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "capture/intake/buffer_pool.hpp"
#include "capture/torch/sightings.hpp"
#include "capture/torch/tensor_access.hpp"
#include "writer/async_writer.hpp"
#include "writer/layouts/torch_tree.hpp"

namespace assay::capture {

/// Which tensors of a call are dumped.
enum class TensorPart : uint8_t { Inputs = 0, Outputs = 1, Both = 2 };
enum class StatisticsMode : uint8_t { Tensors = 0, Statistics = 1, Both = 2 };

struct StrictOptions {
  std::string dump_dir;       // absolute, exists
  std::string dump_dir_text;  // as the user gave it
  std::string analyze_path;   // "" for none
  std::unordered_set<int64_t> tokens;
  TensorPart tensor_part = TensorPart::Both;
  StatisticsMode statistics = StatisticsMode::Tensors;
  bool dump_modules = true;
  bool dump_apis = false;
  bool last_logits = false;
  int host_threads = 1;  // torch.get_num_threads()
};

/// Python functions the session calls; each is an owned reference until close().
struct StrictCallbacks {
  PyObject* module_list = nullptr;  // tuple of classes; empty takes all
  PyObject* to_dense = nullptr;     // (tensor, path or None) -> CPU tensor or None
  PyObject* warn_once = nullptr;    // (key, message)
  PyObject* after_fork = nullptr;   // () -> the child's dump_dir
};

/// What is known of a tensor that was seen in this token.
struct StrictSeen {
  int64_t version = -1;
  std::optional<stats::TensorStats> statistics = {};
  std::shared_ptr<const std::string> folder = {};  // where its file is, nullptr when it has none
  std::string stem = {};
};

/// A hooked module. Addresses are stable: hooks keep pointers.
struct StrictModule {
  std::shared_ptr<const std::string> name;
  std::shared_ptr<const std::string> type;
  bool selected = true;  // by layer_name
  bool is_root = false;
  bool has_number = false;     // its first call in token 0 was counted
  int64_t visited_token = -1;  // the highest token it was dumped in
};

/// Every member needs the GIL. Members that return int: 0, or -1 with a Python exception set that
/// the original would have raised too (a wrong entry in module_list, KeyboardInterrupt); everything
/// else that goes wrong is logged once.
class StrictSession {
 public:
  /// nullptr with a Python exception set when torch is missing or memory is short.
  [[nodiscard]] static std::unique_ptr<StrictSession> create(StrictOptions options,
                                                             StrictCallbacks callbacks);
  ~StrictSession();
  StrictSession(const StrictSession&) = delete;
  StrictSession& operator=(const StrictSession&) = delete;

  [[nodiscard]] StrictModule* add_module(std::string name, std::string type, bool selected,
                                         bool is_root);

  /// Before the forward of a module.
  void enter(StrictModule& module);
  /// After it, or after an exception left it (`result` is None then).
  [[nodiscard]] int leave(StrictModule& module, PyObject* object, PyObject* arguments,
                          PyObject* result);

  [[nodiscard]] bool wants_apis() const;
  /// Name of the module that runs on this thread, "root" outside of all.
  [[nodiscard]] const std::string& current_module() const;
  [[nodiscard]] int dump_api(std::string folder, std::string type, PyObject* arguments,
                             PyObject* result);

  /// Saves one tensor to `path`, whose folder exists. On disk after flush().
  [[nodiscard]] int write_pth(const std::string& path, PyObject* tensor);
  /// Waits for the files of everything dumped so far; releases the GIL.
  void flush();
  /// flush(), then drops everything but the counters; hooks that still fire do nothing.
  void close();
  [[nodiscard]] writer::WriterCounters counters() const;
  /// Tensors taken for dumping so far.
  [[nodiscard]] uint64_t tensor_count() const { return tensors_; }
  /// Those of counters().bytes_done that the calling threads wrote themselves.
  [[nodiscard]] uint64_t own_bytes() const { return own_bytes_; }

  int64_t token_id = 0;
  bool dump_flag = true;
  [[nodiscard]] PyObject* module_numbers() const {
    return module_numbers_;
  }  // borrowed dict name -> int
  [[nodiscard]] PyObject* last_outputs() const {
    return last_outputs_;
  }  // borrowed, may be nullptr
  [[nodiscard]] const StrictModule* last_module() const { return last_module_; }

 private:
  struct Plan;
  StrictSession() = default;
  void start_writer();
  /// The payloads of `visit`, `total_bytes` in all, from where they are; releases the GIL.
  void write_own(writer::TorchTreeVisit& visit, uint64_t total_bytes);
  [[nodiscard]] bool admit_without_gil(uint64_t size_bytes);
  void submit_pending();
  [[nodiscard]] bool wanted_now(int64_t* token) const;
  [[nodiscard]] bool contains_tensor(PyObject* value, int depth) const;
  [[nodiscard]] int flush_logits(int64_t token);
  /// Which visit of its folder a call is.
  enum class Visit : uint8_t {
    First,   // of a module in its token: nothing that is queued has files there
    Again,   // of a module
    Passing  // its files may be replaced at any time: no links to them
  };
  [[nodiscard]] int dump(writer::TorchTreeVisit visit, PyObject* inputs, PyObject* outputs,
                         Visit which);
  /// Whether this thread writes `total_bytes` from where they are instead of copying them.
  [[nodiscard]] bool writes_itself(Visit which, uint64_t total_bytes) const;
  void copy_into(writer::TorchTreeTensor& file, const TensorView& view, uint64_t size_bytes);
  [[nodiscard]] int collect(PyObject* value, std::string stem, const writer::TorchTreeVisit& visit,
                            std::vector<Plan>* plans, int depth);
  [[nodiscard]] int plan_tensor(PyObject* tensor, std::string stem,
                                const writer::TorchTreeVisit& visit, std::vector<Plan>* plans);
  /// Whether the storage has all that shape and strides claim; warns when it has not.
  [[nodiscard]] bool is_covered(PyObject* tensor, const TensorLook& look, const std::string& where);
  [[nodiscard]] int make_dense(PyObject* tensor, const std::string& path, Ref* dense);
  /// At the end of a dumped root call, and after each dump outside of one: scripts read the files
  /// right after the forward that made them, and may move them away.
  void finish_files();
  void warn(Ref key, const std::string& message);
  void forget_folder(const std::string& folder);
  void number(StrictModule& module);
  [[nodiscard]] int follow_fork();

  uint64_t id_ = 0;  // tells thread-local state of this session from that of an earlier one
  StrictOptions options_;
  StrictCallbacks callbacks_;
  TensorAccess* access_ = nullptr;
  bool closed_ = false;
  bool links_ = false;
  int64_t next_token_ = 0;
  uint64_t tensors_ = 0;
  int64_t seen_token_ = -1;
  uint64_t seen_works_ = 0;
  int64_t module_calls_ = 0;  // during token 0
  PyObject* module_numbers_ = nullptr;
  PyObject* last_outputs_ = nullptr;
  const StrictModule* last_module_ = nullptr;
  std::vector<std::unique_ptr<StrictModule>> modules_;
  std::unordered_set<std::string> module_names_;
  bool shares_folders_ = false;  // a function has been dumped into a module's folder
  std::unordered_set<PyTypeObject*> unrecognized_;  // types already warned about, owned references
  std::optional<Sightings<StrictSeen>> sightings_;
  std::vector<writer::TorchTreeVisit> pending_;  // built, not yet given to the writer
  uint64_t pending_bytes_ = 0;
  uint64_t own_bytes_ = 0;  // written by the callers' threads
  std::unique_ptr<BufferPool> buffers_;
  std::unique_ptr<writer::AsyncWriter> writer_;
  std::shared_ptr<writer::TorchTree> tree_;
};

}  // namespace assay::capture
