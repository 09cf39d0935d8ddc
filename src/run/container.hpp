// SPDX-License-Identifier: Apache-2.0
// Tensor files opened once and kept mapped while they are in use, and what tensors each one holds.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.hpp"
#include "base/result.hpp"
#include "run/record.hpp"

namespace assay::run {

/// Files that stay mapped after their last tensor is gone, so that the next tensor of the same file
/// does not pay for opening and parsing it again.
inline constexpr size_t kMaxCachedFiles = 16;

/// A mapped file and the directory of its members. Safe to use from several threads.
class Container {
 public:
  virtual ~Container() = default;
  /// One record a tensor or value with slot (the member's name), bytes, and what the header says;
  /// `problem` for a member that cannot be used. Rank and step are the caller's, node and role too
  /// but in a CANN dump, which names its operator and its inputs and outputs.
  [[nodiscard]] virtual Result<std::vector<TensorRecord>> list() const = 0;
  /// errors  NotFound: no such member | of the format's reader
  [[nodiscard]] virtual Result<Tensor> tensor(const std::string& member) const = 0;
  [[nodiscard]] virtual const MappedFile& file() const = 0;
  [[nodiscard]] ByteSpan bytes() const { return file().bytes(); }
  /// What the file says about all its tensors, for Run::properties.
  [[nodiscard]] virtual std::map<std::string, std::string> properties() const { return {}; }
};

/// Opens a file, or finds it among those that are open; a file that was replaced or grew since is
/// opened anew. errors  NotFound | Permission | Io | Unsupported (a folder, a pipe)
[[nodiscard]] Result<std::shared_ptr<const Container>> open_container(const std::string& path);

}  // namespace assay::run
