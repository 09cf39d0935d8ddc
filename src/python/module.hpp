// SPDX-License-Identifier: Apache-2.0
// What each bind_*.cpp adds to assay._core. Each registers its types and functions and nothing
// else.
#pragma once
#include <string_view>

#include "base/file_changes.hpp"
#include "base/result.hpp"
#include "python/binding/class.hpp"

namespace assay::python {

void bind_errors();  // adds no names
void bind_formats(binding::Module& m);
void bind_run(binding::Module& m);
void bind_compare(binding::Module& m);
void bind_topology(binding::Module& m);
void bind_remote();                     // adds no names
void bind_opcheck(binding::Module& m);  // of assay._opcheck
void bind_locate(binding::Module& m);   // of assay._opcheck
void bind_repeat(binding::Module& m);   // of assay._opcheck
void bind_verdict(binding::Module& m);  // of assay._opcheck, too

/// Text from files and folder names need not be UTF-8: other bytes become lone surrogates, as
/// os.fsdecode() has them.
inline binding::Str to_str(std::string_view text) {
  return binding::Str(binding::checked(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape")));
}
/// The same for sentences, which people print: other bytes become "\\x80".
inline binding::Str to_message(std::string_view text) {
  return binding::Str(binding::checked(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace")));
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
    const binding::GilReleased released;
    const ReadingScope reading;
    auto done = work();
    if (const Status unchanged = reading.finish(); !unchanged) done = fail(unchanged.error());
    return done;
  }();
  return value_or_raise(std::move(result));
}

}  // namespace assay::python
