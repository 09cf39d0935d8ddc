// SPDX-License-Identifier: Apache-2.0
// Sentences of errors, out of words, numbers, shapes and names of element types.
#pragma once
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.hpp"
#include "tensor/dims.hpp"
#include "tensor/dtype.hpp"

namespace assay {

inline void append_to(std::string& text, std::string_view words) { text += words; }
inline void append_to(std::string& text, std::span<const int64_t> list) { text += list_text(list); }
inline void append_to(std::string& text, const Dims& shape) { text += list_text(shape.span()); }
inline void append_to(std::string& text, DType dtype) { text += name(dtype); }
template <typename Number>
  requires std::is_arithmetic_v<Number>
void append_to(std::string& text, Number number) {
  text += std::to_string(number);
}

/// sentence("x has shape ", x.shape, ", ", count, " values are needed")
template <typename... Parts>
[[nodiscard]] std::string sentence(const Parts&... parts) {
  std::string text;
  (append_to(text, parts), ...);
  return text;
}

/// fail() with a sentence of several parts. Of two parts the second is no number: that is the
/// offset of base's fail().
template <typename First, typename Second, typename... Parts>
  requires(sizeof...(Parts) > 0 || !std::is_convertible_v<Second, std::optional<uint64_t>>)
[[nodiscard]] tl::unexpected<Error> fail(Errc code, const First& first, const Second& second,
                                         const Parts&... parts) {
  return fail(code, sentence(first, second, parts...));
}

}  // namespace assay
