// SPDX-License-Identifier: Apache-2.0
#include "cli/command.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace assay::cli {

int report_error(std::string_view message, std::string_view hint) {
  std::fprintf(stderr, "error: %.*s\n", static_cast<int>(message.size()), message.data());
  if (!hint.empty())
    std::fprintf(stderr, "hint: %.*s\n", static_cast<int>(hint.size()), hint.data());
  return kUsageOrInput;
}

int report_error(const Error& error, std::string_view hint) {
  report_error(error.describe(), hint);
  return error.code == Errc::Internal ? kOurFault : kUsageOrInput;
}

bool use_colour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return ::isatty(fd) == 1 && (no_colour == nullptr || no_colour[0] == '\0');
}

int terminal_width(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace assay::cli
