// SPDX-License-Identifier: Apache-2.0
// Cleans the library's paths, writes files whole, and makes of a tensor with the bytes of an
// earlier one a link to it. A row of the lists that names files waits until they are there.
//   docs/formats/atb-tree.md
#include "writer/layouts/atb_tree.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/file_descriptor.hpp"
#include "base/text.hpp"
#include "formats/atb_paths.hpp"

namespace assay::writer {
namespace {

constexpr size_t kMaxPathBytes = 3500;      // the folder in front of it and ".tmp<pid>" fit, too
constexpr size_t kMaxComponentBytes = 200;  // the kernel's limit is 255, less what we append
constexpr size_t kMaxRemembered = 100'000;  // folders whose files the lists may still name
constexpr uint64_t kMaxOverflowLines = 1000;

constexpr uint64_t kFnvStart = 14695981039346656037u;
constexpr uint64_t kFnvPrime = 1099511628211u;

bool is_path_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

uint64_t fnv_words(uint64_t hash, ByteSpan bytes) {
  size_t offset = 0;
  for (; offset + 8 <= bytes.size(); offset += 8) {
    hash = (hash ^ load<uint64_t>(bytes.data() + offset)) * kFnvPrime;
  }
  if (offset < bytes.size()) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + offset, bytes.size() - offset);
    hash = (hash ^ word) * kFnvPrime;
  }
  return hash;
}

std::string clean_component(std::string_view component) {
  std::string clean(component);
  for (char& c : clean) {
    if (!is_path_character(c)) c = '_';
  }
  if (clean.size() <= kMaxComponentBytes) return clean;
  char hash[20];
  std::snprintf(hash, sizeof(hash), "_%016llx",
                static_cast<unsigned long long>(fnv_words(kFnvStart, as_bytes(component))));
  // The ending tells what kind of file it is.
  const size_t dot = clean.rfind('.');
  const std::string ending =
      dot != std::string::npos && clean.size() - dot <= 8 ? clean.substr(dot) : "";
  clean.resize(kMaxComponentBytes - 24);
  return clean + hash + ending;
}

std::string on_one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return line;
}

std::string_view parent_of(std::string_view path) { return path.substr(0, path.rfind('/')); }
std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// "{folder}/before/intensor0_x.bin" in its parts.
struct TensorPath {
  std::string folder;  // of the operation or kernel
  bool before = false;
  bool is_input = false;
  uint64_t index = 0;
};

std::optional<TensorPath> parse_tensor_path(std::string_view path) {
  const std::string_view name = name_of(path);
  const std::string_view parent = parent_of(path);
  const std::string_view when = name_of(parent);
  if (when != "before" && when != "after") return std::nullopt;
  TensorPath parts;
  parts.folder = std::string(parent_of(parent));
  parts.before = when == "before";
  parts.is_input = name.starts_with("intensor");
  if (!parts.is_input && !name.starts_with("outtensor")) return std::nullopt;
  const std::string_view digits = name.substr(parts.is_input ? 8 : 9);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), parts.index);
  if (error != std::errc{}) return std::nullopt;
  return parts;
}

// The operation's folder that a row's paths name; "" when they name none.
std::string operation_folder(const AtbRow& row) {
  for (const auto* tensors : {&row.inputs, &row.outputs}) {
    for (const formats::OpCsvTensor& tensor : *tensors) {
      const Result<std::string> path = atb_relative_path(tensor.file);
      if (!path) continue;
      if (const auto parts = parse_tensor_path(*path)) return parts->folder;
    }
  }
  return "";
}

// From the folder of `link` to `target`; both absolute.
std::string relative_target(std::string_view link, std::string_view target) {
  size_t common = 0;
  for (size_t i = 0; i < std::min(link.size(), target.size()) && link[i] == target[i]; ++i) {
    if (link[i] == '/') common = i + 1;
  }
  std::string up;
  for (const char c : link.substr(common)) {
    if (c == '/') up += "../";
  }
  return up + std::string(target.substr(common));
}

