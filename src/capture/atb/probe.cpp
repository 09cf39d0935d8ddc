// SPDX-License-Identifier: Apache-2.0
// The process-wide state of the probe.
//
//   gates     0 until the first call; then the answers to all questions without arguments. Off is a
//             word without open gates, and stays it.
//   settings  immutable; replaced as a whole when the configuration file changes. Old ones are leaked:
//             a reader may still hold them, and a file is not changed often.
//   session   made at the first call that captures, again in a forked child; leaked.
#include "capture/atb/probe.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "capture/atb/selection.hpp"
#include "capture/atb/session.hpp"
#include "capture/common/host_guard.hpp"
#include "capture/common/process_session.hpp"

namespace assay::capture::atb {
namespace {

using formats::ProbeCounters;

std::atomic<uint32_t> gates{0};
std::atomic<const Settings*> current_settings{nullptr};
ProcessSession<AtbSession> process_session;

ForkLock state_lock;                             // of the making of all of these
const Settings* environment_settings = nullptr;  // before the configuration file
WatchedConfig* watched_config = nullptr;

std::string_view view(Text text) {
  return text.data == nullptr ? std::string_view() : std::string_view(text.data, text.size);
}

void switch_off(const char* where, const char* reason) noexcept {
  gates.store(kGatesKnown, std::memory_order_relaxed);
  tell_switched_off(where, reason);
}

template <typename Body>
void guarded(const char* where, Body body) noexcept {
  run_guarded(where, body, switch_off);
}

std::string working_directory() {
  const std::unique_ptr<char, void (*)(void*)> folder(::getcwd(nullptr, 0), std::free);
  return folder == nullptr ? "." : folder.get();
}

// "~", a relative path, a trailing slash: all become one absolute spelling.
std::string absolute_path(std::string_view path) {
  std::string result(path);
  if (result == "~" || result.starts_with("~/")) {
    const char* home = std::getenv("HOME");
    if (home != nullptr) result = home + result.substr(1);
  }
  while (result.starts_with("./")) result.erase(0, 2);
  if (!result.starts_with('/')) result = working_directory() + "/" + (result == "." ? "" : result);
  std::string clean;
  for (const char c : result) {
    if (c != '/' || !clean.ends_with('/')) clean += c;
  }
  while (clean.size() > 1 && clean.ends_with('/')) clean.pop_back();
  return clean;
}

std::string program_path() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "";
}

void publish(const Settings& settings) {
  current_settings.store(new Settings(settings), std::memory_order_release);
  gates.store(gates_of(settings), std::memory_order_release);
}

void tell_all(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) tell(LogLevel::Warning, warning);
}

// Under the lock.
void load_config() {
  const std::optional<DynamicConfig> config = watched_config->read();
  if (!config) return;
  const Settings settings = with_config(*environment_settings, config);
  tell_all(settings.warnings);
  const Settings* before = current_settings.load(std::memory_order_relaxed);
  if (settings.enabled && (before == nullptr || !before->enabled)) {
    tell(LogLevel::Warning,
         "the configuration file switches the capture on; the model runs slower");
  }
  publish(settings);
}

// Under the lock.
void read_environment() {
  if (gates.load(std::memory_order_relaxed) != 0) return;
  remember_stderr();
  auto settings = std::make_unique<Settings>(
      settings_from_environment([](const char* name) { return std::getenv(name); }));
  set_told_level(settings->log_level);
  settings->output_dir = absolute_path(settings->output_dir);
  if (!settings->subprocess_list.empty())
    settings->subprocess_list = absolute_path(settings->subprocess_list);
  if (!settings->config_path.empty()) settings->config_path = absolute_path(settings->config_path);
  environment_settings = settings.release();
  tell_all(environment_settings->warnings);
  if (environment_settings->config_path.empty()) return publish(*environment_settings);
  watched_config =
      new WatchedConfig(environment_settings->config_path, environment_settings->reload_ms);
  load_config();
  if (gates.load(std::memory_order_relaxed) == 0) {
    publish(with_config(*environment_settings, std::nullopt));
  }
}

