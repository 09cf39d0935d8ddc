// SPDX-License-Identifier: Apache-2.0
// One table for the whole process (base/intern_table.hpp); the empty text is handle 0 and is not
// looked up.
#include "base/interned_text.hpp"

#include "base/intern_table.hpp"

namespace assay {
namespace {

struct TextHash {
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// Never destroyed: objects that live until the process ends may hold handles.
InternTable<std::string, TextHash>& table() {
  static auto* const kTable = new InternTable<std::string, TextHash>;
  return *kTable;
}

}  // namespace

uint32_t InternedText::add(std::string_view text) { return text.empty() ? 0 : table().add(text); }
const std::string& InternedText::str() const { return table().at(handle_); }

}  // namespace assay
