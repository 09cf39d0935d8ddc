// SPDX-License-Identifier: Apache-2.0
// A text of the graph engine as JSON, nothing left out.
#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "formats/protobuf_text.hpp"
#include "topology/ge_graph.hpp"

namespace assay::topology {
namespace {

using formats::TextDocument;
using Field = TextDocument::Field;

enum class Type : uint8_t {
  Model,
  Graph,
  Op,
  Descriptor,
  Shape,
  Tensor,
  Attribute,
  List,
  NamedAttributes,
  Lists,  // ListListInt and ListListFloat with their inner messages
  Unknown
};

enum class Repeat : uint8_t { Once, List, Map };

struct FieldRule {
  Type message;
  std::string_view name;
  Repeat repeat;
  Type content = Type::Unknown;  // of a message
};

// What is repeated, and which message a field holds. All else is written once if it stands once.
constexpr FieldRule kRules[] = {
    {Type::Model, "graph", Repeat::List, Type::Graph},
    {Type::Model, "attr", Repeat::Map, Type::Attribute},
    {Type::Graph, "input", Repeat::List},
    {Type::Graph, "output", Repeat::List},
    {Type::Graph, "op", Repeat::List, Type::Op},
    {Type::Graph, "attr", Repeat::Map, Type::Attribute},
    {Type::Op, "input", Repeat::List},
    {Type::Op, "attr", Repeat::Map, Type::Attribute},
    {Type::Op, "input_name", Repeat::List},
    {Type::Op, "src_name", Repeat::List},
    {Type::Op, "src_index", Repeat::List},
    {Type::Op, "dst_name", Repeat::List},
    {Type::Op, "dst_index", Repeat::List},
    {Type::Op, "input_i", Repeat::List},
    {Type::Op, "output_i", Repeat::List},
    {Type::Op, "workspace", Repeat::List},
    {Type::Op, "workspace_bytes", Repeat::List},
    {Type::Op, "is_input_const", Repeat::List},
    {Type::Op, "input_desc", Repeat::List, Type::Descriptor},
    {Type::Op, "output_desc", Repeat::List, Type::Descriptor},
    {Type::Op, "subgraph_name", Repeat::List},
    {Type::Descriptor, "shape", Repeat::Once, Type::Shape},
    {Type::Descriptor, "attr", Repeat::Map, Type::Attribute},
    {Type::Shape, "dim", Repeat::List},
    {Type::Tensor, "desc", Repeat::Once, Type::Descriptor},
    {Type::Attribute, "list", Repeat::Once, Type::List},
    {Type::Attribute, "func", Repeat::Once, Type::NamedAttributes},
    {Type::Attribute, "td", Repeat::Once, Type::Descriptor},
    {Type::Attribute, "t", Repeat::Once, Type::Tensor},
    {Type::Attribute, "g", Repeat::Once, Type::Graph},
    {Type::Attribute, "list_list_int", Repeat::Once, Type::Lists},
    {Type::Attribute, "list_list_float", Repeat::Once, Type::Lists},
    {Type::List, "s", Repeat::List},
    {Type::List, "i", Repeat::List},
    {Type::List, "f", Repeat::List},
    {Type::List, "b", Repeat::List},
    {Type::List, "bt", Repeat::List},
    {Type::List, "td", Repeat::List, Type::Descriptor},
    {Type::List, "t", Repeat::List, Type::Tensor},
    {Type::List, "g", Repeat::List, Type::Graph},
    {Type::List, "na", Repeat::List, Type::NamedAttributes},
    {Type::List, "dt", Repeat::List},
    {Type::NamedAttributes, "attr", Repeat::Map, Type::Attribute},
    {Type::Lists, "list_list_i", Repeat::List, Type::Lists},
    {Type::Lists, "list_list_f", Repeat::List, Type::Lists},
    {Type::Lists, "list_i", Repeat::List},
    {Type::Lists, "list_f", Repeat::List},
};

FieldRule rule_of(Type message, std::string_view name) {
  for (const FieldRule& rule : kRules) {
    if (rule.message == message && rule.name == name) return rule;
  }
  return {message, name, Repeat::Once};
}

/// Digits as JSON allows them: no leading zeros, no hexadecimal, nothing behind them.
bool is_json_number(std::string_view word) {
  size_t at = word.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const size_t start = at;
    while (at < word.size() && word[at] >= '0' && word[at] <= '9') ++at;
    return at - start;
  };
  const bool leading_zero = at < word.size() && word[at] == '0';
  const size_t whole = digits();
  if (whole == 0 || (leading_zero && whole > 1)) return false;
  if (at < word.size() && word[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
    ++at;
    if (at < word.size() && (word[at] == '+' || word[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == word.size();
}

class JsonWriter {
 public:
  explicit JsonWriter(const TextDocument& document) : document_(document) {}

  std::string run() && {
    const bool is_model = document_.find(0, "graph") != TextDocument::kNone;
    message(0, is_model ? Type::Model : Type::Graph);
    out_ += '\n';
    return std::move(out_);
  }

 private:
  /// Fields of one name stand together, where the first of them stood.
  void message(Field field, Type type) {
    std::vector<std::pair<std::string_view, std::vector<Field>>> fields;
    std::map<std::string_view, size_t> places;
    for (Field member = document_.first(field); member != TextDocument::kNone;
         member = document_.next(member)) {
      const std::string_view name = document_.name(member);
      const auto [place, is_new] = places.try_emplace(name, fields.size());
      if (is_new) fields.emplace_back(name, std::vector<Field>{});
      fields[place->second].second.push_back(member);
    }
    out_ += '{';
    for (size_t i = 0; i < fields.size(); ++i) {
      if (i > 0) out_ += ", ";
      out_ += json_quote(fields[i].first) + ": ";
      values(rule_of(type, fields[i].first), fields[i].second);
    }
    out_ += '}';
  }

  void values(const FieldRule& rule, const std::vector<Field>& fields) {
    if (rule.repeat == Repeat::Map) {
      map(rule, fields);
      return;
    }
    // A field of a known message that may stand once: the last one counts.
    const bool is_array =
        rule.repeat == Repeat::List || (rule.content == Type::Unknown && fields.size() > 1);
    if (!is_array) {
      value(rule, fields.back());
      return;
    }
    const bool in_lines = rule.content == Type::Op || rule.content == Type::Graph;
    out_ += '[';
    for (size_t i = 0; i < fields.size(); ++i) {
      if (i > 0) out_ += in_lines ? "," : ", ";
      if (in_lines) out_ += '\n';
      value(rule, fields[i]);
    }
    out_ += ']';
  }

  /// Entries by key; of two with one key the last counts, as protobuf has it.
  void map(const FieldRule& rule, const std::vector<Field>& entries) {
    std::map<std::string, Field> by_key;
    for (const Field entry : entries) {
      const Field key = document_.find(entry, "key");
      by_key[key == TextDocument::kNone ? "" : document_.string(key)] =
          document_.find(entry, "value");
    }
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, field] : by_key) {
      if (!is_first) out_ += ", ";
      is_first = false;
      out_ += json_quote(key) + ": ";
      if (field == TextDocument::kNone) {
        out_ += "{}";
      } else {
        value(rule, field);
      }
    }
    out_ += '}';
  }

  void value(const FieldRule& rule, Field field) {
    switch (document_.kind(field)) {
      case TextDocument::Kind::Message:
        message(field, rule.content);
        return;
      case TextDocument::Kind::String:
        string(rule.message == Type::Tensor && rule.name == "data", document_.string(field));
        return;
      case TextDocument::Kind::Word:
        word(field);
    }
  }

  void string(bool is_data, const std::string& bytes) {
    if (is_data || repair_utf8(bytes) != bytes) {
      out_ += "{\"base64\": \"" + base64(bytes) + "\"}";
    } else {
      out_ += json_quote(bytes);
    }
  }

  void word(Field field) {
    const std::string_view text = document_.text(field);
    if (text == "true" || text == "false" || is_json_number(text)) {
      out_ += text;
    } else if (const auto integer = document_.integer(field)) {
      out_ += std::to_string(*integer);
    } else if (const auto real = document_.real(field); real && *real - *real == 0.0) {  // finite
      out_ += json_number(*real);
    } else {
      out_ += json_quote(text);
    }
  }

  const TextDocument& document_;
  std::string out_;
};

}  // namespace

Result<std::string> ge_graph_json(std::string_view text) {
  ASSAY_TRY(const TextDocument document, TextDocument::parse(text));
  return JsonWriter(document).run();
}

}  // namespace assay::topology