uint32_t known_gates() noexcept {
  const uint32_t word = gates.load(std::memory_order_relaxed);
  if (word != 0) return word;
  guarded("the first call", [] {
    const Held lock(&state_lock);
    read_environment();
  });
  return gates.load(std::memory_order_acquire);
}

// At exit(): what waits is written. A destructor of the host that calls us later finds the queue
// closed and writes itself.
void at_process_end() noexcept {
  AtbSession* session = process_session.get();
  if (session == nullptr) return;
  // exit() out of a signal handler, in the middle of a call of ours: its locks are held.
  guarded("the end of the process", [session] { session->finish(); });
}

Result<AtbSession*> open_session(const Settings& settings) {
  SessionOptions options;
  options.pid = ::getpid();
  options.program = program_path();
  const std::string folder = settings.output_dir == "/" ? "" : settings.output_dir;
  // A configuration file may ask for tensors later.
  if (settings.captures() || !settings.config_path.empty()) {
    options.root = folder + "/" + settings.dump_name;
  }
  if (settings.overflow_check) {
    options.overflow_file = folder + "/msit_overflow_res_" + std::to_string(options.pid) + ".txt";
  }
  return AtbSession::open(settings, std::move(options));
}

/// Calls body(session, settings) when something is captured.
template <typename Body>
void with_session(const char* where, Body body) noexcept {
  guarded(where, [&body] {
    const Settings* settings = current_settings.load(std::memory_order_acquire);
    if (settings == nullptr) return;
    AtbSession* session = process_session.get_or_open(
        &state_lock, [settings] { return open_session(*settings); }, switch_off,
        [] { at_process_end(); });
    if (session != nullptr) body(*session, *settings);
  });
}

/// The same, when `gate` is open.
template <typename Body>
void behind(uint32_t gate, const char* where, Body body) noexcept {
  if (ask(gate)) with_session(where, body);
}

/// A question with arguments: asked, answered, counted.
template <typename Answer>
bool answered(const char* where, uint64_t ProbeCounters::* asked, uint64_t ProbeCounters::* yes,
              Answer answer) noexcept {
  bool result = false;
  with_session(where, [&](AtbSession& session, const Settings& settings) {
    result = answer(settings);
    session.count(asked);
    if (result) session.count(yes);
  });
  return result;
}

// Beyond it the vector is damaged: no operation has nearly as many.
constexpr size_t kMaxTensors = 4096;

writer::AtbRow row_of(uint64_t execute_count, Text name, Text param, const TensorList& inputs,
                      const TensorList& outputs) {
  const auto read = [](const TensorList& list) {
    std::vector<formats::OpCsvTensor> tensors;
    for (size_t i = 0; i < std::min(list.count, kMaxTensors); ++i) {
      const TensorTexts texts = list.at(list.first, i);
      tensors.push_back({std::string(view(texts.dtype)), std::string(view(texts.format)),
                         std::string(view(texts.shape)), std::string(view(texts.path))});
    }
    return tensors;
  };
  writer::AtbRow row;
  row.execute_count = execute_count;
  row.op_name = view(name);
  row.op_param = view(param);
  row.inputs = read(inputs);
  row.outputs = read(outputs);
  return row;
}

constexpr uint32_t kAnyCapture = kGateDesc | kGateGraph | kGateStatistic;

}  // namespace

bool ask(uint32_t gate) noexcept { return (known_gates() & gate) != 0; }

bool is_tensor_need_save(const int64_t* ids, size_t id_count, Text op_type) noexcept {
  if (!ask(kGateTensor)) return false;
  bool wanted = false;
  with_session("IsTensorNeedSave", [&](AtbSession& session, const Settings& settings) {
    wanted = needs_save(settings, {ids, id_count}, view(op_type));
    session.count(&ProbeCounters::asked_need_save);
    if (wanted) {
      session.count(&ProbeCounters::asked_need_save_yes);
    } else {
      session.see_unwanted({ids, id_count}, view(op_type));
    }
  });
  return wanted;
}

