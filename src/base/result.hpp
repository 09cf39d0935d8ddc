// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error. Only the calls that std::expected has too may be used.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <tl/expected.hpp>
#include <utility>

#include "base/error.hpp"

namespace assay {

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

/// The failed side of a Result: `return fail(Errc::Truncated, "the header ends early", offset);`
[[nodiscard]] inline tl::unexpected<Error> fail(Errc code, std::string message,
                                                std::optional<uint64_t> offset = std::nullopt) {
  return tl::unexpected<Error>(Error{code, {}, offset, std::move(message)});
}
[[nodiscard]] inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

/// Adds the file name to an error that does not have one yet.
template <typename T>
[[nodiscard]] Result<T> in_file(std::string_view path, Result<T> result) {
  if (!result && result.error().path.empty()) result.error().path = std::string(path);
  return result;
}

}  // namespace assay

#define ASSAY_CONCAT_INNER(a, b) a##b
#define ASSAY_CONCAT(a, b) ASSAY_CONCAT_INNER(a, b)
#define ASSAY_TRY_INNER(result, declaration, ...)               \
  auto result = (__VA_ARGS__);                                  \
  if (!result) return ::assay::fail(std::move(result).error()); \
  declaration = *std::move(result)
/// ASSAY_TRY(auto header, read_header(bytes)): on an error returns it from the enclosing function.
#define ASSAY_TRY(declaration, ...) \
  ASSAY_TRY_INNER(ASSAY_CONCAT(assay_try_, __LINE__), declaration, __VA_ARGS__)
/// The same for a Status, or for a Result whose value is not needed.
#define ASSAY_TRY_STATUS(...)                                     \
  do {                                                            \
    if (auto assay_try_status = (__VA_ARGS__); !assay_try_status) \
      return ::assay::fail(std::move(assay_try_status).error());  \
  } while (false)
/// A programmer's mistake in a tool or a test; never used on data from outside, nor in code that
/// runs in a host.
#define ASSAY_CHECK(condition, why)                                                               \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      std::fprintf(stderr, "%s:%d: check failed: %s (%s)\n", __FILE_NAME__, __LINE__, #condition, \
                   why);                                                                          \
      std::abort();                                                                               \
    }                                                                                             \
  } while (false)
