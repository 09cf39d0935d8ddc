// SPDX-License-Identifier: Apache-2.0
// The folders and files of the strict PyTorch hook dump.   Layout: docs/formats/torch-tree.md
//
//   {dump_dir}/{token}/{module}/input_0.pth  output.pth  statistics.csv
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/hosted_descriptor.hpp"
#include "base/result.hpp"
#include "stats/tensor_stats.hpp"
#include "tensor/dims.hpp"
#include "tensor/dtype.hpp"
#include "writer/disk_budget.hpp"

namespace assay::writer {

/// One tensor among the arguments or results of a call.
struct TorchTreeTensor {
  std::string stem;             // "input_0", "output", "output_1_0"
  std::string_view dtype_name;  // torch's name without prefix, static text
  DType dtype = DType::Float32;
  Dims shape;
  std::optional<stats::TensorStats> statistics;  // asked for: one csv row
  double variance = NAN;                         // unbiased; only with an analyze file
  /// What becomes of the bytes.
  enum class Content : uint8_t {
    None,     // statistics only
    Payload,  // `payload` is written
    Link,     // the same bytes as another file of this token: a hard link to it
    Written,  // by write_files(), before the rest of the visit
  } content = Content::None;
  ByteSpan payload;                           // C order
  std::shared_ptr<const void> payload_owner;  // keeps them; none: the caller does
  std::string link_source;  // "root.embed/output.pth", relative to the token's folder
};

/// What one call of a module or function leaves in its folder.
struct TorchTreeVisit {
  int64_t token = 0;
  std::shared_ptr<const std::string> folder;     // the dotted module path, also NodeName
  std::shared_ptr<const std::string> node_type;  // class name, NodeType
  unsigned folder_mode = 0750;
  std::vector<TorchTreeTensor> tensors;  // in row order
};

/// Unbiased variance of the values as float32, as torch.var() of the fp32 copy defines it: NaN
/// below two elements and when a NaN or an infinity takes part. Sums in fp64, two passes.
[[nodiscard]] double unbiased_variance(const TensorView& view,
                                       const stats::TensorStats& statistics);

/// Header and rows of statistics.csv, CR LF line ends. Numbers are rounded to float32 and printed
/// as Python prints the float: what `tensor.float().max().item()` gave.
[[nodiscard]] std::string statistics_header();
[[nodiscard]] std::string statistics_row(std::string_view node_name, std::string_view node_type,
                                         const TorchTreeTensor& tensor);
/// The same for tensor_analyze.csv.
[[nodiscard]] std::string analyze_header();
[[nodiscard]] std::string analyze_row(std::string_view node_name, std::string_view node_type,
                                      std::string_view tensor_path, const TorchTreeTensor& tensor);

struct TorchTreeOptions {
  std::string dump_dir;         // absolute
  std::string dump_dir_text;    // as the user gave it: what the Tensor Path column shows
  std::string analyze_path;     // "" for none; shared by all processes of a launch
  bool statistics = false;      // append rows to statistics.csv
  bool nameless_files = true;   // false: as on a file system that has none
  DiskBudgetOptions disk = {};  // of the file system of dump_dir
};

/// A name as file systems can hold it, with `suffix_bytes` more behind it: what is longer than 255
/// bytes is cut and ends with `~` and the digest of all of it.
[[nodiscard]] std::string torch_tree_name(std::string_view name, size_t suffix_bytes = 0);
/// The folder of a node below its token's: the node's name, each part of it as above.
[[nodiscard]] std::string torch_tree_folder(std::string_view node);

/// Writes visits; those of one folder in the order they come. Any thread. Invariant: a .pth appears
/// whole under its name or not at all. While it is written it has no name; where the file system
/// has no such files it is called `.<stem>.pth.tmp`, which no reader takes for an input or output.
class TorchTree {
 public:
  explicit TorchTree(TorchTreeOptions options);
  TorchTree(const TorchTree&) = delete;
  TorchTree& operator=(const TorchTree&) = delete;

  /// Goes on with the other files of the visit after a failure and returns the first. NoSpace, and
  /// nothing of the visit written, once the disk budget says no.
  [[nodiscard]] Status write(const TorchTreeVisit& visit);
  /// Writes the payloads of `visit` that nobody keeps, from where they are, and marks them as
  /// written; write() of the visit does the rest.
  [[nodiscard]] Status write_files(TorchTreeVisit& visit);
  /// One file outside the token folders, for example a weight. The folder exists.
  [[nodiscard]] Status write_tensor_file(const std::string& path, const TorchTreeTensor& tensor);

  /// True once the disk is full or refuses us: further visits would fail too.
  [[nodiscard]] bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  /// Whether hard links work in `folder`.
  [[nodiscard]] static bool links_work(const std::string& folder);

 private:
  struct Place;
  struct FileName;
  [[nodiscard]] Result<Place> enter(const TorchTreeVisit& visit);
  [[nodiscard]] Result<std::shared_ptr<const HostedDescriptor>> enter_token(int64_t token);
  [[nodiscard]] static Status make_folder(const TorchTreeVisit& visit, const Place& place,
                                          const std::string& dump_dir);
  [[nodiscard]] Status write_content(const Place& place, const TorchTreeTensor& tensor);
  [[nodiscard]] Status write_pth(const FileName& file, const std::string& archive,
                                 const TorchTreeTensor& tensor);
  [[nodiscard]] static Status link(const std::string& source, const Place& place,
                                   const std::string& stem);
  [[nodiscard]] static Status append_rows(const TorchTreeVisit& visit, const Place& place);
  [[nodiscard]] Status append_analysis(const TorchTreeVisit& visit);
  Status note(Status status);
  /// NoSpace, with the budget's sentence, when the disk must not be filled further.
  [[nodiscard]] Status admit(uint64_t size_bytes);

  const TorchTreeOptions options_;
  std::mutex mutex_;  // of the next three
  DiskBudget budget_;
  std::shared_ptr<const HostedDescriptor> token_folder_;
  int64_t token_ = -1;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> has_nameless_files_;  // until the file system refuses one
};

}  // namespace assay::writer
