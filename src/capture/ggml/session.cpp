// SPDX-License-Identifier: Apache-2.0
// The folder of a rank, its manifests and report, and the numbers of values and storages over all
// calls.
#include "capture/ggml/session.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/json_text.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "capture/common/host_guard.hpp"
#include "capture/intake/take.hpp"
#include "formats/native/step_header.hpp"
#include "tensor/node.hpp"
#include "writer/fork_guard.hpp"

namespace assay::capture::ggml {
namespace {

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string number_text(int64_t number) { return std::to_string(number); }

bool is_model_file(std::string_view path) {
  return path.ends_with(".gguf") || path.ends_with(".bin") || path.ends_with(".ggml");
}

void add_file(const std::string& path, std::set<std::string>* files) {
  char* absolute = ::realpath(path.c_str(), nullptr);
  struct stat info{};
  if (absolute != nullptr && ::stat(absolute, &info) == 0 && S_ISREG(info.st_mode))
    files->insert(absolute);
  std::free(absolute);
}

/// The files of models, as far as it can be told: those that lie in memory, and those that the
/// command line names.
void add_model_files(std::set<std::string>* files) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.ends_with(".gguf")) add_file(line.substr(path), files);
  }
  for (const std::string& word : command_line()) {
    if (!is_model_file(word)) continue;
    add_file(word, files);
    if (const size_t equals = word.find('='); equals != std::string::npos)
      add_file(word.substr(equals + 1), files);
  }
}

std::string current_folder() {
  char* path = ::getcwd(nullptr, 0);
  std::string folder = path == nullptr ? "" : path;
  std::free(path);
  return folder;
}

int64_t environment_number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  const auto number = text == nullptr ? std::nullopt : parse_number<int64_t>(text);
  return number.value_or(otherwise);
}

std::string steps_json(const Settings& settings) {
  if (settings.all_steps) return "\"all\"";
  return json_list(settings.steps, [](const StepRange& range) {
    return "[" + std::to_string(range.first) + "," + std::to_string(range.second) + "]";
  });
}

std::string config_json(const Settings& settings) {
  const char* data = settings.full ? "full" : settings.statistics ? "statistics" : "none";
  return JsonObject()
      .add("level", "operator")
      .add("data", data)
      .add_json("steps", steps_json(settings))
      .add_json("names", json_texts(settings.names))
      .add_json("exclude", json_texts(settings.exclude))
      .add_json("types", json_texts(settings.types))
      .text();
}

void wait_here(void (*wait)(void* data), void* data) { wait(data); }

}  // namespace

std::string report_json(const std::string& output, uint64_t steps, uint64_t passed, uint64_t nodes,
                        uint64_t bytes, const std::string& message,
                        const std::set<int64_t>& warm_ups) {
  const std::vector<std::string> command = command_line();
  JsonObject report;
  report.add("pid", ::getpid()).add("program", command.empty() ? "" : command[0]);
  report.add_json("output", output.empty() ? "null" : json_quote(output));
  report.add("steps", steps).add("passed", passed).add("nodes", nodes).add("bytes", bytes);
  report.add_json("warm_ups", json_list(warm_ups, number_text)).add("message", message);
  return report.text() + "\n";
}

void write_report_file(const std::string& report_folder, const std::string& json) {
  if (report_folder.empty()) return;
  const std::string path = report_folder + "/ggml_" + std::to_string(::getpid()) + ".json";
  // The command may be gone, and its folder with it.
  struct stat info{};
  if (::stat(report_folder.c_str(), &info) != 0) return;
  if (const Status written = write_file_atomically(path, as_bytes(json)); !written)
    tell(LogLevel::Warning, written.error().describe());
}

Result<GgmlSession*> GgmlSession::open(const Settings& settings) {
  const FileSizeSignalBlocked no_signal;
  std::unique_ptr<GgmlSession> session(new GgmlSession(settings));
  session->generation_ = writer::fork_generation();
  session->working_folder_ = current_folder();
  ASSAY_TRY_STATUS(session->make_folder());
  session->manifest_.tool = "assay " ASSAY_VERSION;
  session->manifest_.host_json = "{}";
  session->manifest_.config_json = config_json(settings);
  session->manifest_.started = writer::utc_now();
  const std::string top = settings.output + "/manifest.json";
  ASSAY_TRY(const writer::RunClaim claim, writer::claim_run(top, session->manifest_));
  session->manifest_.id = claim.id;
  if (claim.is_first) session->top_manifest_path_ = top;
  writer::NativeRunOptions options;
  options.folder = session->folder_;
  options.run_id = claim.id;
  options.arena_bytes = settings.full ? settings.queue_bytes : 0;
  options.on_full = settings.drop_when_full ? writer::FullPolicy::Drop : writer::FullPolicy::Wait;
  ASSAY_TRY(session->run_, writer::NativeRun::create(std::move(options), wait_here));
  for (size_t i = 0; i < kMaxSources; ++i)
    session->slots_[i] = session->run_->intern("src" + std::to_string(i));
  session->slots_[kResultSlot] = session->run_->intern("");
  session->run_->describe_buffer(&session->manifest_);
  session->describe_host();
  ASSAY_TRY_STATUS(session->write_manifest(session->manifest_));
  write_report_file(settings.report_folder, session->report(""));
  return session.release();
}

