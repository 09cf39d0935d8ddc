// SPDX-License-Identifier: Apache-2.0
// A fingerprint: docs/formats/fingerprint.md
#include "run/fingerprint/fingerprint.hpp"
#include "base/mapped_file.hpp"
#include "formats/gzip.hpp"
#include "run/folder.hpp"
#include "run/sources/sources.hpp"

namespace assay::run {

namespace {
constexpr uint64_t kMagicBytes = 64;  // of a large file that lies elsewhere not all is fetched
}  // namespace

/// Every gzip file is taken for one: no other layout is one.
bool is_fingerprint(const std::string& path) {
  if (is_folder(path)) return false;
  const Result<MappedFile> file = MappedFile::open_range(path, 0, kMagicBytes);
  return file && formats::is_gzip(file->bytes());
}

namespace sources {

Attempt read_fingerprint(const std::string& path) {
  if (!is_fingerprint(path)) return std::nullopt;
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return Result<Run>(fail(file.error()));
  return open_fingerprint(file->bytes(), path);
}

}  // namespace sources

}  // namespace assay::run
