// SPDX-License-Identifier: Apache-2.0
// A .pth has no name until it is whole, then it is linked to its place; where that does not work it
// is renamed from a temporary name. Rows go to the end of their tables with one write.
//   docs/formats/torch-tree.md
#include "writer/layouts/torch_tree.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/file_descriptor.hpp"
#include "base/text.hpp"
#include "formats/crc32.hpp"
#include "formats/csv.hpp"
#include "formats/pth.hpp"
#include "stats/digest.hpp"
#include "tensor/convert.hpp"

namespace assay::writer {
namespace {

// What the disk budget counts beside payloads: a folder with its csv rows, and all of a .pth but
// its payload.
constexpr uint64_t kFolderBytes = 4096;
constexpr uint64_t kPthFrameBytes = 1200;

constexpr mode_t kTableMode = 0640;
constexpr size_t kMostNameBytes = 255;

// The float32 that `tensor.float()` arithmetic ended with, as Python prints it.
std::string float32_text(double value) {
  return python_repr(static_cast<double>(static_cast<float>(value)));
}

std::string dtype_text(const TorchTreeTensor& tensor) {
  return "torch." + std::string(tensor.dtype_name);
}

// Input or output is told by the stem's beginning, the index by its last field: "output_1_0" is
// Output 0.
std::string_view direction_of(std::string_view stem) {
  return stem.starts_with("input") ? "Input" : "Output";
}
std::string_view index_of(std::string_view stem) {
  const size_t underscore = stem.rfind('_');
  return underscore == std::string_view::npos ? "0" : stem.substr(underscore + 1);
}

std::string csv_row(std::initializer_list<std::string_view> cells) {
  std::string row;
  formats::append_csv_row(cells, {}, &row);
  return row;
}

// All three parts with as few calls as the kernel allows; they are const to writev.
Status write_parts(int fd, std::string_view header, ByteSpan payload, std::string_view trailer,
                   const std::string& path) {
  iovec parts[3] = {{const_cast<char*>(header.data()), header.size()},
                    {const_cast<std::byte*>(payload.data()), payload.size()},
                    {const_cast<char*>(trailer.data()), trailer.size()}};
  int first = 0;
  while (first < 3) {
    const ssize_t written = ::writev(fd, parts + first, 3 - first);
    if (written < 0) {
      if (errno == EINTR) continue;
      return fail(errno_error(errno, "write", path));
    }
    size_t left = static_cast<size_t>(written);
    while (first < 3 && left >= parts[first].iov_len) left -= parts[first++].iov_len;
    if (first < 3) {
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + left;
      parts[first].iov_len -= left;
    }
  }
  return {};
}

// Puts a link to `source`, relative to `source_at`, where `name` is taken; an empty one stands for
// `source_at` itself.
Status replace_by_link(int source_at, const std::string& source, int at, const std::string& name,
                       const std::string& temporary) {
  ::unlinkat(at, temporary.c_str(), 0);
  if (::linkat(source_at, source.c_str(), at, temporary.c_str(),
               source.empty() ? AT_EMPTY_PATH : 0) != 0 ||
      ::renameat(at, temporary.c_str(), at, name.c_str()) != 0) {
    return fail(errno_error(errno, source.empty() ? "replace" : "link " + source + " to", name));
  }
  // rename(2) does nothing when both names are links to one file, and leaves the temporary one.
  ::unlinkat(at, temporary.c_str(), 0);
  return {};
}

// Appends rows to a table with one write; the header comes first in a file that is empty. `shared`:
// other processes append too, a lock keeps the header single.
Status append_to_table(int folder_fd, const std::string& path, std::string_view header,
                       std::string_view rows, bool shared) {
  bool is_new = false;
  int fd = ::openat(folder_fd, path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC,
                    kTableMode);
  if (fd >= 0) {
    is_new = true;
  } else if (errno == EEXIST) {
    fd = ::openat(folder_fd, path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kTableMode);
  }
  FileDescriptor file(above_standard_streams(fd));
  if (file.get() < 0) return fail(errno_error(errno, "open", path));
  if (shared && ::flock(file.get(), LOCK_EX) != 0) return fail(errno_error(errno, "lock", path));
  if (!is_new || shared) {
    struct stat info{};
    if (::fstat(file.get(), &info) != 0) return fail(errno_error(errno, "look at", path));
    is_new = info.st_size == 0;
  }
  Status status;
  if (is_new) {
    status = write_all(file.get(), as_bytes(std::string(header) + std::string(rows)), path);
  } else {
    status = write_all(file.get(), as_bytes(rows), path);
  }
  return status;
}

}  // namespace

std::string torch_tree_name(std::string_view name, size_t suffix_bytes) {
  const size_t most = kMostNameBytes - suffix_bytes;
  if (name.size() <= most) return std::string(name);
  const ByteSpan bytes = as_bytes(name);
  const TensorView view{.dtype = DType::UInt8,
                        .shape = Dims{static_cast<int64_t>(bytes.size())},
                        .strides = Dims{1},
                        .storage = bytes};
  const std::string end = "~" + stats::digest_text(stats::digest(view));
  size_t size = most - end.size();
  while (size > 0 && (static_cast<unsigned char>(name[size]) & 0xC0) == 0x80)
    --size;  // no half characters
  return std::string(name.substr(0, size)) + end;
}

std::string torch_tree_folder(std::string_view node) {
  if (node.size() <= kMostNameBytes) return std::string(node);
  std::string folder;
  for (size_t begin = 0; begin <= node.size();) {
    const size_t end = std::min(node.find('/', begin), node.size());
    folder += (begin == 0 ? "" : "/") + torch_tree_name(node.substr(begin, end - begin));
    begin = end + 1;
  }
  return folder;
}

double unbiased_variance(const TensorView& view, const stats::TensorStats& statistics) {
  if (statistics.count < 2 || statistics.has_non_finite()) return NAN;
  constexpr int64_t kBlock = 4096;
  const int per_element = values_per_element(view.dtype);
  const int64_t count = view.element_count();
  std::vector<double> values(static_cast<size_t>(kBlock * per_element));
  double sum = 0;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t length = std::min(kBlock, count - first);
    const std::span<double> block(values.data(), static_cast<size_t>(length * per_element));
    read_values(view, first, length, block);
    if (is_complex(view.dtype)) {
      for (size_t i = 0; i < block.size(); i += 2) {
        const double distance = std::hypot(block[i], block[i + 1]) - statistics.mean;
        sum += distance * distance;
      }
    } else {
      for (const double value : block) sum += (value - statistics.mean) * (value - statistics.mean);
    }
  }
  return sum / static_cast<double>(statistics.count - 1);
}