/// Calls use(bytes) for each part of the file, in order. A mapping would raise SIGBUS in the host
/// when somebody truncates the file meanwhile. False when it cannot be read, or `use` says no.
template <typename Use>
bool read_parts(const std::string& path, Use use) {
  constexpr size_t kPartBytes = 16u << 10;  // on the stack, which may be a host thread's
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) return false;
  std::array<std::byte, kPartBytes> part;
  while (true) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) return true;
    if (!use(ByteSpan(part.data(), static_cast<size_t>(got)))) return false;
  }
}

bool file_equals(const std::string& path, ByteSpan content) {
  const bool same = read_parts(path, [&content](ByteSpan part) {
    if (part.size() > content.size() || std::memcmp(part.data(), content.data(), part.size()) != 0)
      return false;
    content = content.subspan(part.size());
    return true;
  });
  return same && content.empty();
}

uint64_t count_lines(const std::string& path) {
  uint64_t lines = 0;
  (void)read_parts(path, [&lines](ByteSpan part) {
    lines += static_cast<uint64_t>(std::count(part.begin(), part.end(), std::byte{'\n'}));
    return true;
  });
  return lines;
}

// One write a call; a part that did not fit is taken back, so that lines stay whole.
Status append_to_file(const std::string& path, std::string_view text, unsigned mode) {
  const FileDescriptor file(above_standard_streams(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, mode)));
  if (file.get() < 0) return fail(errno_error(errno, "open", path));
  struct stat before{};
  if (::fstat(file.get(), &before) != 0) return fail(errno_error(errno, "look at", path));
  Status status = write_all(file.get(), as_bytes(text), path);
  if (!status && ::ftruncate(file.get(), before.st_size) != 0) {
    status.error().message += ", and its last line is cut off";
  }
  return status;
}

// A file that has no name until it is complete: a killed host leaves nothing half, and the rename
// of a temporary name is saved. Nothing when that does not work here, or the name exists.
std::optional<Status> write_unnamed_then_link(const std::string& path, ByteSpan content,
                                              unsigned mode) {
  static std::atomic<bool> is_supported{true};
  if (!is_supported.load(std::memory_order_relaxed)) return std::nullopt;
  const std::string folder(parent_of(path));
  const FileDescriptor file(
      above_standard_streams(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode)));
  if (file.get() < 0) {
    // EISDIR: a kernel that does not know the flag.
    if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)
      is_supported.store(false, std::memory_order_relaxed);
    return std::nullopt;
  }
  if (Status status = write_all(file.get(), content, path); !status) return status;
  if (::linkat(file.get(), "", AT_FDCWD, path.c_str(), AT_EMPTY_PATH) == 0) return Status();
  // ENOENT: before Linux 6.10 that needs a capability.
  if (errno != EEXIST) is_supported.store(false, std::memory_order_relaxed);
  return std::nullopt;
}

Status write_whole_file(const std::string& path, ByteSpan content, unsigned mode) {
  if (std::optional<Status> status = write_unnamed_then_link(path, content, mode))
    return *std::move(status);
  return write_file_atomically(path, content, mode);
}

}  // namespace

Result<std::string> atb_relative_path(std::string_view path) {
  if (path.starts_with('/')) return fail(Errc::Invalid, "the path is absolute");
  std::string clean;
  for (const std::string_view component : split(path, '/')) {
    if (component.empty() || component == ".") continue;
    if (component == "..") return fail(Errc::Invalid, "the path leads out of the dump");
    if (!clean.empty()) clean += '/';
    clean += clean_component(component);
  }
  if (clean.empty()) return fail(Errc::Invalid, "the path is empty");
  if (clean.size() > kMaxPathBytes) return fail(Errc::TooLarge, "the path is too long");
  return clean;
}

Result<std::string> atb_file_name(std::string_view name) {
  if (name.empty()) return fail(Errc::Invalid, "the name is empty");
  std::string clean = clean_component(name);
  if (clean == "." || clean == "..") clean = "_";
  return clean;
}

uint64_t atb_record_hash(std::span<const formats::AtbAttribute> attributes, ByteSpan payload) {
  std::string text;
  for (const formats::AtbAttribute& attribute : attributes) {
    text += attribute.name;
    text += attribute.value;
  }
  uint64_t hash = fnv_words(kFnvStart, as_bytes(text));
  constexpr uint64_t kOffset = 0;  // of the one object
  const uint64_t length = payload.size();
  hash = (hash ^ kOffset) * kFnvPrime;
  hash = (hash ^ length) * kFnvPrime;
  return fnv_words(hash, payload);
}

