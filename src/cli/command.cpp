// SPDX-License-Identifier: Apache-2.0
// Sentences for stderr, results for stdout, the exit statuses of errors, and what the terminal can
// show: its width, colours and block characters.
#include "cli/command.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/ascii.hpp"
#include "base/paths.hpp"
#include "base/text.hpp"
#include "cli/output.hpp"
#include "report/terminal_text.hpp"

namespace assay::cli {

void say(std::string_view kind, std::string_view sentence) {
  std::string text = std::string(kind) + ": " + printable(sentence);
  // A command to paste stays on its line.
  if (const auto width = terminal_columns(STDERR_FILENO); width && kind != "next")
    text = report::hanging(text, 2, static_cast<size_t>(*width));
  std::fprintf(stderr, "%s\n", text.c_str());
}

int print_result(std::string_view text, int exit_status) {
  Output output;
  output.add(text);
  const Status written = output.finish();
  return written ? exit_status : report_error(written.error());
}

int report_error(std::string_view message, std::string_view hint) {
  say("error",
      hint.empty() ? std::string(message) : std::string(message) + "; " + std::string(hint));
  return kUsageOrInput;
}

int report_usage(std::string_view message, std::string_view next) {
  report_error(message);
  say("next", next);
  return kUsageOrInput;
}

int report_error(const Error& error, std::string_view hint) {
  report_error(error.describe(), hint);
  return error.code == Errc::Internal ? kOurFault : kUsageOrInput;
}

Status check_page_path(const std::string& path) {
  if (path.empty()) return {};
  const auto wrong = [&](const char* why) {
    return fail(Error{Errc::Usage, path, std::nullopt, why});
  };
  if (!path.ends_with(".html")) return wrong("a page ends with .html");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty() && !exists(folder)) return wrong("there is no such folder, for --html");
  return {};
}

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string() : std::string(value);
}

bool use_colour(int fd) { return ::isatty(fd) == 1 && environment("NO_COLOR").empty(); }

std::optional<int> terminal_columns(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return std::nullopt;
}

int terminal_width(int fd) { return terminal_columns(fd).value_or(80); }

bool use_blocks() {
  if (environment("TERM") == "dumb") return false;
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string locale = lower_case(environment(variable));
    if (locale.empty()) continue;
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace assay::cli
