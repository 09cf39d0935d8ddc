// SPDX-License-Identifier: Apache-2.0
// One call of a hooked module or function: which tensors, where their bytes are, what the writer
// gets.
#include "capture/torch/strict_session.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "capture/intake/host_threads.hpp"
#include "capture/intake/take.hpp"
#include "capture/torch/collectives.hpp"

namespace assay::capture {
namespace {

using writer::TorchTreeTensor;
using writer::TorchTreeVisit;

constexpr int kMaxDepth = 64;  // of tuples and lists inside each other; a list may contain itself
// Small calls are handed over together: waking the writer costs more than taking one of them down.
constexpr size_t kBatchVisits = 16;
constexpr uint64_t kSubmittedBytes = 1u << 20;
// Enough to keep the writer busy. When more waits, it does not keep up, and the calling thread takes
// a part of the work: writing from where the values are costs it less than a copy that nobody needs.
constexpr uint64_t kBacklogBytes = 4u << 20;
constexpr uint64_t kOwnWriteBytes = 64u << 10;  // below, making the file is most of the work
constexpr uint64_t kPoolBytes = 16u << 20;      // of copies, idle and in use
constexpr unsigned kModuleFolderMode = 0750;
constexpr unsigned kApiFolderMode = 0777;

// What this thread is doing with the session `session_id`.
struct StrictThreadState {
  struct Frame {
    const StrictModule* module;
    // Exception that was being handled when the module was entered; an address to compare.
    const void* handled;
  };
  uint64_t session_id = 0;
  bool in_root = false;
  const void* handled_before_root = nullptr;
  bool busy = false;  // inside our own Python callbacks: their calls are not dumped
  int64_t token = 0;
  bool wanted = false;
  std::vector<Frame> frames;  // mode "api" only
};
thread_local StrictThreadState strict_thread_state;

StrictThreadState& state_of(uint64_t session_id) {
  StrictThreadState& state = strict_thread_state;
  if (state.session_id != session_id) {
    state = StrictThreadState{};
    state.session_id = session_id;
  }
  return state;
}

const std::string& root_name() {
  static const auto* name = new std::string("root");
  return *name;
}

// True when the pending exception may be swallowed: KeyboardInterrupt and SystemExit belong to the
// user.
bool is_ordinary_exception() { return PyErr_ExceptionMatches(PyExc_Exception) != 0; }

std::string pending_exception_text() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Ref owned[] = {Ref(type), Ref(value), Ref(traceback)};
  return text_of(value, "unknown error");
}

}  // namespace

/// One tensor of a call between the walk and the copy.
struct StrictSession::Plan {
  std::string stem;
  PyObject* tensor = nullptr;  // borrowed: alive while the hook runs
  Ref dense;                   // when the bytes come from another tensor
  bool readable = false;
  TensorView view;
  std::string_view dtype_name;
  SeenLayout layout;
  int64_t version = -1;  // of `tensor`; -1: it has none, and is never known
  std::optional<StrictSeen> seen;
  uint64_t size_bytes = 0;  // of the payload to copy
};

std::unique_ptr<StrictSession> StrictSession::create(StrictOptions options,
                                                     StrictCallbacks callbacks) {
  static uint64_t next_id = 0;
  std::unique_ptr<StrictSession> session(new StrictSession);
  session->id_ = ++next_id;
  session->options_ = std::move(options);
  Py_XINCREF(callbacks.module_list);
  Py_XINCREF(callbacks.to_dense);
  Py_XINCREF(callbacks.warn_once);
  Py_XINCREF(callbacks.after_fork);
  session->callbacks_ = callbacks;
  session->access_ = TensorAccess::get();
  session->module_numbers_ = PyDict_New();
  if (session->access_ == nullptr || session->module_numbers_ == nullptr) return nullptr;
  session->sightings_.emplace(*session->access_);
  use_host_threads(session->options_.host_threads);
  session->start_writer();
  watch_works(session.get());
  return session;
}

StrictSession::~StrictSession() {
  close();
  Py_XDECREF(module_numbers_);
}

