// SPDX-License-Identifier: Apache-2.0
// One object converts one dump file: a single operand, an overflow report, or all tensors, buffers
// and workspaces. What fails is noted with the original's code, and the rest goes on.
#include "cli/convert/dump_converter.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/ascii.hpp"
#include "base/mapped_file.hpp"
#include "base/text.hpp"
#include "cli/convert/format_script.hpp"
#include "cli/convert/numpy_tensor.hpp"
#include "cli/tensor_files.hpp"
#include "formats/overflow_report.hpp"
#include "run/folder.hpp"
#include "run/ge_names.hpp"

namespace assay::cli {
namespace {

using formats::CannDump;
using formats::CannTensor;

constexpr int32_t kLogSpace = 0;

/// What the original answers to an error of ours while it handles a tensor.
ConvertCode code_of(const Error& error) {
  switch (error.code) {
    case Errc::Unsupported:
      return ConvertCode::InvalidDataType;
    case Errc::Truncated:
      return ConvertCode::SizeMismatch;
    case Errc::NotFound:
      return ConvertCode::InvalidPath;
    case Errc::NoSpace:
    case Errc::Permission:
    case Errc::Io:
      return ConvertCode::WriteFile;
    default:
      return ConvertCode::InvalidDumpData;
  }
}

/// Text that a log space holds, without the zeros that fill it; nothing when it is no text.
std::optional<std::string> log_text(ByteSpan space) {
  std::string text;
  for (const char c : as_text(space)) {
    if (c == '\0') continue;
    const bool harmless =
        static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t' || c == '\r';
    if (!harmless) return std::nullopt;
    text += c;
  }
  if (text.empty() || repair_utf8(text) != text) return std::nullopt;
  return text;
}

/// Shape that one thread of a fused task worked on: attribute JSON {"input_tensor_slice": [thread
/// [operand [{"lower": 0, "higher": 8}, ...]]]}. Nothing when it is not told, or does not fit the
/// bytes.
std::optional<Dims> thread_shape(const CannDump& dump, uint64_t thread, bool is_input, size_t index,
                                 const CannTensor& tensor) {
  using nlohmann::json;
  const char* const key = is_input ? "input_tensor_slice" : "output_tensor_slice";
  for (const formats::CannAttribute& attribute : dump.attributes) {
    if (attribute.value.find(key) == std::string::npos) continue;
    const json slices = json::parse(attribute.value, nullptr, false);
    if (!slices.is_object() || !slices.contains(key)) continue;
    const json& threads = slices[key];
    if (!threads.is_array() || thread >= threads.size() || !threads[thread].is_array() ||
        index >= threads[thread].size() || !threads[thread][index].is_array())
      continue;
    Dims shape;
    for (const json& range : threads[thread][index]) {
      if (!range.is_object() || !range.contains("lower") || !range.contains("higher") ||
          !range["lower"].is_number_integer() || !range["higher"].is_number_integer())
        return std::nullopt;
      const auto lower = range["lower"].get<int64_t>();
      const auto higher = range["higher"].get<int64_t>();
      if (lower < 0 || higher < lower) return std::nullopt;
      shape.push_back(higher - lower);
    }
    const auto dtype = formats::dtype_from_cann(tensor.data_type);
    const auto count = element_count(shape);
    const auto bytes =
        dtype && count ? storage_bytes(*dtype, static_cast<uint64_t>(*count)) : std::nullopt;
    if (bytes && *bytes <= tensor.data.size()) return shape;
  }
  return std::nullopt;
}

/// MindSpore's names have the operator's own name without the scopes in front of it.
std::string msnpy_name(const std::string& dump_name, const std::string& op_name) {
  constexpr size_t kParts = 5;  // type, name, task, stream, time
  std::vector<std::string_view> parts = split(dump_name, '.');
  if (parts.size() != kParts || op_name.empty()) return dump_name;
  std::string last = op_name.substr(op_name.rfind('/') + 1);
  std::replace_if(
      last.begin(), last.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\\' || c == 0x7F; }, '_');
  parts[1] = last;
  std::string name;
  for (const std::string_view part : parts) name += (name.empty() ? "" : ".") + std::string(part);
  return name;
}

}  // namespace

Result<OpenDump> open_dump(const std::string& path) {
  ASSAY_TRY(MappedFile file, MappedFile::open(path));
  ASSAY_TRY(formats::CannDump dump, in_file(path, formats::read_cann_dump(file.bytes())));
  return OpenDump{std::move(file), std::move(dump)};
}

std::string operand_file_stem(const std::string& dump_name, bool is_input, size_t index) {
  return dump_name + (is_input ? ".input." : ".output.") + std::to_string(index);
}

std::string raw_file_ending(const Dims& shape, DType dtype, std::string_view format) {
  std::string ending = ".";
  for (size_t axis = 0; axis < shape.size(); ++axis)
    ending += (axis > 0 ? "_" : "") + std::to_string(shape[axis]);
  return ending + "." + std::string(name(dtype)) + "." + std::string(format) + ".bin";
}

Result<std::string> overflow_json(ByteSpan payload) {
  ASSAY_TRY(const formats::OverflowReport report, formats::read_overflow_report(payload));
  return formats::overflow_report_json(report);
}

/// The conversion of one file.
class DumpConverter::File {
 public:
  File(const DumpConverter& converter, const std::string& path, const std::string& folder)
      : options_(converter.conversion_),
        names_(*converter.names_),
        budget_(*converter.budget_),
        path_(path),
        name_(run::base_name(path)),
        folder_(folder) {}

