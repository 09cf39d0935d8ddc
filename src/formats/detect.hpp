// SPDX-License-Identifier: Apache-2.0
// What kind of file is this? Its first bytes decide; the name only where the bytes say nothing.
#pragma once
#include <string_view>

#include "base/bytes.hpp"

namespace assay::formats {

enum class FileKind : uint8_t {
  Unknown,
  Npy,
  Npz,
  Pth,          // torch.save, zip kind
  PthLegacy,    // torch.save before 1.6: a stream of pickles
  TorchScript,  // a zip with code: refused by read_pth
  Safetensors,
  AtbBin,    // "$Version=..." text header
  CannDump,  // by its header, or a name without suffix but with at least four dots
  Xlsx,
  Zip,  // some other zip
  Csv,
  Json,
  Jsonl,
  Onnx,
  GraphText,  // GE graph as text (.txt)
  Gguf,
};

/// "npy", "pth", ...: the word used in messages.
[[nodiscard]] std::string_view kind_name(FileKind kind);

/// file    the whole file, or its beginning when it is not a zip (a zip's directory is at its end)
/// path    only the last component is looked at; may be empty
[[nodiscard]] FileKind detect_file(ByteSpan file, std::string_view path);

}  // namespace assay::formats