std::string statistics_header() {
  return "NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm\r\n";
}

std::string statistics_row(std::string_view node_name, std::string_view node_type,
                           const TorchTreeTensor& tensor) {
  const stats::TensorStats values =
      tensor.statistics.value_or(stats::TensorStats{}).with_non_finite();
  return csv_row({node_name, node_type, direction_of(tensor.stem), index_of(tensor.stem),
                  dtype_text(tensor), tuple_text(tensor.shape.span()), float32_text(values.max),
                  float32_text(values.min), float32_text(values.mean),
                  float32_text(values.l2_norm)});
}

std::string analyze_header() {
  return "Node Name,Node Type,Tensor Path,dtype,shape,max,min,variance,mean\r\n";
}

std::string analyze_row(std::string_view node_name, std::string_view node_type,
                        std::string_view tensor_path, const TorchTreeTensor& tensor) {
  const stats::TensorStats values =
      tensor.statistics.value_or(stats::TensorStats{}).with_non_finite();
  return csv_row({node_name, node_type, tensor_path, dtype_text(tensor),
                  "torch.Size(" + list_text(tensor.shape.span()) + ")", float32_text(values.max),
                  float32_text(values.min), float32_text(tensor.variance),
                  float32_text(values.mean)});
}

// The folder of a visit, below its token's, which stays open meanwhile.
struct TorchTree::Place {
  std::shared_ptr<const HostedDescriptor> token_folder;
  std::string folder;  // relative to it

  [[nodiscard]] int at() const { return token_folder->get(); }
};

// Where a file is to appear, all relative to `at`.
struct TorchTree::FileName {
  int at;
  std::string folder;
  std::string name;
  std::string temporary;  // its name until then, if it must have one
};

TorchTree::TorchTree(TorchTreeOptions options)
    : options_(std::move(options)),
      budget_(options_.dump_dir, options_.disk),
      has_nameless_files_(options_.nameless_files) {}

Status TorchTree::admit(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (budget_.admit(size_bytes)) return {};
  Error error{Errc::NoSpace, options_.dump_dir, std::nullopt, budget_.stop_reason()};
  return note(fail(std::move(error)));
}