AtbTree::AtbTree(AtbTreeOptions options) : options_(std::move(options)) {
  if (!options_.write_file) {
    options_.write_file = write_whole_file;
  }
}

Result<AtbTree::Stored> AtbTree::write_record(const AtbRecord& record) {
  const std::string path = options_.root + "/tensors/" + record.path;
  if (record.hash) {
    ASSAY_TRY(const bool linked, link_to_identical(record, path));
    if (linked) {
      remember(record.path);
      return Stored::Link;
    }
  }
  ASSAY_TRY_STATUS(release_path(path));
  ASSAY_TRY_STATUS(write(path, record.file));
  if (record.hash) record_original(*record.hash, path);
  remember(record.path);
  return Stored::File;
}

Status AtbTree::write_param(const std::string& path, std::string_view param) {
  return write(options_.root + "/tensors/" + path, as_bytes(std::string(param) + "\n"));
}

Status AtbTree::write_tiling(const std::string& path, ByteSpan content) {
  return write(options_.root + "/tiling/" + path, content);
}

Status AtbTree::write_layer(std::string_view name, std::string_view report) {
  ASSAY_TRY(const std::string file_name, atb_file_name(name));
  ASSAY_TRY(const std::string text, topology::layer_file(name, report));
  // "Decoder_layer_1" is the layer of type Decoder_layer with id 1.
  layers_.push_back(
      {std::string(name), std::string(name.substr(0, name.rfind('_'))), std::string(report)});
  const std::string path = options_.root + "/layer/" + options_.process + "/" + file_name + ".json";
  ASSAY_TRY_STATUS(write(path, as_bytes(text + "\n")));
  return list_topology(path);
}

Status AtbTree::write_model(std::string_view name, std::string_view report) {
  ASSAY_TRY(const std::string file_name, atb_file_name(name));
  ASSAY_TRY(const std::string text, topology::model_file(report, layers_, &merge_));
  const std::string path = options_.root + "/model/" + options_.process + "/" + file_name + ".json";
  ASSAY_TRY_STATUS(write(path, as_bytes(text + "\n")));
  return list_topology(path);
}

Status AtbTree::append_statistic(uint64_t count, std::string_view name, std::string_view text) {
  return append(options_.root + "/cpu_profiling/" + options_.process + "/operation_statistic_" +
                    std::to_string(count) + ".txt",
                "[" + on_one_line(name) + "]:" + on_one_line(text) + "\n");
}

Status AtbTree::append_operation(AtbRow row) {
  const std::string folder = operation_folder(row);
  resolve(folder, &row.inputs, true);
  resolve(folder, &row.outputs, false);
  Status status = append_row("operation_io_tensors", "operation_tensors_", std::move(row));
  // The operation is through: its files and those of its kernels will not be named again.
  if (!folder.empty()) {
    saved_.erase(folder);
    const auto first = saved_.lower_bound(folder + "/");
    auto last = first;
    while (last != saved_.end() && last->first.starts_with(folder + "/")) ++last;
    saved_.erase(first, last);
  }
  return status;
}

Status AtbTree::append_kernel(uint64_t thread, AtbRow row) {
  Status status = settle_kernel(thread, "");
  std::string folder = operation_folder(row);
  KernelCounter current = kernel_counters_[folder];
  if (kernel_counters_.size() > kMaxRemembered) kernel_counters_.clear();
  if (current.execute_count != row.execute_count) current = {row.execute_count, 0};
  PendingRow pending{std::move(row), folder, current.next};
  kernel_counters_[folder] = {current.execute_count, current.next + 1};
  if (!options_.remember_files) {
    Status written = append_kernel_row(std::move(pending));
    return status ? std::move(written) : std::move(status);
  }
  pending_.emplace(thread, std::move(pending));
  return status;
}

