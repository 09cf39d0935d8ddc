// SPDX-License-Identifier: Apache-2.0
#include "formats/graph_text.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/numbers.hpp"
#include "base/utf8.hpp"

namespace assay::formats {
namespace {

constexpr size_t kMaxRank = 64;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_octal(char c) { return c >= '0' && c <= '7'; }

std::optional<uint32_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint32_t>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<uint32_t>(c - 'A') + 10;
  return std::nullopt;
}

/// Fields of messages, one after the other, straight from the text: nothing of a field is kept that its
/// reader does not ask for.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  [[nodiscard]] uint64_t offset() const { return at_; }

  /// Calls take(name) for each field up to the end of the message, with the reader behind the name.
  /// take() reads the value, or calls skip_value(). `close` is what ends the message; 0 at the top.
  template <typename Take>
  Status fields(char close, Take take) {
    for (;;) {
      skip_blanks();
      if (at_ == text_.size()) {
        if (close == 0) return {};
        return fail(Errc::Invalid, std::string("the text ends before a closing ") + close, at_);
      }
      if (close != 0 && text_[at_] == close) {
        ++at_;
        return {};
      }
      ASSAY_TRY(const std::string_view name, field_name());
      ASSAY_TRY_STATUS(take(name));
      skip_blanks();
      if (at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ';')) ++at_;
    }
  }

  /// A message, or a list of messages; read(close) reads the fields of one.
  template <typename Read>
  Status messages(Read read) {
    colon();
    return values([&] { return one_message(read); });
  }

  /// Scalars that stand behind a field's colon: a string, decoded, or the text of a number or a name.
  /// take(text) is called once, or for each of a list.
  template <typename Take>
  Status scalars(Take take) {
    if (!colon()) return fail(Errc::Invalid, "a value without a colon before it", at_);
    return values([&]() -> Status {
      ASSAY_TRY(const std::string value, scalar());
      return take(value);
    });
  }

  Status skip_value() {
    colon();
    return values([&]() -> Status {
      if (at_ < text_.size() && (text_[at_] == '{' || text_[at_] == '<')) {
        return one_message([&](char close) {
          return fields(close, [&](std::string_view) { return skip_value(); });
        });
      }
      return skip_scalar();
    });
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
        ++at_;
      } else {
        return;
      }
    }
  }

  bool colon() {
    skip_blanks();
    const bool found = at_ < text_.size() && text_[at_] == ':';
    if (found) ++at_;
    skip_blanks();
    return found;
  }

  /// "name", or "[package.extension]".
  Result<std::string_view> field_name() {
    const size_t start = at_;
    if (text_[at_] == '[') {
      const size_t end = text_.find(']', at_);
      if (end == std::string_view::npos)
        return fail(Errc::Invalid, "an extension's name without ]", at_);
      at_ = end + 1;
      return text_.substr(start, at_ - start);
    }
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    if (at_ == start) return fail(Errc::Invalid, "a field's name was expected", at_);
    return text_.substr(start, at_ - start);
  }

  /// One value, or [value, value].
  template <typename One>
  Status values(One one) {
    if (at_ == text_.size() || text_[at_] != '[') return one();
    ++at_;
    for (;;) {
      skip_blanks();
      if (at_ == text_.size()) return fail(Errc::Invalid, "the text ends inside a list", at_);
      if (text_[at_] == ']') {
        ++at_;
        return {};
      }
      ASSAY_TRY_STATUS(one());
      skip_blanks();
      if (at_ < text_.size() && text_[at_] == ',') {
        ++at_;
      } else if (at_ < text_.size() && text_[at_] != ']') {
        return fail(Errc::Invalid, "a comma or ] was expected in a list", at_);
      }
    }
  }

  template <typename Read>
  Status one_message(Read read) {
    if (at_ == text_.size() || (text_[at_] != '{' && text_[at_] != '<'))
      return fail(Errc::Invalid, "a message in {} or <> was expected", at_);
    if (depth_ == kMaxGraphTextDepth)
      return fail(Errc::TooLarge, "messages are nested deeper than 64", at_);
    const char close = text_[at_++] == '{' ? '}' : '>';
    ++depth_;
    ASSAY_TRY_STATUS(read(close));
    --depth_;
    return {};
  }

  Result<std::string> scalar() {
    std::string value;
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      ASSAY_TRY_STATUS(strings(&value));
    } else {
      ASSAY_TRY(const std::string_view word, literal());
      value = word;
    }
    return value;
  }

  Status skip_scalar() {
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) return strings(nullptr);
    ASSAY_TRY_STATUS(literal());
    return {};
  }

  /// A number or a name: "-1", "1e-5", "DT_FLOAT", "-inf", "- 1".
  Result<std::string_view> literal() {
    const size_t start = at_;
    if (at_ < text_.size() && text_[at_] == '-') {
      ++at_;
      skip_blanks();
    }
    const size_t body = at_;
    while (at_ < text_.size() &&
           (is_name_char(text_[at_]) || text_[at_] == '.' || text_[at_] == '+' ||
            (text_[at_] == '-' && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))) {
      ++at_;
    }
    if (at_ == body) return fail(Errc::Invalid, "a value was expected", at_);
    return text_.substr(start, at_ - start);
  }

  /// Strings that stand beside each other are one.
  Status strings(std::string* out) {
    do {
      ASSAY_TRY_STATUS(one_string(out));
      skip_blanks();
    } while (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\''));
    return {};
  }

  Status one_string(std::string* out) {
    const size_t start = at_;
    const char quote = text_[at_++];
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == quote) {
        ++at_;
        return {};
      }
      if (c == '\n') return fail(Errc::Invalid, "a string without its closing quote", start);
      if (c == '\\') {
        ASSAY_TRY_STATUS(escape(out));
      } else {
        if (out != nullptr) out->push_back(c);
        ++at_;
      }
    }
    return fail(Errc::Invalid, "the text ends inside a string", start);
  }

  Status escape(std::string* out) {
    std::string ignored;
    std::string& to = out != nullptr ? *out : ignored;
    const size_t start = at_++;
    if (at_ == text_.size()) return fail(Errc::Invalid, "the text ends inside an escape", start);
    const char kind = text_[at_++];
    constexpr std::string_view kKinds = "abfnrtv\\'\"?";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"?";
    if (const size_t simple = kKinds.find(kind); simple != std::string_view::npos) {
      to.push_back(kValues[simple]);
      return {};
    }
    if (is_octal(kind)) {
      uint32_t value = static_cast<uint32_t>(kind - '0');
      for (int digit = 1; digit < 3 && at_ < text_.size() && is_octal(text_[at_]); ++digit)
        value = value * 8 + static_cast<uint32_t>(text_[at_++] - '0');
      to.push_back(static_cast<char>(value));
      return {};
    }
    const bool is_byte = kind == 'x' || kind == 'X';
    if (!is_byte && kind != 'u' && kind != 'U')
      return fail(Errc::Invalid, "an unknown escape", start);
    const int most = is_byte ? 2 : kind == 'u' ? 4 : 8;
    uint32_t code = 0;
    int digits = 0;
    for (; digits < most && at_ < text_.size(); ++digits, ++at_) {
      const std::optional<uint32_t> digit = hex_digit(text_[at_]);
      if (!digit) break;
      code = code * 16 + *digit;
    }
    if (digits == 0 || (!is_byte && (digits != most || code > 0x10FFFF)))
      return fail(Errc::Invalid, "an escape without its digits", start);
    if (is_byte) {
      to.push_back(static_cast<char>(code));
    } else {
      append_utf8(code, &to);
    }
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

// ---- messages ------------------------------------------------------------------------------------

/// Keeps the text of a string field; the last one wins.
Status read_text(TextReader* reader, std::string* out) {
  return reader->scalars([out](const std::string& value) -> Status {
    *out = value;
    return {};
  });
}

std::optional<int64_t> integer_of(std::string value) {
  std::erase(value, ' ');
  const bool negative = value.starts_with('-');
  std::string_view digits = std::string_view(value).substr(negative ? 1 : 0);
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0X")) {
    base = 16;
    digits.remove_prefix(2);
  }
  uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty())
    return std::nullopt;
  if (magnitude > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

Result<int64_t> checked_integer(const TextReader& reader, const std::string& value) {
  if (const auto number = integer_of(value)) return *number;
  return fail(Errc::Invalid, "a whole number was expected", reader.offset());
}

Status read_list(TextReader* reader, char close, GraphAttribute* attribute) {
  return reader->fields(close, [&](std::string_view name) -> Status {
    if (name == "s" || name == "bt") {
      return reader->scalars([&](const std::string& value) -> Status {
        attribute->texts.push_back(value);
        return {};
      });
    }
    if (name == "i" || name == "dt") {
      return reader->scalars([&](const std::string& value) -> Status {
        ASSAY_TRY(const int64_t number, checked_integer(*reader, value));
        attribute->numbers.push_back(number);
        return {};
      });
    }
    return reader->skip_value();
  });
}

Status read_attribute_value(TextReader* reader, char close, GraphAttribute* attribute) {
  return reader->fields(close, [&](std::string_view name) -> Status {
    if (name == "list")
      return reader->messages([&](char end) { return read_list(reader, end, attribute); });
    if (name == "s" || name == "bt" || name == "expression") {
      attribute->text.emplace();
      return read_text(reader, &*attribute->text);
    }
    if (name == "i" || name == "dt") {
      return reader->scalars([&](const std::string& value) -> Status {
        ASSAY_TRY(attribute->number, checked_integer(*reader, value));
        return {};
      });
    }
    if (name == "f") {
      return reader->scalars([&](const std::string& value) -> Status {
        std::string_view digits = value;
        if (digits.ends_with('f') && !digits.ends_with("inf")) digits.remove_suffix(1);
        attribute->real = parse_number<double>(digits);
        return {};
      });
    }
    if (name == "b") {
      return reader->scalars([&](const std::string& value) -> Status {
        attribute->truth = value == "true" || value == "True" || value == "t" || value == "1";
        return {};
      });
    }
    return reader->skip_value();
  });
}

/// attr { key: "k" value { ... } }
Status read_attribute(TextReader* reader, char close, GraphAttributes* attributes) {
  std::string key;
  GraphAttribute value;
  ASSAY_TRY_STATUS(reader->fields(close, [&](std::string_view name) -> Status {
    if (name == "key") return read_text(reader, &key);
    if (name == "value")
      return reader->messages([&](char end) { return read_attribute_value(reader, end, &value); });
    return reader->skip_value();
  }));
  (*attributes)[key] = std::move(value);
  return {};
}

Status read_dims(TextReader* reader, char close, Dims* dims) {
  return reader->fields(close, [&](std::string_view name) -> Status {
    if (name != "dim") return reader->skip_value();
    return reader->scalars([&](const std::string& value) -> Status {
      ASSAY_TRY(const int64_t size, checked_integer(*reader, value));
      if (dims->size() == kMaxRank)
        return fail(Errc::TooLarge, "more than 64 dimensions", reader->offset());
      dims->push_back(size);
      return {};
    });
  });
}

Status read_descriptor(TextReader* reader, char close, GraphDescriptor* descriptor) {
  return reader->fields(close, [&](std::string_view name) -> Status {
    if (name == "name") return read_text(reader, &descriptor->name);
    if (name == "dtype") return read_text(reader, &descriptor->dtype);
    if (name == "layout") return read_text(reader, &descriptor->layout);
    if (name == "shape")
      return reader->messages([&](char end) { return read_dims(reader, end, &descriptor->shape); });
    if (name == "attr")
      return reader->messages(
          [&](char end) { return read_attribute(reader, end, &descriptor->attributes); });
    return reader->skip_value();
  });
}

Status read_op(TextReader* reader, char close, GraphOp* op) {
  const auto descriptor = [&](std::vector<GraphDescriptor>* list) {
    return reader->messages(
        [reader, list](char end) { return read_descriptor(reader, end, &list->emplace_back()); });
  };
  return reader->fields(close, [&](std::string_view name) -> Status {
    if (name == "name") return read_text(reader, &op->name);
    if (name == "type") return read_text(reader, &op->type);
    if (name == "input") {
      return reader->scalars([&](const std::string& value) -> Status {
        op->inputs.push_back(value);
        return {};
      });
    }
    if (name == "attr")
      return reader->messages(
          [&](char end) { return read_attribute(reader, end, &op->attributes); });
    if (name == "input_desc") return descriptor(&op->input_desc);
    if (name == "output_desc") return descriptor(&op->output_desc);
    return reader->skip_value();
  });
}

/// One field of a GraphDef.
Status read_graph_field(TextReader* reader, std::string_view name, GraphText* graph) {
  if (name == "name") return read_text(reader, &graph->name);
  if (name == "op")
    return reader->messages(
        [&](char end) { return read_op(reader, end, &graph->ops.emplace_back()); });
  return reader->skip_value();
}

}  // namespace

Result<std::vector<GraphText>> read_graph_text(std::string_view text) {
  TextReader reader(text);
  std::vector<GraphText> graphs;
  GraphText bare;
  ASSAY_TRY_STATUS(reader.fields(0, [&](std::string_view name) -> Status {
    if (name != "graph") return read_graph_field(&reader, name, &bare);
    return reader.messages([&](char close) {
      GraphText& graph = graphs.emplace_back();
      return reader.fields(
          close, [&](std::string_view field) { return read_graph_field(&reader, field, &graph); });
    });
  }));
  // The name of a model is not that of a graph.
  if (graphs.empty() || !bare.ops.empty()) graphs.insert(graphs.begin(), std::move(bare));
  return graphs;
}

std::pair<std::string_view, int64_t> split_graph_edge(std::string_view edge) {
  const size_t colon = edge.rfind(':');
  if (colon == std::string_view::npos) return {edge, 0};
  return {edge.substr(0, colon), parse_number<int64_t>(edge.substr(colon + 1)).value_or(0)};
}

}  // namespace assay::formats