Result<TorchTree::Place> TorchTree::enter(const TorchTreeVisit& visit) {
  ASSAY_TRY(std::shared_ptr<const HostedDescriptor> token_folder, enter_token(visit.token));
  Place place{.token_folder = std::move(token_folder), .folder = torch_tree_folder(*visit.folder)};
  ASSAY_TRY_STATUS(make_folder(visit, place, options_.dump_dir));
  return place;
}

Status TorchTree::write(const TorchTreeVisit& visit) {
  uint64_t size_bytes = kFolderBytes;
  for (const TorchTreeTensor& tensor : visit.tensors) {
    if (tensor.content == TorchTreeTensor::Content::Payload)
      size_bytes += tensor.payload.size() + kPthFrameBytes;
  }
  ASSAY_TRY_STATUS(admit(size_bytes));
  const Result<Place> place = enter(visit);
  if (!place) return note(fail(place.error()));
  Status result;
  for (const TorchTreeTensor& tensor : visit.tensors) {
    if (Status status = note(write_content(*place, tensor)); !status && result)
      result = std::move(status);
  }
  if (visit.tensors.empty()) return result;
  if (options_.statistics) {
    if (Status status = note(append_rows(visit, *place)); !status && result)
      result = std::move(status);
  }
  if (!options_.analyze_path.empty()) {
    if (Status status = note(append_analysis(visit)); !status && result) result = std::move(status);
  }
  return result;
}

Status TorchTree::write_files(TorchTreeVisit& visit) {
  uint64_t size_bytes = 0;
  for (TorchTreeTensor& tensor : visit.tensors) {
    if (tensor.content == TorchTreeTensor::Content::Payload && tensor.payload_owner == nullptr)
      size_bytes += tensor.payload.size() + kPthFrameBytes;
  }
  Status result = admit(size_bytes);
  std::optional<Place> place;
  if (result) {
    if (Result<Place> entered = enter(visit))
      place = std::move(*entered);
    else
      result = note(fail(entered.error()));
  }
  for (TorchTreeTensor& tensor : visit.tensors) {
    if (tensor.content != TorchTreeTensor::Content::Payload || tensor.payload_owner != nullptr)
      continue;
    if (place) {
      if (Status status = note(write_content(*place, tensor)); !status && result)
        result = std::move(status);
    }
    tensor.content = TorchTreeTensor::Content::Written;
    tensor.payload = {};
  }
  return result;
}

Status TorchTree::write_tensor_file(const std::string& path, const TorchTreeTensor& tensor) {
  ASSAY_TRY_STATUS(admit(tensor.payload.size() + kPthFrameBytes));
  const size_t slash = path.rfind('/');
  const FileName file{.at = AT_FDCWD,
                      .folder = slash == std::string::npos ? "." : path.substr(0, slash + 1),
                      .name = path,
                      .temporary = path + ".tmp"};
  return note(write_pth(file, formats::pth_archive_name(path), tensor));
}