Status GgmlSession::make_folder() {
  ASSAY_TRY_STATUS(make_directories(settings_.output, 0750));
  folder_ = settings_.output + "/rank" + std::to_string(environment_number("RANK", 0));
  if (::mkdir(folder_.c_str(), 0750) != 0) {
    if (errno != EEXIST) return fail(errno_error(errno, "create", folder_));
    folder_ += "-" + std::to_string(::getpid());
    if (::mkdir(folder_.c_str(), 0750) != 0) return fail(errno_error(errno, "create", folder_));
  }
  return {};
}

std::string GgmlSession::engines_json() const {
  return json_list(engines_, [](const Engine* engine) {
    return JsonObject()
        .add("file", engine->file())
        .add("build_id", engine->build_id())
        .add("version", engine->version())
        .add("commit", engine->commit())
        .text();
  });
}

void GgmlSession::describe_host() {
  add_model_files(&models_);
  JsonObject host;
  host.add("kind", "ggml").add("ggml", engines_.empty() ? "" : engines_[0]->version());
  host.add_json("program", json_texts(command_line())).add("cwd", working_folder_);
  if (const char* command = std::getenv("ASSAY_DUMP_COMMAND");
      command != nullptr && nlohmann::json::accept(command))
    host.add_json("command", command);
  host.add_json("models", json_texts(models_));
  host.add_json("warm_up_steps", json_list(warm_ups_, number_text)).add("hostname", host_name());
  host.add("pid", ::getpid()).add("rank", environment_number("RANK", 0));
  host.add("world_size", environment_number("WORLD_SIZE", 1));
  manifest_.host_json = host.text();
  manifest_.engines_json = engines_json();
}

Status GgmlSession::write_manifest(const native::Manifest& manifest) const {
  ASSAY_TRY_STATUS(writer::write_manifest(folder_ + "/manifest.json", manifest));
  if (!top_manifest_path_.empty())
    ASSAY_TRY_STATUS(writer::write_manifest(top_manifest_path_, manifest));
  return {};
}

std::string GgmlSession::report(const std::string& message) const {
  return report_json(folder_, manifest_.steps.size(), passed_.load(std::memory_order_relaxed),
                     captured_nodes_, run_->counters().payload_bytes, message, warm_ups_);
}

const native::RecordNode* GgmlSession::node(const std::string& name) {
  const auto known = nodes_.find(name);
  if (known != nodes_.end()) return known->second;
  const native::RecordNode* made = run_->add_node(name, "");
  nodes_.emplace(name, made);
  return made;
}

size_t GgmlSession::SizesHash::operator()(const Sizes& sizes) const noexcept {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15u;
  uint64_t hash = reinterpret_cast<uintptr_t>(sizes.type);
  for (const int64_t size : sizes.ne) hash = (hash ^ static_cast<uint64_t>(size)) * kFactor;
  return hash ^ (hash >> 32);
}

// Lines repeat few sizes, and a number's text costs more than finding it.
const std::string* GgmlSession::sizes_text(const Four& ne, const TypeInfo& type) {
  const std::string*& known = sizes_texts_[{ne, &type}];
  if (known != nullptr) return known;
  JsonObject sizes;
  sizes.add_json(native::key::kSizes, json_list(ne, number_text));
  if (!type.dtype) {
    sizes.add(native::key::kBlock, type.block_values);
    sizes.add(native::key::kBlockBytes, type.block_bytes);
  }
  known = run_->intern(sizes.open_text().substr(1));
  return known;
}

int64_t GgmlSession::next_values(int64_t count) {
  const int64_t first = next_value_;
  next_value_ += count;
  return first;
}

int64_t GgmlSession::next_storages(int64_t count) {
  const int64_t first = next_storage_;
  next_storage_ += count;
  return first;
}

LeafStorage& GgmlSession::leaf_storage(const void* data, const std::string* name) {
  auto& at_address = leaves_[data];
  const auto [place, fresh] = at_address.try_emplace(name);
  if (fresh) {
    place->second.number = next_storages(1);
    place->second.name = name;
  }
  return place->second;
}

void GgmlSession::note_written(LeafStorage& leaf) {
  if (leaf.written) return;
  leaf.written = true;
  written_leaves_.fetch_add(1, std::memory_order_relaxed);
}

void GgmlSession::push_all_lines() {
  for (LineHolder* capture : active_) capture->push_lines();
}

std::string GgmlSession::record_weight(const TensorView& view, native::Record record,
                                       const Dims& shape, const Dims& strides) {
  if (!in_weights_) {
    push_all_lines();
    run_->begin_file("weights", 256);
    in_weights_ = true;
  }
  record.step = -1;
  record.role = Role::Weight;
  if (settings_.statistics && !record.raw_bytes) record.stats = statistics_of(view);
  if (settings_.digest) record.digest = stats::digest(view);
  if (settings_.full) append_elements(*run_, view, record);
  const uint64_t number = run_->push_record(record, shape.span(), strides.span());
  native::RecordText text;
  if (record.payload) {
    native::append_location(text, *record.payload);
    native::append_member(text, native::key::kSameAs, static_cast<int64_t>(number));
  }
  if (record.stats) native::append_statistics(text, *record.stats);
  if (record.digest)
    native::append_member(text, native::key::kDigest, stats::digest_text(*record.digest));
  return std::string(text.text());
}

