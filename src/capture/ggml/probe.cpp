// SPDX-License-Identifier: Apache-2.0
// The functions in front of the engine's, and the process-wide state of the probe.
//
//   host            ours                                        engine
//   compute  -----> plan the graph, set our callback  --------> compute
//                   ask: host's callback, then ours  <--------- for each node
//                   deliver: ours, then the host's   <--------- where one of us said yes; all before is computed
//                   set the host's callback again    <---------
//
// The callback is set around each call, since hosts set their own, or none, before each graph that
// they build anew.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include <link.h>

#include "base/numbers.hpp"
#include "capture/common/dynamic_config.hpp"
#include "capture/common/host_guard.hpp"
#include "capture/common/process_session.hpp"
#include "capture/ggml/graph_capture.hpp"
#include "capture/ggml/positions.hpp"
#include "capture/ggml/real_functions.hpp"
#include "writer/fork_guard.hpp"

namespace assay::capture::ggml {
namespace {

enum Mode : int { kUnknown, kOff, kOn };

/// What the probe knows about one scheduler.
struct Scheduler {
  EvalCallback host_callback = nullptr;
  void* host_user = nullptr;
  bool host_wants = false;          // between the ask and the delivery of one node
  int number = -1;                  // given at its first captured call
  uint64_t calls = 0;               // compute calls seen
  int64_t warm_up_step = -1;        // of its first call, when that may have been a warm-up
  GraphCapture* capture = nullptr;  // while a call is armed
  Plans plans;
};

std::atomic<int> mode{kUnknown};
std::atomic<const Settings*> current_settings{nullptr};  // replaced as a whole, old ones are leaked
ProcessSession<GgmlSession> process_session;
std::atomic<uint64_t> compute_calls{0};
std::atomic<uint64_t> direct_calls{0};
std::atomic<bool> config_enabled{true};
std::atomic<bool> told_no_function{false};
std::atomic<bool> first_seen{false};  // a graph that is no warm-up

ForkLock state_lock;  // of the making of settings and session
ForkLock scheduler_lock;
constinit thread_local EngineScheduler* computing __attribute__((tls_model("initial-exec"))) =
    nullptr;

std::unordered_map<EngineScheduler*, std::unique_ptr<Scheduler>>& schedulers() {
  static auto* table = new std::unordered_map<EngineScheduler*, std::unique_ptr<Scheduler>>;
  return *table;
}

void switch_off(const char* where, const char* reason) noexcept {
  mode.store(kOff, std::memory_order_relaxed);
  tell_switched_off(where, reason);
}

template <typename Body>
void guarded(const char* where, Body body) noexcept {
  run_guarded(where, body, switch_off);
}

int64_t reload_ms() {
  const char* text = std::getenv("ASSAY_PROBE_RELOAD_MS");
  const auto number = text == nullptr ? std::nullopt : parse_number<int64_t>(text);
  return number.value_or(WatchedConfig::kDefaultMs);
}

// ---- settings ----

const Settings* environment_settings = nullptr;  // under state_lock once, then constant
WatchedConfig* watched_config = nullptr;

// Under the lock.
void load_config() {
  const std::optional<DynamicConfig> config = watched_config->read();
  if (!config) return;
  for (const std::string& warning : config->warnings) tell(LogLevel::Warning, warning);
  auto settings = std::make_unique<Settings>(*environment_settings);
  set_range(config->range, settings.get());
  settings->first_only = false;
  config_enabled.store(config->enabled, std::memory_order_relaxed);
  current_settings.store(settings.release(), std::memory_order_release);
}

void at_process_end() noexcept {
  GgmlSession* session = process_session.get();
  if (session != nullptr) guarded("the end of the process", [session] { session->finish(); });
}

void read_environment() noexcept {
  guarded("the first call", [] {
    const Held held(&state_lock);
    if (mode.load(std::memory_order_relaxed) != kUnknown) return;
    remember_stderr();
    const char* text = std::getenv("ASSAY_GGML_DUMP");
    if (text == nullptr || *text == '\0') {
      mode.store(kOff, std::memory_order_relaxed);
      return;
    }
    Result<Settings> settings = settings_from_json(text);
    if (!settings) return switch_off("ASSAY_GGML_DUMP", settings.error().message.c_str());
    environment_settings = new Settings(*std::move(settings));
    current_settings.store(environment_settings, std::memory_order_release);
    if (!environment_settings->config_path.empty()) {
      config_enabled.store(false, std::memory_order_relaxed);
      watched_config = new WatchedConfig(environment_settings->config_path, reload_ms());
      load_config();
    }
    mode.store(kOn, std::memory_order_release);
  });
}

void poll_config() {
  if (watched_config == nullptr || !watched_config->is_due()) return;
  const Held held(&state_lock);
  load_config();
}

GgmlSession* session_of(const Settings& settings) {
  return process_session.get_or_open(
      &state_lock, [&settings] { return GgmlSession::open(settings); }, switch_off,
      [] { at_process_end(); });
}

// ---- schedulers ----

Scheduler* scheduler_of(EngineScheduler* address) {
  const Held held(&scheduler_lock);
  std::unique_ptr<Scheduler>& place = schedulers()[address];
  if (place == nullptr) place = std::make_unique<Scheduler>();
  return place.get();
}

/// The lowest number that no living scheduler has: a host that makes its scheduler anew keeps its
/// names.
void number_scheduler(Scheduler* scheduler) {
  const Held held(&scheduler_lock);
  if (scheduler->number >= 0) return;
  for (int number = 0;; ++number) {
    bool taken = false;
    for (const auto& [address, other] : schedulers()) taken |= other->number == number;
    if (taken) continue;
    scheduler->number = number;
    return;
  }
}

/// Not noexcept: what the host's callback throws goes where it would have gone without us.
bool on_node(EngineTensor* tensor, bool ask, void* user) {
  auto* scheduler = static_cast<Scheduler*>(user);
  const EvalCallback host = scheduler->host_callback;
  GraphCapture* capture = scheduler->capture;
  // Asked after the host's callback, which may fork: in the child the capture is the parent's.
  const auto is_active = [capture] {
    return capture != nullptr && mode.load(std::memory_order_relaxed) == kOn &&
           capture->session().generation() == writer::fork_generation();
  };
  if (ask) {
    scheduler->host_wants = host != nullptr && host(tensor, true, scheduler->host_user);
    bool ours = false;
    if (is_active()) guarded("a node", [&] { ours = capture->ask(tensor); });
    return scheduler->host_wants || ours;
  }
  if (is_active()) guarded("a node", [&] { capture->deliver(); });
  return scheduler->host_wants && host != nullptr ? host(tensor, false, scheduler->host_user)
                                                  : true;
}

/// One compute call with our callback in place. Leaves the host's behind, also when something is
/// thrown through.
class Armed {
 public:
  Armed(EngineScheduler* address, EngineGraph* graph, const void* real) : address_(address) {
    guarded("a graph", [&] { arm(graph, real); });
  }
  ~Armed() {
    if (scheduler_ == nullptr) return;
    scheduler_->capture = nullptr;
    engine_->functions().ggml_backend_sched_set_eval_callback(address_, scheduler_->host_callback,
                                                              scheduler_->host_user);
    guarded("the end of a graph", [&] {
      if (capture_->session().generation() != writer::fork_generation()) {
        (void)capture_.release();  // a forked child: what it points to is the parent's
      } else {
        capture_->finish();
      }
    });
  }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;