bool TorchTree::links_work(const std::string& folder) {
  const std::string source = folder + "/.link-probe-a." + std::to_string(::getpid());
  const std::string target = folder + "/.link-probe-b." + std::to_string(::getpid());
  const FileDescriptor file(::open(source.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const bool works = file.get() >= 0 && ::link(source.c_str(), target.c_str()) == 0;
  ::unlink(source.c_str());
  ::unlink(target.c_str());
  return works;
}

Result<std::shared_ptr<const HostedDescriptor>> TorchTree::enter_token(int64_t token) {
  const std::lock_guard lock(mutex_);
  // A script may have deleted the folder since, or closed our descriptor of it.
  if (token_folder_ && token_ == token && token_folder_->check({})) return token_folder_;
  const std::string path = options_.dump_dir + "/" + std::to_string(token);
  ASSAY_TRY_STATUS(make_directories(path));
  HostedDescriptor opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) return fail(errno_error(errno, "open folder", path));
  token_folder_ = std::make_shared<const HostedDescriptor>(std::move(opened));
  token_ = token;
  return token_folder_;
}

Status TorchTree::make_folder(const TorchTreeVisit& visit, const Place& place,
                              const std::string& dump_dir) {
  if (::mkdirat(place.at(), place.folder.c_str(), visit.folder_mode) == 0 || errno == EEXIST)
    return {};
  const int reason = errno;
  const std::string path = dump_dir + "/" + std::to_string(visit.token) + "/" + place.folder;
  // torch allows '/' in a child's name: nested folders then, as os.makedirs made them.
  if (reason == ENOENT) return make_directories(path, visit.folder_mode);
  return fail(errno_error(reason, "create folder", path));
}

Status TorchTree::write_content(const Place& place, const TorchTreeTensor& tensor) {
  if (tensor.content == TorchTreeTensor::Content::Link)
    return link(tensor.link_source, place, tensor.stem);
  if (tensor.content != TorchTreeTensor::Content::Payload) return {};
  const FileName file{.at = place.at(),
                      .folder = place.folder,
                      .name = place.folder + "/" + tensor.stem + ".pth",
                      .temporary = place.folder + "/." + tensor.stem + ".pth.tmp"};
  return write_pth(file, tensor.stem, tensor);
}

Status TorchTree::write_pth(const FileName& file, const std::string& archive,
                            const TorchTreeTensor& tensor) {
  ASSAY_TRY(const formats::PthPrologue prologue,
            formats::pth_prologue(tensor.dtype, tensor.shape,
                                  {.archive_name = archive, .parameter = {}}));
  const std::string epilogue = formats::pth_epilogue(prologue, formats::crc32(tensor.payload));
  const auto write_into = [&](int fd) {
    return write_parts(fd, prologue.header, tensor.payload, epilogue, file.name);
  };
  // A file without a name that gets one when it is whole costs ext4 less than a second name does.
  if (has_nameless_files_.load(std::memory_order_relaxed)) {
    const FileDescriptor nameless(above_standard_streams(
        ::openat(file.at, file.folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666)));
    if (nameless.get() >= 0) {
      ASSAY_TRY_STATUS(write_into(nameless.get()));
      if (::linkat(nameless.get(), "", file.at, file.name.c_str(), AT_EMPTY_PATH) == 0) return {};
      // EEXIST: the file is replaced, for which it needs a name to be renamed from.
      if (errno == EEXIST)
        return replace_by_link(nameless.get(), "", file.at, file.name, file.temporary);
    }
    has_nameless_files_.store(false, std::memory_order_relaxed);
  }
  FileDescriptor named(above_standard_streams(
      ::openat(file.at, file.temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)));
  if (named.get() < 0) return fail(errno_error(errno, "create", file.name));
  Status status = write_into(named.get());
  if (named.close() != 0 && status) status = fail(errno_error(errno, "close", file.name));
  if (status && ::renameat(file.at, file.temporary.c_str(), file.at, file.name.c_str()) != 0) {
    status = fail(errno_error(errno, "rename into place", file.name));
  }
  if (!status) ::unlinkat(file.at, file.temporary.c_str(), 0);
  return status;
}

Status TorchTree::link(const std::string& source, const Place& place, const std::string& stem) {
  const std::string name = place.folder + "/" + stem + ".pth";
  if (::linkat(place.at(), source.c_str(), place.at(), name.c_str(), 0) == 0) return {};
  if (errno != EEXIST) return fail(errno_error(errno, "link " + source + " to", name));
  return replace_by_link(place.at(), source, place.at(), name,
                         place.folder + "/." + stem + ".pth.tmp");
}

Status TorchTree::append_rows(const TorchTreeVisit& visit, const Place& place) {
  std::string rows;
  for (const TorchTreeTensor& tensor : visit.tensors) {
    if (tensor.statistics) rows += statistics_row(*visit.folder, *visit.node_type, tensor);
  }
  return append_to_table(place.at(), place.folder + "/statistics.csv", statistics_header(), rows,
                         false);
}

Status TorchTree::append_analysis(const TorchTreeVisit& visit) {
  std::string rows;
  for (const TorchTreeTensor& tensor : visit.tensors) {
    if (!tensor.statistics) continue;
    std::string path = options_.dump_dir_text + "/" + std::to_string(visit.token) + "/" +
                       torch_tree_folder(*visit.folder) + "/" + tensor.stem;
    if (tensor.content != TorchTreeTensor::Content::None) path += ".pth";
    rows += analyze_row(*visit.folder, *visit.node_type, path, tensor);
  }
  return append_to_table(AT_FDCWD, options_.analyze_path, analyze_header(), rows, true);
}

Status TorchTree::note(Status status) {
  if (!status &&
      (status.error().code == Errc::NoSpace || status.error().code == Errc::Permission)) {
    stopped_.store(true, std::memory_order_relaxed);
  }
  return status;
}

}  // namespace assay::writer