void StrictSession::start_writer() {
  own_bytes_ = 0;
  buffers_ = std::make_unique<BufferPool>(kPoolBytes);
  tree_ = std::make_shared<writer::TorchTree>(
      writer::TorchTreeOptions{.dump_dir = options_.dump_dir,
                               .dump_dir_text = options_.dump_dir_text,
                               .analyze_path = options_.analyze_path,
                               .statistics = options_.statistics != StatisticsMode::Tensors});
  // Not niced: the end of every dumped root call waits for this thread.
  writer_ = std::make_unique<writer::AsyncWriter>(
      writer::AsyncWriterOptions{.niceness = 0, .thread_name = "assay-strict"});
  links_ = writer::TorchTree::links_work(options_.dump_dir);
}

StrictModule* StrictSession::add_module(std::string name, std::string type, bool selected,
                                        bool is_root) {
  module_names_.insert(name);
  modules_.push_back(std::make_unique<StrictModule>());
  StrictModule& module = *modules_.back();
  module.name = std::make_shared<const std::string>(std::move(name));
  module.type = std::make_shared<const std::string>(std::move(type));
  module.selected = selected;
  module.is_root = is_root;
  return &module;
}

void StrictSession::enter(StrictModule& module) {
  if (closed_) return;
  StrictThreadState& state = state_of(id_);
  if (module.is_root) {
    token_id = next_token_++;
    dump_flag = options_.tokens.contains(token_id);
    if (!state.in_root) state.frames.clear();  // whatever an interrupted call left
    state.in_root = true;
    state.handled_before_root = handled_exception();
    state.token = token_id;
    state.wanted = dump_flag;
  }
  if (options_.dump_apis) state.frames.push_back({&module, handled_exception()});
}

int StrictSession::leave(StrictModule& module, PyObject* object, PyObject* arguments,
                         PyObject* result) {
  if (closed_) return 0;
  StrictThreadState& state = state_of(id_);
  bool raised = false;
  if (options_.dump_apis) {
    // Frames above ours belong to calls that an exception left without a post hook.
    while (!state.frames.empty() && state.frames.back().module != &module) state.frames.pop_back();
    if (!state.frames.empty()) {
      raised = result == Py_None && state.frames.back().handled != handled_exception();
      state.frames.pop_back();
    }
  } else if (module.is_root && result == Py_None) {
    raised = handled_exception() != state.handled_before_root;
  }
  int64_t token = 0;
  const bool wanted = wanted_now(&token);
  int status = 0;
  if (!raised) {
    if (token == 0) number(module);
    if (options_.last_logits) {
      if (module.is_root) {
        if (wanted) status = flush_logits(token);
        Py_CLEAR(last_outputs_);
        last_module_ = nullptr;
      } else if (wanted && contains_tensor(result, 0)) {
        Py_INCREF(result);
        replace(last_outputs_, result);
        last_module_ = &module;
      }
    } else if (wanted && options_.dump_modules && module.selected) {
      int listed = PyTuple_Size(callbacks_.module_list) == 0 ? 1 : -1;
      if (listed < 0) listed = PyObject_IsInstance(object, callbacks_.module_list);
      if (listed < 0) status = -1;
      if (listed > 0) {
        const bool is_first = module.visited_token < token;
        if (!is_first) forget_folder(*module.name);
        module.visited_token = std::max(module.visited_token, token);
        status = dump({.token = token,
                       .folder = module.name,
                       .node_type = module.type,
                       .folder_mode = kModuleFolderMode,
                       .tensors = {}},
                      options_.tensor_part == TensorPart::Outputs ? nullptr : arguments,
                      options_.tensor_part == TensorPart::Inputs ? nullptr : result,
                      is_first ? Visit::First : Visit::Again);
      }
    }
  }
  if (module.is_root) state.in_root = false;
  if (wanted && !state.in_root) finish_files();
  return status;
}

bool StrictSession::wanted_now(int64_t* token) const {
  const StrictThreadState& state = strict_thread_state;
  if (state.session_id == id_ && state.in_root) {
    *token = state.token;
    return state.wanted;
  }
  *token = token_id;
  return dump_flag;
}

bool StrictSession::wants_apis() const {
  int64_t token = 0;
  return !closed_ && options_.dump_apis &&
         !(strict_thread_state.session_id == id_ && strict_thread_state.busy) && wanted_now(&token);
}