 private:
  void arm(EngineGraph* graph, const void* real) {
    poll_config();
    const uint64_t step = compute_calls.fetch_add(1, std::memory_order_relaxed);
    const Settings* settings = current_settings.load(std::memory_order_acquire);
    Scheduler* scheduler = scheduler_of(address_);
    const Engine* engine = nullptr;
    bool warm_up = false;
    if (scheduler->calls++ < 2) {
      engine = Engine::of(real);
      if (engine == nullptr) return;
      warm_up = look_for_warm_up(*engine, graph, scheduler);
    }
    const bool first = settings->first_only && !first_seen.load(std::memory_order_relaxed);
    if (!warm_up) first_seen.store(true, std::memory_order_relaxed);
    if (!config_enabled.load(std::memory_order_relaxed) || !(first || settings->wants_step(step))) {
      GgmlSession* session = process_session.get();
      if (session != nullptr) session->count_passed();
      return;
    }
    if (engine == nullptr) engine = Engine::of(real);
    if (engine == nullptr) return;
    GgmlSession* session = session_of(*settings);
    if (session == nullptr || session->finished()) return;
    if (warm_up) scheduler->warm_up_step = static_cast<int64_t>(step);
    number_scheduler(scheduler);
    capture_ = std::make_unique<GraphCapture>(GraphCapture::Request{
        session, settings, engine, graph, &scheduler->plans,
        scheduler->number == 0 ? "" : "sched" + std::to_string(scheduler->number) + "/", step,
        warm_up});
    engine_ = engine;
    scheduler->capture = capture_.get();
    engine->functions().ggml_backend_sched_set_eval_callback(address_, on_node, scheduler);
    scheduler_ = scheduler;
  }

