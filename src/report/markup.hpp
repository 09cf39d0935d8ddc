// SPDX-License-Identifier: Apache-2.0
// Text inside XML and HTML.
#pragma once
#include <string>

namespace assay::report {

/// The character, or the entity that stands for it in text and in attributes.
inline void append_markup(char c, std::string* out) {
  switch (c) {
    case '&':
      *out += "&amp;";
      return;
    case '<':
      *out += "&lt;";
      return;
    case '>':
      *out += "&gt;";
      return;
    case '"':
      *out += "&quot;";
      return;
    default:
      *out += c;
  }
}

}  // namespace assay::report