const std::string& StrictSession::current_module() const {
  const StrictThreadState& state = strict_thread_state;
  return state.session_id != id_ || state.frames.empty() ? root_name()
                                                         : *state.frames.back().module->name;
}

int StrictSession::dump_api(std::string folder, std::string type, PyObject* arguments,
                            PyObject* result) {
  int64_t token = 0;
  if (closed_ || !wanted_now(&token)) return 0;
  // A function and a module of one name share a folder: its files are not what the table says any
  // more.
  if (module_names_.contains(folder)) {
    forget_folder(folder);
    shares_folders_ = true;
  }
  const int status =
      dump({.token = token,
            .folder = std::make_shared<const std::string>(std::move(folder)),
            .node_type = std::make_shared<const std::string>(std::move(type)),
            .folder_mode = kApiFolderMode,
            .tensors = {}},
           options_.tensor_part == TensorPart::Outputs ? nullptr : arguments,
           options_.tensor_part == TensorPart::Inputs ? nullptr : result, Visit::Passing);
  if (!state_of(id_).in_root) finish_files();
  return status;
}

void StrictSession::number(StrictModule& module) {
  const int64_t order = module_calls_++;
  if (module.has_number) return;
  module.has_number = true;
  const Ref value(PyLong_FromLongLong(order));
  if (!value || PyDict_SetItemString(module_numbers_, module.name->c_str(), value.get()) != 0)
    PyErr_Clear();
}

bool StrictSession::contains_tensor(PyObject* value, int depth) const {
  if (access_->is_tensor(value)) return true;
  if ((!PyTuple_Check(value) && !PyList_Check(value)) || depth >= kMaxDepth) return false;
  for (Py_ssize_t i = 0; i < size_of(value); ++i) {
    if (contains_tensor(item_of(value, i), depth + 1)) return true;
  }
  return false;
}

int StrictSession::flush_logits(int64_t token) {
  if (last_outputs_ == nullptr || last_module_ == nullptr) return 0;
  const Ref outputs(new_ref(last_outputs_));
  return dump({.token = token,
               .folder = last_module_->name,
               .node_type = last_module_->type,
               .folder_mode = kModuleFolderMode,
               .tensors = {}},
              nullptr, outputs.get(), Visit::Passing);
}

bool StrictSession::writes_itself(Visit which, uint64_t total_bytes) const {
  return which == Visit::First && !shares_folders_ && total_bytes >= kOwnWriteBytes &&
         pending_bytes_ + writer_->held_bytes() + total_bytes > kBacklogBytes;
}

void StrictSession::copy_into(TorchTreeTensor& file, const TensorView& view, uint64_t size_bytes) {
  const auto buffer = std::make_shared<BufferPool::Buffer>(buffers_->take(size_bytes));
  if (buffer->bytes == nullptr) throw std::bad_alloc();
  copy_elements(view, buffer->span());
  file.payload = buffer->span();
  file.payload_owner = buffer;
}