  /// Whether this may be a warm-up; and whether the call before was one, which is noted.
  static bool look_for_warm_up(const Engine& engine, EngineGraph* graph, Scheduler* scheduler) {
    const std::optional<Positions> positions = positions_of(engine, graph);
    if (!positions) return false;
    GgmlSession* session = process_session.get();
    if (scheduler->warm_up_step >= 0 && positions->first == 0 && session != nullptr)
      session->note_warm_up(scheduler->warm_up_step);
    return scheduler->calls == 1 && may_be_warm_up(*positions);
  }

  EngineScheduler* address_;
  const Engine* engine_ = nullptr;
  Scheduler* scheduler_ = nullptr;
  std::unique_ptr<GraphCapture> capture_;
};

/// Which scheduler this thread computes; the synchronous call reaches the asynchronous one through
/// us.
class Computing {
 public:
  explicit Computing(EngineScheduler* scheduler) : before_(computing) { computing = scheduler; }
  ~Computing() { computing = before_; }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  EngineScheduler* before_;
};

int no_function(const char* name) noexcept {
  if (!told_no_function.exchange(true)) {
    tell(LogLevel::Error, std::string("no library has the function ") + name);
  }
  return -1;
}

int compute(Interposed which, EngineScheduler* scheduler, EngineGraph* graph, const void* caller) {
  void* real = real_function(which, caller);
  if (real == nullptr) return no_function("ggml_backend_sched_graph_compute");
  const auto forward = reinterpret_cast<GraphCompute>(real);
  if (mode.load(std::memory_order_relaxed) == kUnknown) read_environment();
  if (mode.load(std::memory_order_relaxed) != kOn || computing == scheduler)
    return forward(scheduler, graph);
  const Computing here(scheduler);
  const Armed armed(scheduler, graph, real);
  return forward(scheduler, graph);
}

// ---- what is told when nothing was captured ----

int look_for_engine(dl_phdr_info* object, size_t, void* data) {
  const std::string_view path = object->dlpi_name == nullptr ? "" : object->dlpi_name;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  for (const char* part : {"libggml", "libllama", "libwhisper", "xllamacpp"}) {
    if (file.find(part) == std::string_view::npos || file.starts_with("libggml_probe")) continue;
    *static_cast<std::string*>(data) = file;
    return 1;
  }
  return 0;
}

void report_nothing_seen() noexcept {
  if (compute_calls.load(std::memory_order_relaxed) != 0 && process_session.was_opened()) return;
  guarded("the end of the process", [] {
    const char* text = std::getenv("ASSAY_GGML_DUMP");
    if (text == nullptr) return;
    const Result<Settings> settings = settings_from_json(text);
    if (!settings) return;
    const uint64_t calls = compute_calls.load(std::memory_order_relaxed);
    const uint64_t direct = direct_calls.load(std::memory_order_relaxed);
    std::string engine;
    ::dl_iterate_phdr(look_for_engine, &engine);
    std::string message;
    if (calls > 0 && mode.load(std::memory_order_relaxed) == kOff) {
      return;  // told when it was switched off
    } else if (calls > 0) {
      message = "none of " + std::to_string(calls) +
                " ggml graphs was to be captured, or the engine was refused (see above)";
    } else if (direct > 0) {
      message = std::to_string(direct) +
                " ggml graphs were computed without a scheduler (ggml_backend_graph_compute), "
                "where nodes "
                "cannot be seen";
    } else if (!engine.empty()) {
      message =
          engine +
          " was loaded, but no compute call was seen; a library linked with -Bsymbolic or as one "
          "object, or opened with RTLD_DEEPBIND, cannot be captured";
    } else {
      return;
    }
    write_report_file(settings->report_folder, report_json("", 0, calls, 0, 0, message));
  });
}

__attribute__((constructor)) void at_load() {
  if (std::getenv("ASSAY_GGML_DUMP") != nullptr) std::atexit([] { report_nothing_seen(); });
}

void set_callback(EngineScheduler* address, EvalCallback callback, void* user,
                  const void* caller) noexcept {
  const auto forward =
      reinterpret_cast<SetEvalCallback>(real_function(Interposed::SetCallback, caller));
  if (mode.load(std::memory_order_relaxed) == kUnknown) read_environment();
  bool armed = false;
  if (mode.load(std::memory_order_relaxed) == kOn) {
    guarded("the host's callback", [&] {
      Scheduler* scheduler = scheduler_of(address);
      scheduler->host_callback = callback;
      scheduler->host_user = user;
      armed = scheduler->capture != nullptr;
    });
  }
  // From inside a callback of a graph that is being captured: ours asks the new one from now on.
  if (!armed && forward != nullptr) forward(address, callback, user);
}

void forget(EngineScheduler* address) noexcept {
  guarded("the end of a scheduler", [address] {
    const Held held(&scheduler_lock);
    schedulers().erase(address);
  });
}

}  // namespace
}  // namespace assay::capture::ggml