Status AtbTree::settle_kernel(uint64_t thread, std::string_view path) {
  const auto found = pending_.find(thread);
  if (found == pending_.end()) return {};
  const PendingRow& pending = found->second;
  const std::string own = pending.operation + "/" + std::to_string(pending.kernel) + "_";
  if (path.starts_with(own)) return {};
  PendingRow row = std::move(found->second);
  pending_.erase(found);
  return append_kernel_row(std::move(row));
}

Status AtbTree::finish() {
  Status first;
  while (!pending_.empty()) {
    if (Status status = settle_kernel(pending_.begin()->first, ""); !status && first)
      first = std::move(status);
  }
  return first;
}

Status AtbTree::report_overflow(std::string_view kernel) {
  if (options_.overflow_file.empty() || overflow_lines_ >= kMaxOverflowLines) return {};
  if (overflow_lines_++ > 0) overflows_ += '\n';
  overflows_ += "Overflow detected! Operator name: " + on_one_line(kernel);
  ASSAY_TRY_STATUS(make_parent(options_.overflow_file));
  return options_.write_file(options_.overflow_file, as_bytes(overflows_), 0600);
}

// One mkdir a folder: what exists is remembered from the root down.
Status AtbTree::make_folder(const std::string& folder) {
  if (folders_.contains(folder)) return {};
  if (folder.size() <= options_.root.size())
    return make_directories(folder, formats::kAtbFolderMode);
  ASSAY_TRY_STATUS(make_folder(std::string(parent_of(folder))));
  if (::mkdir(folder.c_str(), formats::kAtbFolderMode) != 0 && errno != EEXIST) {
    const int reason = errno;
    if (reason != ENOENT) return fail(errno_error(reason, "create folder", folder));
    folders_.clear();
    ASSAY_TRY_STATUS(make_directories(folder, formats::kAtbFolderMode));
  }
  if (folders_.size() > kMaxRemembered) folders_.clear();
  folders_.insert(folder);
  return {};
}

Status AtbTree::make_parent(const std::string& path) {
  return make_folder(std::string(parent_of(path)));
}

Status AtbTree::write(const std::string& path, ByteSpan content) {
  ASSAY_TRY_STATUS(make_parent(path));
  Status status = options_.write_file(path, content, formats::kAtbFileMode);
  if (status || status.error().code != Errc::NotFound) return status;
  // Somebody removed the folder meanwhile.
  folders_.clear();
  ASSAY_TRY_STATUS(make_parent(path));
  return options_.write_file(path, content, formats::kAtbFileMode);
}

Status AtbTree::append(const std::string& path, std::string_view text) {
  ASSAY_TRY_STATUS(make_parent(path));
  Status status = append_to_file(path, text, formats::kAtbFileMode);
  if (status || status.error().code != Errc::NotFound) return status;
  folders_.clear();
  ASSAY_TRY_STATUS(make_parent(path));
  return append_to_file(path, text, formats::kAtbFileMode);
}

Status AtbTree::append_row(const std::string& folder, const std::string& stem, AtbRow row) {
  const std::string path = options_.root + "/" + folder + "/" + options_.process + "/" + stem +
                           std::to_string(row.execute_count) + ".csv";
  Table& table = tables_[path];
  std::string text;
  if (!table.has_header) {
    const uint64_t lines = count_lines(path);
    if (lines == 0) text = std::string(formats::op_csv_header()) + "\n";
    table = {std::max<uint64_t>(lines, 1), true};
  }
  text += formats::op_csv_row(table.next_case, row.op_name, row.op_param, row.inputs, row.outputs) +
          "\n";
  ASSAY_TRY_STATUS(append(path, text));
  table.next_case = std::min(table.next_case + 1, formats::kMaxOpCsvCases);
  return {};
}

Status AtbTree::append_kernel_row(PendingRow pending) {
  const std::string folder = kernel_folder(pending.operation, pending.kernel);
  resolve(folder, &pending.row.inputs, true);
  resolve(folder, &pending.row.outputs, false);
  return append_row("kernel_io_tensors", "kernel_tensors_", std::move(pending.row));
}