int StrictSession::dump(TorchTreeVisit visit, PyObject* inputs, PyObject* outputs, Visit which) {
  if (!writer_->alive() && follow_fork() != 0) return -1;
  if (closed_ || tree_->stopped()) return 0;
  // Of what a collective wrote torch counts nothing.
  const uint64_t works = works_seen();
  if (seen_token_ != visit.token || works != seen_works_) {
    sightings_->clear();
    seen_token_ = visit.token;
    seen_works_ = works;
  }
  const int64_t token = visit.token;
  std::vector<Plan> plans;
  if (inputs != nullptr && collect(inputs, "input", visit, &plans, 0) != 0) return -1;
  if (outputs != nullptr && collect(outputs, "output", visit, &plans, 0) != 0) return -1;

  tensors_ += plans.size();
  uint64_t total_bytes = 0;
  for (const Plan& plan : plans) total_bytes += plan.size_bytes;
  const bool is_large = total_bytes >= kSubmittedBytes;
  const bool writes_itself =
      this->writes_itself(which, total_bytes) && std::ranges::all_of(plans, [](const Plan& plan) {
        return plan.size_bytes == 0 || plan.view.is_contiguous();
      });
  if (is_large || writes_itself) submit_pending();
  if (is_large && !writes_itself && !admit_without_gil(total_bytes)) return 0;  // closed meanwhile
  const bool statistics =
      options_.statistics != StatisticsMode::Tensors || !options_.analyze_path.empty();
  const bool files = options_.statistics != StatisticsMode::Statistics;
  visit.tensors.reserve(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    Plan& plan = plans[i];
    TorchTreeTensor& tensor = visit.tensors.emplace_back();
    tensor.stem = plan.stem;
    tensor.dtype_name = plan.dtype_name;
    tensor.dtype = plan.view.dtype;
    tensor.shape = plan.view.shape;
    if (statistics) {
      if (plan.readable) {
        if (plan.seen) tensor.statistics = plan.seen->statistics;
        for (size_t j = 0; j < i && !tensor.statistics; ++j) {
          if (plans[j].tensor == plan.tensor) tensor.statistics = visit.tensors[j].statistics;
        }
        if (!tensor.statistics) tensor.statistics = statistics_of(plan.view);
        if (!options_.analyze_path.empty()) {
          tensor.variance = writer::unbiased_variance(plan.view, *tensor.statistics);
        }
      } else {
        tensor.statistics = stats::TensorStats{.l2_norm = NAN, .sketch = {}};
      }
    }
    if (files && plan.readable) {
      if (links_ && plan.seen && plan.seen->folder != nullptr) {
        tensor.content = TorchTreeTensor::Content::Link;
        tensor.link_source =
            writer::torch_tree_folder(*plan.seen->folder) + "/" + plan.seen->stem + ".pth";
      } else {
        tensor.content = TorchTreeTensor::Content::Payload;
        if (writes_itself && plan.size_bytes > 0) {
          tensor.payload = plan.view.contiguous_bytes();
        } else {
          copy_into(tensor, plan.view, plan.size_bytes);
        }
      }
    }
  }
  std::vector<std::pair<size_t, StrictSeen>> news;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].dense || !plans[i].readable || plans[i].version < 0) continue;
    const bool is_source =
        which != Visit::Passing && visit.tensors[i].content == TorchTreeTensor::Content::Payload;
    if (plans[i].seen && !is_source) continue;
    news.emplace_back(i, StrictSeen{.version = plans[i].version,
                                    .statistics = visit.tensors[i].statistics,
                                    .folder = is_source ? visit.folder : nullptr,
                                    .stem = plans[i].stem});
  }
  if (writes_itself) {
    write_own(visit, total_bytes);
    if (closed_) return 0;
    total_bytes = 0;  // in the queue
  }
  if (is_large && !writes_itself) {
    const auto shared = std::make_shared<TorchTreeVisit>(std::move(visit));
    (void)writer_->submit(total_bytes, [tree = tree_, shared] { return tree->write(*shared); });
  } else {
    pending_.push_back(std::move(visit));
    pending_bytes_ += total_bytes;
    if (pending_.size() >= kBatchVisits || pending_bytes_ >= kSubmittedBytes) submit_pending();
  }
  // Another thread has begun another token meanwhile: what is known is of that one's files.
  if (seen_token_ != token) return 0;
  // Only now: a link must not be queued before the file that it points at.
  for (auto& [index, seen] : news) {
    sightings_->insert(plans[index].tensor, std::move(plans[index].layout), std::move(seen));
  }
  return 0;
}

int StrictSession::collect(PyObject* value, std::string stem, const TorchTreeVisit& visit,
                           std::vector<Plan>* plans, int depth) {
  if (access_->is_tensor(value)) return plan_tensor(value, std::move(stem), visit, plans);
  if ((PyTuple_Check(value) || PyList_Check(value)) && depth < kMaxDepth) {
    for (Py_ssize_t i = 0; i < size_of(value); ++i) {
      const Ref item(new_ref(item_of(value, i)));
      const int status =
          collect(item.get(), stem + "_" + std::to_string(i), visit, plans, depth + 1);
      if (status != 0) return status;
    }
    return 0;
  }
  PyTypeObject* type = Py_TYPE(value);
  if (unrecognized_.insert(type).second) {
    Py_INCREF(type);
    warn(Ref(Py_BuildValue("(sO)", "unrecognized", type)),
         "Unrecognized data type " + type_text(value) +
             ": only tensors, tuples and lists of them are dumped.");
  }
  return 0;
}