using assay::capture::ggml::EngineGraph;
using assay::capture::ggml::EngineScheduler;
using assay::capture::ggml::EvalCallback;
using assay::capture::ggml::Interposed;

extern "C" {

__attribute__((visibility("default"))) void ggml_backend_sched_set_eval_callback(
    EngineScheduler* scheduler, EvalCallback callback, void* user) {
  assay::capture::ggml::set_callback(scheduler, callback, user, __builtin_return_address(0));
}

__attribute__((visibility("default"))) int ggml_backend_sched_graph_compute_async(
    EngineScheduler* scheduler, EngineGraph* graph) {
  return assay::capture::ggml::compute(Interposed::ComputeAsync, scheduler, graph,
                                       __builtin_return_address(0));
}

__attribute__((visibility("default"))) int ggml_backend_sched_graph_compute(
    EngineScheduler* scheduler, EngineGraph* graph) {
  return assay::capture::ggml::compute(Interposed::Compute, scheduler, graph,
                                       __builtin_return_address(0));
}

__attribute__((visibility("default"))) void ggml_backend_sched_free(EngineScheduler* scheduler) {
  void* real = assay::capture::ggml::real_function(Interposed::Free, __builtin_return_address(0));
  assay::capture::ggml::forget(scheduler);
  if (real != nullptr) reinterpret_cast<assay::capture::ggml::FreeScheduler>(real)(scheduler);
}

__attribute__((visibility("default"))) int ggml_backend_graph_compute(void* backend,
                                                                      EngineGraph* graph) {
  void* real =
      assay::capture::ggml::real_function(Interposed::DirectCompute, __builtin_return_address(0));
  assay::capture::ggml::direct_calls.fetch_add(1, std::memory_order_relaxed);
  if (real == nullptr) return assay::capture::ggml::no_function("ggml_backend_graph_compute");
  return reinterpret_cast<int (*)(void*, EngineGraph*)>(real)(backend, graph);
}

}  // extern "C"
