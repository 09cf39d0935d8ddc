// SPDX-License-Identifier: Apache-2.0
// The folders and files of a dump of the ATB acceleration library, made of the paths and texts that
// the library hands to its probe.   Layout: docs/formats/atb-tree.md
//
//   {root}/tensors/{device}_{pid}/{count}/{id}_{name}/.../after/outtensor0.bin
//   {root}/tiling/...  layer/{pid}/  model/{pid}/  operation_io_tensors/{pid}/  ...
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "formats/atb_bin.hpp"
#include "formats/op_csv.hpp"
#include "topology/atb_json.hpp"

namespace assay::writer {

/// A relative path that stays below its folder: empty and "." components are left out, characters
/// outside [A-Za-z0-9_.-] become '_', components of more than 200 bytes are cut and get a hash.
/// errors  Invalid: absolute, "..", empty | TooLarge: more than 3500 bytes
[[nodiscard]] Result<std::string> atb_relative_path(std::string_view path);

/// One path component of a name: also '/' becomes '_'.
/// errors  Invalid: empty
[[nodiscard]] Result<std::string> atb_file_name(std::string_view name);

/// The originals' hash of a record, by which they recognise identical tensors: names and values of
/// all attributes, offset and length of the object, payload; each padded with zeros to 8 bytes.
[[nodiscard]] uint64_t atb_record_hash(std::span<const formats::AtbAttribute> attributes,
                                       ByteSpan payload);

struct AtbTreeOptions {
  std::string root;             // absolute, exists
  std::string process;          // "4711"
  bool remember_files = false;  // for the file columns of the lists
  std::string subprocess_list;  // file that gets the paths of topology files; "" for none
  std::string overflow_file;    // absolute; "" for none
  /// Replaceable so that tests can have a slow or failing disk.
  std::function<Status(const std::string& path, ByteSpan content, unsigned mode)> write_file = {};
};

/// A tensor's file as it will lie on disk.
struct AtbRecord {
  std::string path;  // below tensors/, as atb_relative_path() gives it
  ByteSpan file;     // header and payload
  /// atb_record_hash() of a record with payload: if a file with the same bytes exists, the tensor
  /// becomes a relative link to it. Nothing: a file of its own.
  std::optional<uint64_t> hash{};
};

/// A row of the operation or kernel list.
struct AtbRow {
  uint64_t execute_count = 0;
  std::string op_name;
  std::string op_param;
  std::vector<formats::OpCsvTensor> inputs;  // `file`: the path the library named
  std::vector<formats::OpCsvTensor> outputs;
};

/// One thread at a time.
/// Invariants: a file appears whole under its name or not at all. A link leads to a file that is
/// there and has the same bytes.
class AtbTree {
 public:
  explicit AtbTree(AtbTreeOptions options);

  enum class Stored : uint8_t { File, Link };
  [[nodiscard]] Result<Stored> write_record(const AtbRecord& record);
  /// path: below tensors/
  [[nodiscard]] Status write_param(const std::string& path, std::string_view param);
  /// path: below tiling/
  [[nodiscard]] Status write_tiling(const std::string& path, ByteSpan content);
  /// The layer's file, its line in the subprocess list, and its part in models to come.
  [[nodiscard]] Status write_layer(std::string_view name, std::string_view report);
  [[nodiscard]] Status write_model(std::string_view name, std::string_view report);
  /// "[name]:text\n"
  [[nodiscard]] Status append_statistic(uint64_t count, std::string_view name,
                                        std::string_view text);
  [[nodiscard]] Status append_operation(AtbRow row);
  /// Reports of kernels name neither the kernel's place nor its folder, and come between its input
  /// and its output files. The row waits until `thread` does something else.
  /// thread   any number that tells the host's threads apart
  [[nodiscard]] Status append_kernel(uint64_t thread, AtbRow row);
  /// `thread` goes on with `path` (below tensors/; "" for anything else).
  [[nodiscard]] Status settle_kernel(uint64_t thread, std::string_view path);
  /// Writes what still waits.
  [[nodiscard]] Status finish();
  [[nodiscard]] Status report_overflow(std::string_view kernel);

 private:
  struct Saved {
    bool is_input = false;
    bool before = false;
    uint64_t index = 0;
    std::string file;  // name
  };
  struct Table {
    uint64_t next_case = 1;
    bool has_header = false;
  };
  struct PendingRow {
    AtbRow row;
    std::string operation;  // folder of the operation
    uint64_t kernel = 0;    // its place in the operation
  };
  struct KernelCounter {
    uint64_t execute_count = 0;
    uint64_t next = 0;
  };

  [[nodiscard]] Status write(const std::string& path, ByteSpan content);
  [[nodiscard]] Status append(const std::string& path, std::string_view text);
  [[nodiscard]] Status append_row(const std::string& folder, const std::string& stem, AtbRow row);
  [[nodiscard]] Status append_kernel_row(PendingRow pending);
  [[nodiscard]] Status make_folder(const std::string& folder);
  [[nodiscard]] Status make_parent(const std::string& path);
  [[nodiscard]] Result<bool> link_to_identical(const AtbRecord& record, const std::string& path);
  void record_original(uint64_t hash, const std::string& path);
  [[nodiscard]] Status make_link(const std::string& target, const std::string& path);
  /// Before `path` gets other bytes: files that are links to it keep theirs.
  [[nodiscard]] Status release_path(const std::string& path);
  void remember(const std::string& path);
  void resolve(const std::string& folder, std::vector<formats::OpCsvTensor>* tensors,
               bool are_inputs);
  [[nodiscard]] std::string kernel_folder(const std::string& operation, uint64_t kernel) const;
  [[nodiscard]] Status list_topology(const std::string& path);

  AtbTreeOptions options_;
  std::unordered_set<std::string> folders_;  // that exist
  std::map<std::string, std::vector<Saved>> saved_;
  std::unordered_map<std::string, Table> tables_;
  std::map<uint64_t, PendingRow> pending_;                          // by thread
  std::unordered_map<std::string, KernelCounter> kernel_counters_;  // by operation folder
  std::unordered_map<uint64_t, std::string> originals_;             // absolute path by record hash
  std::unordered_map<std::string, uint64_t> original_hash_;
  std::unordered_map<std::string, std::vector<std::string>> links_;  // by the file they lead to
  std::unordered_map<std::string, std::string> link_target_;
  std::vector<topology::LayerReport> layers_;
  topology::ModelMerge merge_;
  std::string overflows_;
  uint64_t overflow_lines_ = 0;
};

}  // namespace assay::writer