int StrictSession::plan_tensor(PyObject* tensor, std::string stem, const TorchTreeVisit& visit,
                               std::vector<Plan>* plans) {
  const bool files = options_.statistics != StatisticsMode::Statistics;
  Plan plan;
  plan.stem = std::move(stem);
  plan.tensor = tensor;
  TensorLook look;
  access_->look(tensor, look);
  if (look.readable != Readable::Memory || look.conjugate || look.negative) {
    std::string path;
    if (files) {
      path = options_.dump_dir + "/" + std::to_string(visit.token) + "/" +
             writer::torch_tree_folder(*visit.folder) + "/" + plan.stem + ".pth";
    }
    plan.dtype_name = look.dtype_name != nullptr ? look.dtype_name : "unknown";
    if (look.has_shape)
      plan.view.shape = Dims(std::span<const int64_t>(look.shape, static_cast<size_t>(look.ndim)));
    if (make_dense(tensor, path, &plan.dense) != 0) return -1;
    if (plan.dense) access_->look(plan.dense.get(), look);
    if (!plan.dense || look.readable != Readable::Memory || look.conjugate || look.negative) {
      plans->push_back(std::move(plan));
      return 0;
    }
  }
  plan.dtype_name = look.dtype_name;
  plan.view = view_of(look);
  plan.readable = true;
  if (work_writing(look) != nullptr)
    warn(Ref(Py_BuildValue("(s)", "in flight")), "A tensor in " + *visit.folder +
                                                     " is dumped as it is, though a collective may "
                                                     "still write it: only what the program has "
                                                     "waited for is sure to be there.");
  if (!plan.dense) {
    plan.layout = SeenLayout(look);
    const bool has_witness = !plan.view.storage.empty() && !access_->is_inference(tensor);
    plan.version = has_witness ? access_->version(tensor) : -1;
    for (const Plan& earlier : *plans) {  // a module that returns its argument
      if (earlier.tensor != tensor || !earlier.readable) continue;
      plan.seen = earlier.seen.value_or(StrictSeen{});
      if (plan.seen->folder != nullptr) continue;
      plan.seen->folder = visit.folder;
      plan.seen->stem = earlier.stem;
    }
    const auto* found = plan.seen || plan.version < 0
                            ? nullptr
                            : sightings_->find(tensor, look, plan.version, plan.layout.dense,
                                               Sightings<StrictSeen>::Same::Layout);
    if (found != nullptr) plan.seen = found->known;
  }
  if (!plan.seen && !is_covered(plan.dense ? plan.dense.get() : tensor, look, *visit.folder))
    plan.readable = false;
  const bool linked = links_ && plan.seen && plan.seen->folder != nullptr;
  if (files && plan.readable && !linked) plan.size_bytes = payload_bytes(look);
  plans->push_back(std::move(plan));
  return 0;
}

bool StrictSession::is_covered(PyObject* tensor, const TensorLook& look, const std::string& where) {
  if (access_->storage_covers(tensor, look)) return true;
  warn(Ref(Py_BuildValue("(s)", "uncovered")),
       "A tensor in " + where + " is not dumped: its storage is smaller than its shape.");
  return false;
}

int StrictSession::make_dense(PyObject* tensor, const std::string& path, Ref* dense) {
  StrictThreadState& state = state_of(id_);
  state.busy = true;
  Ref result(path.empty() ? PyObject_CallFunction(callbacks_.to_dense, "OO", tensor, Py_None)
                          : PyObject_CallFunction(callbacks_.to_dense, "Os", tensor, path.c_str()));
  state.busy = false;
  if (!result) {
    if (!is_ordinary_exception()) return -1;
    const std::string reason = pending_exception_text();
    warn(Ref(Py_BuildValue("(sO)", "to_dense", Py_TYPE(tensor))),
         "A tensor is not dumped: " + reason);
  } else if (result.get() != Py_None && access_->is_tensor(result.get())) {
    *dense = std::move(result);
  }
  return 0;
}

void StrictSession::warn(Ref key, const std::string& message) {
  if (key && callbacks_.warn_once != nullptr)
    (void)Ref(PyObject_CallFunction(callbacks_.warn_once, "Os", key.get(), message.c_str()));
  PyErr_Clear();
}

