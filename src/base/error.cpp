// SPDX-License-Identifier: Apache-2.0
// The names of the codes, the text of an error, and which code an errno value becomes.
#include "base/error.hpp"

#include <cerrno>
#include <cstring>

namespace assay {

std::string_view errc_name(Errc code) {
  switch (code) {
    case Errc::Truncated:
      return "Truncated";
    case Errc::BadMagic:
      return "BadMagic";
    case Errc::Unsupported:
      return "Unsupported";
    case Errc::TooLarge:
      return "TooLarge";
    case Errc::Invalid:
      return "Invalid";
    case Errc::NotFound:
      return "NotFound";
    case Errc::Permission:
      return "Permission";
    case Errc::NoSpace:
      return "NoSpace";
    case Errc::Io:
      return "Io";
    case Errc::Usage:
      return "Usage";
    case Errc::Internal:
      return "Internal";
    case Errc::Interrupted:
      return "Interrupted";
    case Errc::Random:
      return "Random";
    case Errc::WrongKind:
      return "WrongKind";
    case Errc::NothingInCommon:
      return "NothingInCommon";
    case Errc::NotCaptured:
      return "NotCaptured";
  }
  return "Internal";
}

std::string Error::describe() const {
  std::string text;
  if (!path.empty()) text += path + ": ";
  if (offset) text += "at byte " + std::to_string(*offset) + ": ";
  return text + message;
}

Error in_operator(std::string_view name, Error error) {
  if (!error.named) error.message = std::string(name) + ": " + error.message;
  error.named = true;
  return error;
}

Error errno_error(int errno_value, std::string_view action, std::string_view path) {
  Errc code = Errc::Io;
  if (errno_value == ENOENT || errno_value == ENOTDIR) code = Errc::NotFound;
  if (errno_value == EACCES || errno_value == EPERM || errno_value == EROFS)
    code = Errc::Permission;
  if (errno_value == ENOSPC || errno_value == EDQUOT) code = Errc::NoSpace;
  // strerror_r (GNU form) never writes to a shared buffer, so this is safe on any thread of a host.
  char buffer[128];
  const char* reason = strerror_r(errno_value, buffer, sizeof(buffer));
  return Error{code, std::string(path), std::nullopt,
               "cannot " + std::string(action) + ": " + reason};
}

}  // namespace assay
