// SPDX-License-Identifier: Apache-2.0
// Lets other software judge our formats: tests/python/test_formats_oracle.py runs it.
//
//   formats_tool write DIR     one file of every format and element type, next to each .pth its payload as .raw
//   formats_tool read FILE     leaves of a .pth, one a line: path, dtype or type, shape, bytes in C order or text
#include <cstdio>
#include <string>

#include "base/atomic_file.hpp"
#include "formats/csv.hpp"
#include "formats/npy.hpp"
#include "formats/pth.hpp"
#include "formats/safetensors.hpp"
#include "formats/zip.hpp"
#include "tensor/convert.hpp"

namespace {

using namespace assay;
using namespace assay::formats;

// 1, 2, 3 ... in every byte; 0 and 1 for bool.
std::string payload_of(DType dtype, uint64_t size_bytes) {
  std::string bytes(size_bytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(dtype == DType::Bool ? i % 2 : i % 120 + 1);
  }
  return bytes;
}

Status write_file(const std::string& path, std::string_view content) {
  return write_file_atomically(path, as_bytes(content));
}

Status write_types(const std::string& folder) {
  std::vector<std::string> payloads(kDTypeCount);
  std::vector<std::pair<std::string, TensorView>> for_safetensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string type(name(dtype));
    int number = 0;
    for (const Dims& shape : {Dims{2, 3}, Dims{}, Dims{0, 3}, Dims{1, 1, 2, 300}}) {
      const uint64_t size =
          storage_bytes(dtype, static_cast<uint64_t>(*element_count(shape))).value();
      std::string payload = payload_of(dtype, size);
      ASSAY_TRY(const TensorView view, make_view(dtype, shape, as_bytes(payload)));
      const std::string stem = type + "_" + std::to_string(number++);
      if (pth_supports(dtype)) {
        ASSAY_TRY(const std::string file,
                  write_pth(view, {.archive_name = pth_archive_name(stem + ".pth")}));
        ASSAY_TRY_STATUS(write_file(folder + "/" + stem + ".pth", file));
        ASSAY_TRY(const std::string parameter, write_pth(view, {.parameter = false}));
        ASSAY_TRY_STATUS(write_file(folder + "/" + stem + ".parameter", parameter));
        ASSAY_TRY_STATUS(write_file(folder + "/" + stem + ".raw", payload));
      }
      if (npy_supports(dtype)) {
        ASSAY_TRY(const std::string file, write_npy(view));
        ASSAY_TRY_STATUS(write_file(folder + "/" + stem + ".npy", file));
      }
    }
    payloads[static_cast<size_t>(i)] = payload_of(dtype, storage_bytes(dtype, 6).value());
    ASSAY_TRY(const TensorView view,
              make_view(dtype, Dims{2, 3}, as_bytes(payloads[static_cast<size_t>(i)])));
    if (!info(dtype).safetensors.empty()) for_safetensors.emplace_back(type, view);
  }
  ASSAY_TRY(const std::string file,
            write_safetensors(for_safetensors, {{"made by", "formats_tool \"test\""}}));
  return write_file(folder + "/all.safetensors", file);
}

Status write_others(const std::string& folder) {
  std::string archive;
  ZipWriter zip(&archive);
  ASSAY_TRY_STATUS(zip.add("stored.txt", as_bytes("hello")));
  ASSAY_TRY_STATUS(zip.add("m\xc3\xbcll/deflated.txt", as_bytes(std::string(100'000, 'x')),
                           ZipMethod::Deflated));
  ASSAY_TRY_STATUS(zip.add("empty", {}, ZipMethod::Deflated));
  ASSAY_TRY_STATUS(zip.finish());
  ASSAY_TRY_STATUS(write_file(folder + "/entries.zip", archive));
  std::string csv;
  append_csv_row({"plain", "a,b", "say \"hi\"", "two\nlines", ""}, {}, &csv);
  append_csv_row({""}, {}, &csv);
  append_csv_row({"\xc3\xbc", "cr\r", " "}, {}, &csv);
  return write_file(folder + "/cells.csv", csv);
}

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += digits;
  }
  return out;
}

Status print_entries(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  ASSAY_TRY(const auto entries, read_pth_file(file));
  for (const PthEntry& entry : entries) {
    if (entry.kind == PthEntry::Kind::Value) {
      std::printf("%s\t%s\t\t%s\n", entry.path.c_str(), entry.type.c_str(),
                  hex(entry.text).c_str());
      continue;
    }
    const TensorView& view = entry.tensor.view;
    const auto count = view.element_count();
    std::string bytes(storage_bytes(view.dtype, static_cast<uint64_t>(count)).value(), '\0');
    gather_bytes(view, 0, count, std::as_writable_bytes(std::span(bytes)));
    std::printf("%s\t%s\t%s\t%s\n", entry.path.c_str(), torch_name(view.dtype).c_str(),
                list_text(view.shape.span()).c_str(), hex(bytes).c_str());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "formats_tool write DIR | read FILE\n");
    return 2;
  }
  const std::string command = argv[1];
  const Status done = command == "read"
                          ? print_entries(argv[2])
                          : write_types(argv[2]).and_then([&] { return write_others(argv[2]); });
  if (!done) std::fprintf(stderr, "error: %s\n", done.error().describe().c_str());
  return done ? 0 : 1;
}