// Files in `folder` are about to be replaced: they are no source of links any more.
void StrictSession::forget_folder(const std::string& folder) {
  sightings_->each([&folder](StrictSeen& seen) {
    if (seen.folder != nullptr && *seen.folder == folder) seen.folder = nullptr;
  });
}

int StrictSession::write_pth(const std::string& path, PyObject* tensor) {
  Ref dense;
  if (make_dense(tensor, path, &dense) != 0) return -1;
  if (!dense) return 0;
  TensorLook look;
  access_->look(dense.get(), look);
  if (look.readable != Readable::Memory || !is_covered(dense.get(), look, path)) return 0;
  const TensorView view = view_of(look);
  const uint64_t size_bytes = payload_bytes(look);
  if (!admit_without_gil(size_bytes)) return 0;
  const auto file = std::make_shared<TorchTreeTensor>();
  file->dtype = view.dtype;
  file->shape = view.shape;
  copy_into(*file, view, size_bytes);
  (void)writer_->submit(
      size_bytes, [tree = tree_, path, file] { return tree->write_tensor_file(path, *file); });
  return 0;
}

void StrictSession::write_own(TorchTreeVisit& visit, uint64_t total_bytes) {
  own_bytes_ += total_bytes;
  Status status;
  {
    const std::shared_ptr<writer::TorchTree> tree = tree_;
    const GilReleased released;
    status = tree->write_files(visit);
  }
  // Failures are counted and told in one place.
  if (!status) (void)writer_->submit(0, [status] { return status; });
}

bool StrictSession::admit_without_gil(uint64_t size_bytes) {
  const GilReleased released;
  return writer_->admit(size_bytes);
}

void StrictSession::submit_pending() {
  if (pending_.empty()) return;
  const auto batch = std::make_shared<std::vector<TorchTreeVisit>>(std::move(pending_));
  const uint64_t size_bytes = std::exchange(pending_bytes_, 0);
  pending_.clear();
  // With the GIL held, so that no other thread's links overtake the files they point at. The writer
  // needs no GIL.
  if (!writer_->admit(size_bytes)) return;  // closed meanwhile
  (void)writer_->submit(size_bytes, [tree = tree_, batch] {
    Status result;
    for (const TorchTreeVisit& visit : *batch) {
      Status status = tree->write(visit);
      if (!status && result) result = std::move(status);
    }
    return result;
  });
}

void StrictSession::flush() {
  if (writer_ == nullptr) return;
  submit_pending();
  const GilReleased released;
  writer_->flush();
}

void StrictSession::finish_files() {
  flush();
  sightings_->clear();
}

void StrictSession::close() {
  if (closed_) return;
  closed_ = true;
  unwatch_works(this);
  if (writer_ != nullptr) {
    submit_pending();
    const GilReleased released;
    writer_->close();
  }
  if (sightings_) sightings_->clear();
  last_module_ = nullptr;
  Py_CLEAR(last_outputs_);
  Py_CLEAR(callbacks_.module_list);
  Py_CLEAR(callbacks_.to_dense);
  Py_CLEAR(callbacks_.warn_once);
  Py_CLEAR(callbacks_.after_fork);
  for (PyTypeObject* type : unrecognized_) Py_DECREF(type);
  unrecognized_.clear();
}

writer::WriterCounters StrictSession::counters() const {
  writer::WriterCounters counters =
      writer_ != nullptr ? writer_->counters() : writer::WriterCounters{};
  counters.bytes_done += own_bytes_;
  return counters;
}

int StrictSession::follow_fork() {
  // The parent's writer thread does not exist here and its files are not ours: leave both
  // untouched.
  new std::vector(std::move(pending_));
  pending_.clear();
  pending_bytes_ = 0;
  (void)writer_.release();
  (void)buffers_.release();
  new std::shared_ptr<writer::TorchTree>(std::move(tree_));
  sightings_->clear();
  const Ref folder(PyObject_CallObject(callbacks_.after_fork, nullptr));
  const Utf8 path(folder.get());
  if (!path) {
    const bool ordinary = is_ordinary_exception();
    if (ordinary) {
      log_line(LogLevel::Error, "no dump folder in a forked process: " + pending_exception_text());
    }
    closed_ = true;
    return ordinary ? 0 : -1;
  }
  options_.dump_dir = options_.dump_dir_text = path.view();
  start_writer();
  return 0;
}

}  // namespace assay::capture
