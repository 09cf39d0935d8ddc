// SPDX-License-Identifier: Apache-2.0
// What each bind_*.cpp adds to assay._core. Each registers its types and functions and nothing
// else.
#pragma once
#include <nanobind/nanobind.h>

#include <string_view>

#include "base/file_changes.hpp"
#include "base/result.hpp"

namespace assay::python {

void be_quiet_at_exit();
void bind_errors(nanobind::module_& m);
void bind_formats(nanobind::module_& m);
void bind_run(nanobind::module_& m);
void bind_compare(nanobind::module_& m);
void bind_topology(nanobind::module_& m);
void bind_remote();                       // adds no names
void bind_opcheck(nanobind::module_& m);  // of assay._opcheck
void bind_locate(nanobind::module_& m);   // of assay._opcheck
void bind_repeat(nanobind::module_& m);   // of assay._opcheck
void bind_verdict(nanobind::module_& m);  // of assay._opcheck, too

/// Text from files and folder names need not be UTF-8: other bytes become lone surrogates, as
/// os.fsdecode() has them.
inline nanobind::str to_str(std::string_view text) {
  return nanobind::steal<nanobind::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}
/// The same for sentences, which people print: other bytes become "\\x80".
inline nanobind::str to_message(std::string_view text) {
  return nanobind::steal<nanobind::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

/// Raises assay.errors.Error (or its subclass for the code) for a failed Result; otherwise gives
/// its value.
[[noreturn]] void raise(const Error& error);
template <typename T>
T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// Runs `work`, which gives a Result, without the GIL. Raises when a file changed while `work` read
/// it.
template <typename Work>
auto read_without_gil(Work&& work) {
  auto result = [&] {
    const nanobind::gil_scoped_release released;
    const ReadingScope reading;
    auto done = work();
    if (const Status unchanged = reading.finish(); !unchanged) done = fail(unchanged.error());
    return done;
  }();
  return value_or_raise(std::move(result));
}

}  // namespace assay::python
