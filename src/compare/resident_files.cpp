// SPDX-License-Identifier: Apache-2.0
// Maps each large file of a run once and has its range watched. Small files, remote ones and those
// beyond a number of mappings are left to whoever reads them.
#include "compare/resident_files.hpp"

#include <map>

#include "base/file_source.hpp"

namespace assay::compare {
namespace {

constexpr uint64_t kSmallFile = uint64_t{4} << 20;
// Mappings of a process are limited (65530 on Linux), and files of a decode are many.
constexpr size_t kMaxFiles = 4096;

}  // namespace

void ResidentFiles::add(const run::Run& run) {
  std::map<std::string_view, uint64_t> sizes;
  for (const run::TensorRecord& record : run.records) {
    if (!record.bytes || !record.bytes->raw) continue;
    uint64_t& size = sizes[record.bytes->file];
    size = std::max(size, record.bytes->offset + record.bytes->size_bytes);
  }
  for (const auto& [path, size] : sizes) {
    // What lies elsewhere is mapped tensor by tensor.
    if (size < kSmallFile || files_.size() >= kMaxFiles || is_elsewhere(path)) continue;
    Result<std::shared_ptr<const run::Container>> file = run::open_container(std::string(path));
    if (!file) continue;
    ResidentLimit::Watch range = limit_.watch((*file)->bytes());
    if (!range.is_active()) continue;
    files_.push_back(*std::move(file));
    ranges_.push_back(std::move(range));
  }
}

}  // namespace assay::compare
