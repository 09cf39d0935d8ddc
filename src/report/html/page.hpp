// SPDX-License-Identifier: Apache-2.0
// A report as one file that a browser opens without a network: the words of the verdict as plain
// HTML, everything else as data that the scripts of this folder draw.   docs/formats/page.md
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace assay::report::html {

using Json = nlohmann::ordered_json;

/// Bytes that the page unpacks when it needs them.
struct Blob {
  std::string name;  // letters, digits and "-"
  std::string bytes;
  bool is_deflated = false;  // `bytes` are a zlib stream already
};

/// A zlib stream of the bytes.
[[nodiscard]] std::string deflated(std::string_view bytes);

struct Page {
  std::string title;
  std::string sentence;  // of the verdict; shown by browsers without scripts, too
  Json content;          // what data.js calls the page
  std::vector<Blob> blobs;
};

/// A page with what every kind has: its head, no verdict, no sentences.
///
/// kind   "comparison" "run" "opcheck" "repeat" "invariance"
/// tone   "bad" "good" "open": the colour of the banner
[[nodiscard]] Page begin_page(std::string_view kind, std::string title, std::string sentence,
                              std::string_view tone);

/// The file. Texts need not be UTF-8.
[[nodiscard]] std::string page_html(const Page& page);

/// Writes the file, whole or not at all.
/// errors  Usage (`path` does not end with .html) | Permission | NotFound | NoSpace | Io
[[nodiscard]] Status write_page(const Page& page, const std::string& path);

}  // namespace assay::report::html
