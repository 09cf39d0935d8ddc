// SPDX-License-Identifier: Apache-2.0
// What formats/native/manifest.hpp reads is added to the run. A manifest that is missing changes
// nothing; one that cannot be read makes the run incomplete and damaged.
#include "run/manifest.hpp"

#include "base/mapped_file.hpp"

namespace assay::run {
namespace {

void add_to(Run* run, const native::ReadManifest& said) {
  for (const auto& [name, text] : said.properties) run->properties[name] = text;
  Coverage& coverage = run->coverage;
  coverage.planned += said.planned;
  coverage.captured += said.captured;
  coverage.missed.insert(coverage.missed.end(), said.missed.begin(), said.missed.end());
  coverage.lost += said.dropped;
  if (said.dropped > 0)
    run->warnings.push_back("the capture dropped " + std::to_string(said.dropped) +
                            " tensors because writing was too slow");
  if (!said.stopped.empty()) run->warnings.push_back("the capture stopped early: " + said.stopped);
  if (!said.stopped.empty()) coverage.complete = false;
}

}  // namespace

Manifest add_manifest_file(const std::string& path, Run* run) {
  Manifest manifest;
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file && file.error().code == Errc::NotFound) return manifest;
  manifest.path = path;
  manifest.found = true;
  auto read = file ? in_file(path, native::read_manifest(as_text(file->bytes())))
                   : Result<native::ReadManifest>(fail(file.error()));
  if (read) {
    static_cast<native::ReadManifest&>(manifest) = *std::move(read);
    if (!manifest.is_as_written) run->add_damage(path, "is not as it was written");
    add_to(run, manifest);
    return manifest;
  }
  run->coverage.complete = false;
  run->warnings.push_back(read.error().describe());
  // A manifest is only ever replaced as a whole, so one that cannot be read was damaged.
  if (file) run->add_damage(path, read.error().message);
  return manifest;
}

}  // namespace assay::run