  DumpOutcome convert() {
    Result<MappedFile> file = MappedFile::open(path_);
    if (!file) {
      problem("", file.error(), ConvertCode::InvalidPath);
      return std::move(outcome_);
    }
    Result<CannDump> dump = formats::read_cann_dump(file->bytes());
    if (!dump) {
      const bool is_nano =
          file->bytes().size() >= 12 && load<uint32_t>(file->bytes().data() + 8) == 0x5A5A5A5A;
      problem("", dump.error(), is_nano ? ConvertCode::NanoParse : ConvertCode::ParseDumpFile);
      return std::move(outcome_);
    }
    dump_ = *std::move(dump);
    outcome_.warnings = dump_.warnings;
    if (options_.operand) {
      one_operand(*options_.operand);
    } else if (is_overflow_report()) {
      overflow_reports();
    } else {
      everything();
    }
    return std::move(outcome_);
  }

 private:
  bool is_overflow_report() const {
    const auto name = run::parse_ge_file_name(name_);
    return name && name->kind == run::GeFileKind::Overflow;
  }

  void problem(const std::string& operand, Error error, ConvertCode code) {
    if (error.path.empty()) error.path = path_;
    outcome_.problems.push_back({operand, std::move(error), code});
  }

  void one_operand(const DumpConversion::Operand& wanted) {
    const auto& tensors = wanted.is_input ? dump_.inputs : dump_.outputs;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const size_t index = formats::cann_operand_index(dump_, tensors[i], i);
      if (index == wanted.index) return tensor(tensors[i], wanted.is_input, index);
    }
    const std::string side = wanted.is_input ? "input" : "output";
    problem("",
            {Errc::Usage, path_, std::nullopt,
             "has " + std::to_string(tensors.size()) + " " + side + "s, there is no " + side + " " +
                 std::to_string(wanted.index)},
            ConvertCode::InvalidParameter);
  }

  void everything() {
    for (const bool is_input : {true, false}) {
      const auto& tensors = is_input ? dump_.inputs : dump_.outputs;
      for (size_t i = 0; i < tensors.size(); ++i)
        tensor(tensors[i], is_input, formats::cann_operand_index(dump_, tensors[i], i));
    }
    for (size_t i = 0; i < dump_.buffers.size(); ++i) {
      const bool is_l1 = dump_.buffers[i].type == 0;
      bytes(dump_.buffers[i], "buffer:" + std::to_string(i),
            name_ + (is_l1 ? ".l1buffer." : ".buffer.") + std::to_string(i) + ".bin");
    }
    for (size_t i = 0; i < dump_.workspaces.size(); ++i) {
      const formats::CannBuffer& space = dump_.workspaces[i];
      const std::string operand = "space:" + std::to_string(i);
      bytes(space, operand, name_ + ".space." + std::to_string(i) + ".bin");
      const auto text = space.type == kLogSpace ? log_text(space.data) : std::nullopt;
      if (text)
        write(operand, name_ + "." + std::to_string(i) + ".log", ".log",
              [&](const std::string& path) {
                return write_pieces_file(path, {as_bytes(*text)}, options_.mode);
              });
    }
  }

  void overflow_reports() {
    for (size_t i = 0; i < dump_.outputs.size(); ++i) {
      const std::string operand = "output:" + std::to_string(i);
      const Result<std::string> text = overflow_json(dump_.outputs[i].data);
      if (!text) {
        problem(operand, text.error(), ConvertCode::InvalidDumpData);
        continue;
      }
      write(operand, operand_file_stem(name_, false, i) + ".json", ".json",
            [&](const std::string& path) {
              return write_pieces_file(path, {as_bytes(*text)}, options_.mode);
            });
    }
  }

  void bytes(const formats::CannBuffer& buffer, const std::string& operand,
             const std::string& name) {
    if (!buffer.problem.empty()) {
      problem(operand, {Errc::Truncated, path_, std::nullopt, buffer.problem},
              ConvertCode::SizeMismatch);
      return;
    }
    write(operand, name, ".bin", [&](const std::string& path) {
      return write_pieces_file(path, {buffer.data}, options_.mode);
    });
  }

  template <typename Write>
  void write(const std::string& operand, const std::string& name, std::string_view suffix,
             Write write_to) {
    const Result<std::string> fitted = names_.fit(folder_, name, suffix);
    if (!fitted) return problem(operand, fitted.error(), ConvertCode::WriteFile);
    const std::string path = run::join_path(folder_, *fitted);
    if (const Status written = write_to(path); !written) {
      problem(operand, written.error(), code_of(written.error()));
    } else {
      outcome_.files.push_back(path);
    }
  }

