// SPDX-License-Identifier: Apache-2.0
// The file, in this order:
//
//   head       title, a policy that forbids every request, the style sheet
//   body       the sentence, as text
//   blobs      <script type="text/plain" id="blob-NAME">base64 of zlib</script>, one each
//   libraries  scripts of others, as their packages have them
//   modules    one script: the modules of this folder, in the order that they need each other
#include "report/html/page.hpp"

#include <zlib.h>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "report/files.hpp"
#include "report/html/assets.hpp"
#include "report/markup.hpp"

namespace assay::report::html {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    append_markup(c, &out);
  }
  return out;
}

void append_blob(const Blob& blob, std::string* out) {
  *out += "<script type=\"text/plain\" id=\"blob-" + blob.name + "\">";
  *out += base64(blob.is_deflated ? blob.bytes : deflated(blob.bytes));
  *out += "</script>\n";
}

}  // namespace

// Level 4 takes a third of the time of level 6 on columns of numbers, and two hundredths more room.
std::string deflated(std::string_view bytes) {
  constexpr int kLevel = 4;
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), kLevel);
  ASSAY_CHECK(status == Z_OK, "zlib has the room that it asked for");
  out.resize(size);
  return out;
}

Page begin_page(std::string_view kind, std::string title, std::string sentence,
                std::string_view tone) {
  Page page{.title = std::move(title), .sentence = std::move(sentence), .content = {}, .blobs = {}};
  page.content = {{"format", 1},
                  {"kind", kind},
                  {"title", printable(page.title)},
                  {"sentence", printable(page.sentence)},
                  {"tone", tone},
                  {"verdict", nullptr}};
  for (const char* sentences : {"notes", "warnings", "gaps", "levels"})
    page.content[sentences] = Json::array();
  return page;
}

std::string page_html(const Page& page) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
      escaped(page.title) + "</title>\n<style>\n";
  size_t blob_bytes = 0;
  for (const Blob& blob : page.blobs) blob_bytes += blob.bytes.size();
  out.reserve(out.size() + blob_bytes / 3 * 4 + (size_t{1} << 20));
  out += kStyle;
  out += "</style>\n</head>\n<body>\n<main id=\"page\">\n<h1>" + escaped(page.sentence) +
         "</h1>\n<noscript><p>The rest of this page needs JavaScript.</p></noscript>\n</main>\n";
  append_blob({"page", page.content.dump(-1, ' ', false, Json::error_handler_t::replace)}, &out);
  for (const Blob& blob : page.blobs) append_blob(blob, &out);
  append_blob({"licences", std::string(kLicences)}, &out);
  for (const std::string_view library : kLibraries) {
    out += "<script>\n";
    out += library;
    out += "</script>\n";
  }
  out += "<script type=\"module\">\n";
  out += kModules;
  return out + "</script>\n</body>\n</html>\n";
}

Status write_page(const Page& page, const std::string& path) {
  if (!path.ends_with(".html"))
    return fail(Error{Errc::Usage, path, std::nullopt, "a page ends with .html"});
  return write_file_atomically(path, as_bytes(page_html(page)), kReportMode);
}

}  // namespace assay::report::html