void AtbTree::remember(const std::string& path) {
  if (!options_.remember_files) return;
  const auto parts = parse_tensor_path(path);
  if (!parts) return;
  if (saved_.size() > kMaxRemembered) saved_.clear();
  std::vector<Saved>& files = saved_[parts->folder];
  const std::string name(name_of(path));
  for (const Saved& file : files) {
    if (file.before == parts->before && file.file == name) return;
  }
  files.push_back({parts->is_input, parts->before, parts->index, name});
}

void AtbTree::resolve(const std::string& folder, std::vector<formats::OpCsvTensor>* tensors,
                      bool are_inputs) {
  const auto found = saved_.find(folder);
  for (formats::OpCsvTensor& tensor : *tensors) {
    const Result<std::string> named = atb_relative_path(tensor.file);
    const auto parts = named ? parse_tensor_path(*named) : std::nullopt;
    tensor.file.clear();
    if (!parts || found == saved_.end()) continue;
    // Inputs are what they were before, outputs what they were after the operation.
    for (const Saved& file : found->second) {
      if (file.is_input != are_inputs || file.index != parts->index) continue;
      const bool is_better = file.before == are_inputs;
      if (!tensor.file.empty() && !is_better) continue;
      tensor.file =
          options_.root + "/tensors/" + folder + (file.before ? "/before/" : "/after/") + file.file;
    }
  }
}

std::string AtbTree::kernel_folder(const std::string& operation, uint64_t kernel) const {
  const std::string begin = operation + "/" + std::to_string(kernel) + "_";
  const auto found = saved_.lower_bound(begin);
  return found != saved_.end() && found->first.starts_with(begin) ? found->first : "";
}

Status AtbTree::list_topology(const std::string& path) {
  if (options_.subprocess_list.empty()) return {};
  return append(options_.subprocess_list, path + "\n");
}

Result<bool> AtbTree::link_to_identical(const AtbRecord& record, const std::string& path) {
  const auto found = originals_.find(*record.hash);
  if (found == originals_.end()) return false;
  const std::string target = found->second;
  if (!file_equals(target, record.file)) return false;
  if (target == path) return false;  // the same bytes to the same place: written once more
  ASSAY_TRY_STATUS(release_path(path));
  ASSAY_TRY_STATUS(make_parent(path));
  ASSAY_TRY_STATUS(make_link(target, path));
  links_[target].push_back(path);
  link_target_[path] = target;
  return true;
}

Status AtbTree::make_link(const std::string& target, const std::string& path) {
  const std::string relative = relative_target(path, target);
  if (::symlink(relative.c_str(), path.c_str()) == 0) return {};
  // Something is there: replaced in one step.
  const std::string temporary = path + ".tmp" + options_.process;
  ::unlink(temporary.c_str());
  if (::symlink(relative.c_str(), temporary.c_str()) != 0) {
    return fail(errno_error(errno, "link to " + relative, path));
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    return fail(errno_error(reason, "rename into place", path));
  }
  return {};
}

void AtbTree::record_original(uint64_t hash, const std::string& path) {
  originals_[hash] = path;
  original_hash_[path] = hash;
}

Status AtbTree::release_path(const std::string& path) {
  if (const auto link = link_target_.find(path); link != link_target_.end()) {
    std::erase(links_[link->second], path);
    link_target_.erase(link);
    return {};
  }
  const auto hash = original_hash_.find(path);
  if (hash == original_hash_.end()) return {};
  const uint64_t old_hash = hash->second;
  original_hash_.erase(hash);
  const auto original = originals_.find(old_hash);
  if (original != originals_.end() && original->second == path) originals_.erase(original);
  const auto found = links_.find(path);
  if (found == links_.end()) return {};
  const std::vector<std::string> links = std::move(found->second);
  links_.erase(found);
  if (links.empty()) return {};
  // The first link becomes the file, the others lead there.
  const std::string& heir = links.front();
  if (::rename(path.c_str(), heir.c_str()) != 0) {
    return fail(errno_error(errno, "rename to " + heir, path));
  }
  link_target_.erase(heir);
  record_original(old_hash, heir);
  for (size_t i = 1; i < links.size(); ++i) {
    ASSAY_TRY_STATUS(make_link(heir, links[i]));
    links_[heir].push_back(links[i]);
    link_target_[links[i]] = heir;
  }
  return {};
}

}  // namespace assay::writer
