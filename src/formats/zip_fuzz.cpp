// SPDX-License-Identifier: Apache-2.0
#include "formats/detect.hpp"
#include "formats/npy.hpp"
#include "formats/zip.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  (void)detect_file(bytes, "");
  (void)read_npz(bytes);
  const auto archive = read_zip(bytes);
  if (!archive) return 0;
  uint64_t stored = 0;
  for (const ZipEntry& entry : archive->entries) {
    ASSAY_CHECK(entry.data_offset + entry.compressed_size <= size, "an entry lies inside the file");
    stored += entry.compressed_size;
    const auto content = read_zip_entry(*archive, entry, 1 << 24);
    if (content) ASSAY_CHECK(content->bytes.size() == entry.size, "content has the announced size");
  }
  ASSAY_CHECK(stored <= size, "entries share no bytes");
  return 0;
}
