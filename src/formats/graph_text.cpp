// SPDX-License-Identifier: Apache-2.0
// Of a text only what pairing needs is kept:
//
//   op { name: "add_1" type: "Add" input: "x:0" input: "y:0"             operators and who makes their inputs
//     output_desc { name: "y" dtype: DT_FLOAT shape { dim: 2 }           types and shapes
//       attr { key: "_fx_tensor_name" value { s: "add-aten.add.Tensor.OUTPUT.0" } } } }
#include "formats/graph_text.hpp"

#include <utility>

#include "base/numbers.hpp"
#include "formats/protobuf_text.hpp"

namespace assay::formats {
namespace {

constexpr size_t kMaxRank = 64;

// ---- messages -----------------------------------------------------------------------------------

/// Keeps the text of a string field; the last one wins.
Status read_text(TextReader* reader, std::string* out) {
  return reader->scalars([out](const std::string& value) -> Status {
    *out = value;
    return {};
  });
}

Result<int64_t> checked_integer(const TextReader& reader, const std::string& value) {
  if (const auto number = text_integer(value)) return *number;
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
        attribute->real = text_real(value);
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
