// SPDX-License-Identifier: Apache-2.0
// Who creates the manifest names the run, all others read its id there: creating a file is atomic,
// so no lock is needed. An id in ASSAY_RUN_ID comes before that.
#include "writer/run_claim.hpp"

#include <cstdlib>
#include <ctime>
#include <random>

#include "base/atomic_file.hpp"
#include "base/bytes.hpp"
#include "base/mapped_file.hpp"
#include "formats/native/schema.hpp"

namespace assay::writer {

std::string new_run_id() {
  std::random_device random;
  const auto half = [&random] { return uint64_t{random()} << 32 | random(); };
  return stats::digest_text({half(), half()});
}

namespace {

// The id in a manifest that Assay wrote, maybe another version of it; empty when there is none.
std::string id_in(std::string_view manifest) {
  const std::string start = "\n " + std::string(native::key::kId.first()) + "\"";
  const size_t at = manifest.find(start);
  if (at == std::string_view::npos) return {};
  const std::string_view id = manifest.substr(at + start.size(), 32);
  return stats::parse_digest(id) ? std::string(id) : std::string();
}

}  // namespace

Result<RunClaim> claim_run(const std::string& path, native::Manifest manifest,
                           const std::string& job_id) {
  const char* given = std::getenv("ASSAY_RUN_ID");
  const bool is_given = given != nullptr && stats::parse_digest(given).has_value();
  const bool has_job = stats::parse_digest(job_id).has_value();
  manifest.id = is_given ? given : has_job ? job_id : new_run_id();
  ASSAY_TRY(const bool is_first, create_manifest(path, manifest));
  if (is_first || is_given) return RunClaim{manifest.id, is_first};
  const Result<MappedFile> file = MappedFile::open(path);
  const std::string id = file ? id_in(as_text(file->bytes())) : std::string();
  return RunClaim{id.empty() ? manifest.id : id, false};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Result<bool> create_manifest(const std::string& path, const native::Manifest& manifest) {
  return create_file_atomically(path, as_bytes(manifest.to_json()));
}

Status write_manifest(const std::string& path, const native::Manifest& manifest) {
  return write_file_atomically(path, as_bytes(manifest.to_json()));
}

}  // namespace assay::writer