void GgmlSession::end_weights() {
  if (!in_weights_) return;
  in_weights_ = false;
  run_->end_file();
  if (!active_.empty()) run_->begin_file(step_stem_, 256);
}

void GgmlSession::note_missed(std::string node, std::string reason) {
  manifest_.missed.push_back({std::move(node), std::move(reason), 1});
}

bool GgmlSession::wants_topology(const std::string& prefix) const {
  return std::find(topologies_.begin(), topologies_.end(), prefix) == topologies_.end();
}

void GgmlSession::write_topology(const std::string& prefix, std::string_view json) {
  topologies_.push_back(prefix);
  const std::string name = prefix.empty()
                               ? "topology.json"
                               : "topology-" + prefix.substr(0, prefix.size() - 1) + ".json";
  const FileSizeSignalBlocked no_signal;
  if (const Status written = write_file_atomically(folder_ + "/" + name, as_bytes(json)); !written)
    tell(LogLevel::Warning, written.error().describe());
}

void GgmlSession::note_engine(const Engine* engine) {
  if (std::find(engines_.begin(), engines_.end(), engine) != engines_.end()) return;
  const FileSizeSignalBlocked no_signal;
  engines_.push_back(engine);
  describe_host();
  if (const Status written = write_manifest(manifest_); !written)
    tell(LogLevel::Warning, written.error().describe());
}

void GgmlSession::begin_step(LineHolder* capture, uint64_t step, uint64_t expected_entries) {
  active_.push_back(capture);
  // More was asked for meanwhile.
  if (std::exchange(is_concluded_, false))
    run_->when_written([this, manifest = manifest_] { return write_manifest(manifest); });
  // While another thread's graph runs, its file takes this step's tensors, too: records say where
  // they are.
  if (active_.size() != 1) return;
  step_stem_ = native::step_file_stem(static_cast<int64_t>(step));
  run_->begin_file(step_stem_, expected_entries);
}

void GgmlSession::end_step(LineHolder* capture, const native::ManifestStep& step, uint64_t planned,
                           uint64_t captured, uint64_t not_computed) {
  std::erase(active_, capture);
  manifest_.steps.push_back(step);
  manifest_.planned += planned;
  manifest_.captured += captured;
  captured_nodes_ += captured;
  not_computed_ += not_computed;
  if (!active_.empty()) return;
  if (settings_.synchronous) {
    run_->flush();
  } else {
    run_->end_file();
  }
}

void GgmlSession::note_warm_up(int64_t step) {
  const std::unique_lock<std::mutex> held = lock();
  warm_ups_.insert(step);
}

void GgmlSession::abandon_step(LineHolder* capture) {
  std::erase(active_, capture);
  if (active_.empty() && !finished()) run_->end_file();
}

bool GgmlSession::has_all_steps() const {
  std::set<uint64_t> ended;
  for (const native::ManifestStep& step : manifest_.steps)
    ended.insert(static_cast<uint64_t>(step.step));
  return !settings_.all_steps && std::ranges::all_of(settings_.steps, [&](const StepRange& range) {
    const auto [first, last] = range;
    const auto count = std::distance(ended.lower_bound(first), ended.upper_bound(last));
    return static_cast<uint64_t>(count) > last - first;
  });
}

native::Manifest GgmlSession::last_manifest() {
  describe_host();
  run_->describe_buffer(&manifest_);
  native::Manifest last = manifest_;
  if (not_computed_ > 0)
    last.missed.push_back({"", "the engine did not compute the node", not_computed_});
  last.finished = writer::utc_now();
  return last;
}

void GgmlSession::conclude() {
  if (finished() || is_concluded_ || !active_.empty() || !has_all_steps()) return;
  is_concluded_ = true;
  run_->when_written([this, manifest = last_manifest(), report = report("")]() mutable -> Status {
    manifest.files = run_->files();
    ASSAY_TRY_STATUS(write_manifest(manifest));
    write_report_file(settings_.report_folder, report);
    return {};
  });
}

void GgmlSession::finish() {
  if (generation_ != writer::fork_generation()) return;
  const FileSizeSignalBlocked no_signal;
  const std::unique_lock<std::mutex> held = lock();
  if (finished()) return;
  push_all_lines();
  finished_.store(true, std::memory_order_relaxed);
  run_->close();
  native::Manifest last = last_manifest();
  last.files = run_->files();
  last.stopped = run_->stop_reason();
  Status written = write_manifest(last);
  if (!written) tell(LogLevel::Warning, written.error().describe());
  write_report_file(
      settings_.report_folder,
      report(!last.stopped.empty() || written ? last.stopped : written.error().describe()));
}

}  // namespace assay::capture::ggml
