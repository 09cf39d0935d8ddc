// SPDX-License-Identifier: Apache-2.0
// The one error type: a code a program can branch on, the place in the input, a sentence for a
// person.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace assay {

enum class Errc : uint8_t {
  Truncated,    // the bytes end before what they announce
  BadMagic,     // not a file of this format at all
  Unsupported,  // right format, a feature we refuse or do not know
  TooLarge,     // a size that overflows or exceeds a stated limit
  Invalid,      // contradicts itself or its specification
  NotFound,
  Permission,
  NoSpace,  // disk full, or the disk budget is used up
  Io,       // any other failure of the operating system
  Usage,    // the caller asked for something impossible
  Internal,
  Interrupted,  // the user stopped it
  Random,       // a result that cannot be predicted: it is made of random numbers
  WrongKind,  // an input of another kind than is needed: a file for a folder, no dump of operations
  NothingInCommon,  // two inputs of which no part belongs together
  NotCaptured,      // the run is without what is needed
};

/// The name used in messages, in Python (`assay.Error.code`) and in tests, for example "Truncated".
[[nodiscard]] std::string_view errc_name(Errc code);

struct Error {
  Errc code = Errc::Internal;
  std::string path;                // file or folder, empty when the bytes came from memory
  std::optional<uint64_t> offset;  // byte offset in that file
  std::string message;             // one sentence, no trailing dot
  bool named = false;              // the sentence names the operator that it is about

  /// "path: at byte 10: message"; the parts that are unknown are left out.
  [[nodiscard]] std::string describe() const;
  friend bool operator==(const Error&, const Error&) = default;
};

/// Puts the name of an operator in front of the message, unless it is named already.
[[nodiscard]] Error in_operator(std::string_view name, Error error);

/// An Errc::Io, NotFound, Permission or NoSpace error from an errno value: "cannot <action>:
/// <strerror>".
[[nodiscard]] Error errno_error(int errno_value, std::string_view action, std::string_view path);

}  // namespace assay
