// SPDX-License-Identifier: Apache-2.0
// By the first bytes: 93 "NUMPY" npy, "PK" 03 04 a zip (its entries say which), "GGUF", "$Version="
// ATB, ...; by the name only where the bytes say nothing.
#include "formats/detect.hpp"

#include <algorithm>
#include <array>

#include "formats/cann_dump.hpp"
#include "formats/pth.hpp"
#include "formats/safetensors.hpp"
#include "formats/zip.hpp"

namespace assay::formats {
namespace {

constexpr std::ptrdiff_t kCannDumpDots = 4;

std::string_view last_component(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [name](std::string_view suffix) { return name.ends_with(suffix); });
}

// By the names of its entries; a zip whose directory cannot be read, by its own name.
FileKind zip_kind(ByteSpan file, std::string_view name) {
  const auto archive = read_zip(file);
  if (!archive) {
    if (ends_with_any(name, {".pth", ".pt", ".bin"})) return FileKind::Pth;
    if (name.ends_with(".npz")) return FileKind::Npz;
    return name.ends_with(".xlsx") ? FileKind::Xlsx : FileKind::Zip;
  }
  bool torch = false;
  bool script = false;
  bool workbook = false;
  bool arrays = !archive->entries.empty();
  for (const ZipEntry& entry : archive->entries) {
    torch = torch || entry.name.ends_with("/data.pkl");
    script = script || entry.name.ends_with("/constants.pkl");
    workbook = workbook || entry.name == "xl/workbook.xml";
    arrays = arrays && entry.name.ends_with(".npy");
  }
  if (script) return FileKind::TorchScript;
  if (torch) return FileKind::Pth;
  if (workbook) return FileKind::Xlsx;
  return arrays ? FileKind::Npz : FileKind::Zip;
}

// u64 length and '{'. The zeros of a file whose writer was stopped say nothing; then the name
// decides.
bool looks_like_safetensors(ByteSpan file) {
  if (file.size() < 9) return false;
  const auto length = load<uint64_t>(file.data());
  return length >= 2 && length <= kMaxSafetensorsHeaderBytes && file[8] == std::byte{'{'};
}

FileKind kind_by_name(std::string_view name) {
  if (name.ends_with(".safetensors")) return FileKind::Safetensors;
  if (name.ends_with(".gguf")) return FileKind::Gguf;
  if (name.ends_with(".csv")) return FileKind::Csv;
  if (name.ends_with(".jsonl")) return FileKind::Jsonl;
  if (name.ends_with(".json")) return FileKind::Json;
  if (name.ends_with(".onnx")) return FileKind::Onnx;
  if (name.ends_with(".txt")) return FileKind::GraphText;
  // {operator type}.{operator name}.{task}.{stream}.{time}: the last part is a number, never a
  // suffix.
  const size_t dot = name.rfind('.');
  const bool numeric = dot != std::string_view::npos && dot + 1 < name.size() &&
                       std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(),
                                   [](char c) { return c >= '0' && c <= '9'; });
  if (numeric && std::count(name.begin(), name.end(), '.') >= kCannDumpDots)
    return FileKind::CannDump;
  return FileKind::Unknown;
}

}  // namespace

std::string_view kind_name(FileKind kind) {
  constexpr std::array<std::string_view, 17> kNames = {
      "unknown",     "npy",     "npz",       "pth",        "pth (legacy)", "TorchScript",
      "safetensors", "ATB bin", "CANN dump", "xlsx",       "zip",          "csv",
      "json",        "jsonl",   "onnx",      "graph text", "gguf"};
  static_assert(kNames.size() == static_cast<size_t>(FileKind::Gguf) + 1);
  return kNames[static_cast<size_t>(kind)];
}

FileKind detect_file(ByteSpan file, std::string_view path) {
  const std::string_view text = as_text(file);
  const std::string_view name = last_component(path);
  if (text.starts_with("\x93NUMPY")) return FileKind::Npy;
  if (text.starts_with("GGUF")) return FileKind::Gguf;
  if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06")) return zip_kind(file, name);
  if (is_legacy_pth(file)) return FileKind::PthLegacy;
  if (text.starts_with("$Version=")) return FileKind::AtbBin;
  if (looks_like_safetensors(file)) return FileKind::Safetensors;
  if (looks_like_cann_dump(file)) return FileKind::CannDump;
  return kind_by_name(name);
}

}  // namespace assay::formats