  /// The tensor as it is to be written, and the format it is in then.
  Result<Tensor> prepared(const CannTensor& stored, bool is_input, size_t index, int32_t* format,
                          ConvertCode* code) {
    *format = stored.format;
    *code = ConvertCode::InvalidFormat;
    if (options_.layout && real_format(stored) != options_.layout->format) {
      if (const auto script =
              format_script(options_.script_folder, stored.format, options_.layout->format)) {
        *format = options_.layout->format;
        return run_format_script(*script, stored, *options_.layout);
      }
      Result<Tensor> converted = tensor_in_layout(stored, *options_.layout);
      if (converted && real_format(stored) != 2) *format = options_.layout->format;
      return converted;
    }
    *code = ConvertCode::InvalidDumpData;
    CannTensor described = stored;
    const auto file_name = run::parse_ge_file_name(name_);
    if (file_name && file_name->thread) {
      if (const auto shape = thread_shape(dump_, *file_name->thread, is_input, index, stored))
        described.shape = *shape;
    }
    // A view of the stored elements; for types that have none, such as packed bits, what they
    // unpack to.
    const Result<TensorView> view = formats::cann_stored_view(described);
    if (view) return Tensor{*view, nullptr};
    described.original_shape.reset();
    return formats::cann_tensor(described);
  }

  void tensor(const CannTensor& stored, bool is_input, size_t index) {
    const std::string operand = (is_input ? "input:" : "output:") + std::to_string(index);
    if (!stored.problem.empty() && stored.data.empty() && stored.size_bytes > 0)
      return problem(operand,
                     {Errc::Truncated, path_, std::nullopt, operand + ": " + stored.problem},
                     ConvertCode::SizeMismatch);
    // At most eight bytes of memory for a byte of the file: bits that become bytes.
    const uint64_t held = uint64_t{stored.data.size()} * (options_.layout ? 2 : 1);
    const bool copies = options_.layout || !formats::cann_stored_view(stored) ||
                        !is_numpy_dtype(formats::cann_stored_view(stored)->dtype);
    const ByteBudget::Share share(budget_, copies ? held * 4 : 0);
    int32_t format = 0;
    ConvertCode code = ConvertCode::InvalidDumpData;
    Result<Tensor> values = prepared(stored, is_input, index, &format, &code);
    if (values) {
      code = ConvertCode::InvalidDumpData;
      values = numpy_tensor(*values);
    }
    if (!values) {
      const bool is_type =
          values.error().code == Errc::Unsupported && code == ConvertCode::InvalidDumpData;
      Error error = values.error();
      error.message = operand + ": " + error.message;
      return problem(operand, error, is_type ? ConvertCode::InvalidDataType : code);
    }
    write_tensor(operand, is_input, index, values->view, format);
  }

  void write_tensor(const std::string& operand, bool is_input, size_t index, const TensorView& view,
                    int32_t format) {
    const std::string format_name = formats::cann_format_name(format);
    std::string stem = operand_file_stem(name_, is_input, index);
    std::string ending;
    TensorFileFormat kind = TensorFileFormat::Npy;
    switch (options_.target) {
      case DumpTarget::Npy:
        // With a layout the original adds the shape that came out.
        if (options_.layout) {
          stem += ".";
          for (size_t axis = 0; axis < view.shape.size(); ++axis)
            stem += (axis > 0 ? "x" : "") + std::to_string(view.shape[axis]);
        }
        ending = ".npy";
        break;
      case DumpTarget::Msnpy:
        stem = operand_file_stem(msnpy_name(name_, dump_.op_name), is_input, index);
        ending = "." + format_name + ".npy";
        break;
      case DumpTarget::Pt:
        ending = ".pt";
        kind = TensorFileFormat::Pth;
        break;
      case DumpTarget::Bin:
        ending = raw_file_ending(view.shape, view.dtype, format_name);
        kind = TensorFileFormat::Bin;
        break;
    }
    const std::string_view suffix = std::string_view(ending).substr(ending.rfind('.'));
    write(operand, stem + ending, suffix, [&](const std::string& path) {
      return write_tensor_file(path, kind, view, options_.mode);
    });
  }

  const DumpConversion& options_;
  LongNames& names_;
  ByteBudget& budget_;
  const std::string path_;
  const std::string name_;
  const std::string folder_;
  CannDump dump_;  // borrows the mapped file, which convert() holds
  DumpOutcome outcome_;
};

DumpConverter::DumpConverter(DumpConversion conversion, LongNames* names, ByteBudget* budget)
    : conversion_(std::move(conversion)), names_(names), budget_(budget) {}

DumpOutcome DumpConverter::convert(const std::string& path, const std::string& folder) const {
  return File(*this, path, folder).convert();
}

}  // namespace assay::cli