bool is_execute_count_in_range(uint64_t execute_count) noexcept {
  if (!ask(kAnyCapture)) return false;
  bool wanted = false;
  with_session("IsExecuteCountInRange", [&](AtbSession& session, const Settings& settings) {
    wanted = in_range(settings, execute_count);
    session.count(&ProbeCounters::asked_in_range);
    if (wanted) session.count(&ProbeCounters::asked_in_range_yes);
    session.see_run(execute_count, wanted);
  });
  return wanted;
}

bool is_save_tensor_in_specific_dir(Text directory) noexcept {
  if (!ask(kGateTensor)) return false;
  return answered(
      "IsSaveTensorInSpecificDir", &ProbeCounters::asked_in_dir, &ProbeCounters::asked_in_dir_yes,
      [&](const Settings& settings) { return in_directory(settings, view(directory)); });
}

void update_config() noexcept {
  if (!ask(kGateDynamic)) return;
  guarded("UpdateConfig", [] {
    if (!watched_config->is_due() || !state_lock.try_lock()) return;  // somebody else is at it
    const Held held(&state_lock, std::adopt_lock);
    load_config();
  });
}

void save_tensor(Text format, Text dtype, Text dims, const void* data, uint64_t size_bytes,
                 Text path) noexcept {
  behind(kGateTensor, "SaveTensor", [&](AtbSession& session, const Settings& settings) {
    session.save_tensor(settings,
                        {view(format), view(dtype), view(dims), data, size_bytes, view(path)});
  });
}

void save_tiling(const void* data, uint64_t size_bytes, Text path) noexcept {
  behind(kGateTiling, "SaveTiling", [&](AtbSession& session, const Settings& settings) {
    session.save_tiling(settings, data, size_bytes, view(path));
  });
}

void save_param(Text param, Text path) noexcept {
  behind(kGateParam, "SaveParam", [&](AtbSession& session, const Settings& settings) {
    session.save_param(settings, view(param), view(path));
  });
}

void report_operation_graph(Text name, Text report) noexcept {
  behind(kGateGraph, "ReportOperationGraph", [&](AtbSession& session, const Settings& settings) {
    session.report_layer(settings, view(name), view(report));
  });
}

bool is_report_model(Text name) noexcept {
  if (!ask(kGateModel)) return false;
  bool wanted = false;
  with_session("IsReportModelTopoInfo", [&](AtbSession& session, const Settings&) {
    wanted = session.wants_model(view(name));
  });
  return wanted;
}

void report_model(Text name, Text report) noexcept {
  behind(kGateModel, "ReportModelTopoInfo", [&](AtbSession& session, const Settings& settings) {
    session.report_model(settings, view(name), view(report));
  });
}

void report_operation_tensors(uint64_t execute_count, Text name, Text param, TensorList inputs,
                              TensorList outputs) noexcept {
  behind(kGateOperation, "ReportOperationIOTensor",
         [&](AtbSession& session, const Settings& settings) {
           session.report_operation(settings, row_of(execute_count, name, param, inputs, outputs));
         });
}

void report_kernel_tensors(uint64_t execute_count, Text name, Text param, TensorList inputs,
                           TensorList outputs) noexcept {
  behind(kGateKernel, "ReportKernelIOTensor", [&](AtbSession& session, const Settings& settings) {
    session.report_kernel(settings, row_of(execute_count, name, param, inputs, outputs));
  });
}

void report_setup_statistic(uint64_t count, Text name, Text statistic) noexcept {
  behind(kGateStatistic, "ReportOperationSetupStatistic",
         [&](AtbSession& session, const Settings& settings) {
           session.report_setup(settings, count, view(name), view(statistic));
         });
}

void report_execute_statistic(uint64_t count, Text name, Text statistic) noexcept {
  behind(kGateStatistic, "ReportOperationExecuteStatistic",
         [&](AtbSession& session, const Settings& settings) {
           session.report_execute(settings, count, view(name), view(statistic));
         });
}

void report_overflow(Text kernel) noexcept {
  behind(kGateOverflowCheck, "ReportOverflowKernel",
         [&](AtbSession& session, const Settings&) { session.report_overflow(view(kernel)); });
}

}  // namespace assay::capture::atb
