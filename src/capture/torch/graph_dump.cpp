// SPDX-License-Identifier: Apache-2.0
// From the operands of an operator to its file in the queue: look, admit, copy or reduce, submit.
#include "capture/torch/graph_dump.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "capture/intake/take.hpp"
#include "capture/torch/python_compat.hpp"
#include "formats/cann_dump.hpp"
#include "formats/crc32.hpp"
#include "formats/npy.hpp"
#include "formats/pth.hpp"

namespace assay::capture {
namespace {

using formats::CannDump;
using formats::CannTensor;
using writer::FilePiece;

// Releasing the GIL and taking it again costs about as much as copying this.
constexpr uint64_t kReleaseGilBytes = 1u << 20;
// What a queued job costs beside the tensors' bytes, so that jobs without bytes are bounded too.
constexpr uint64_t kJobBytes = 1024;
constexpr size_t kMaxMissed = 1 << 16;  // different entries between two calls of take_missed()

bool is_plain(const TensorView& view) {
  return view.is_contiguous() && !view.conjugate && !view.negative;
}

std::string operand_text(const GraphOperand& operand) {
  return (operand.is_input ? "input " : "output ") + std::to_string(operand.index);
}
std::string operand_key(const char* prefix, const GraphOperand& operand) {
  return prefix + std::string(operand.is_input ? ".input." : ".output.") +
         std::to_string(operand.index);
}

std::string file_name(const DumpedOperator& op, uint64_t time_us) {
  return writer::ge_file_name(op.op_type, op.file_op_name.empty() ? op.op_name : op.file_op_name,
                              op.task_id, op.stream_id, time_us);
}

// What the host's thread finds out of an operand; the writer's makes the row.
struct Statistics {
  bool is_input = true;
  uint32_t index = 0;
  bool known = false;
  std::string dtype_name;
  DType dtype = DType::Float32;
  Dims shape;
  stats::TensorStats values;

  [[nodiscard]] formats::CannStatisticsRow row() const {
    if (known) return formats::cann_statistics_row(is_input, index, dtype, shape, values);
    formats::CannStatisticsRow unknown;
    unknown.is_input = is_input;
    unknown.index = index;
    const auto number = formats::cann_from_dtype(dtype);
    unknown.data_type =
        number && !dtype_name.empty() ? formats::cann_dtype_name(*number) : "UNKNOW";
    unknown.format = "ND";
    unknown.shape = shape;
    return unknown;
  }
};

struct PathParts {
  std::string folder, name;
};
Result<PathParts> parts_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == path.size())
    return fail(Error{Errc::Usage, path, std::nullopt, "is not an absolute path of a file"});
  return PathParts{path.substr(0, slash), path.substr(slash + 1)};
}

// bf16 is the upper half of a float32, so widening is a 16-bit shift and never rounds.
void widen_bfloat16_in_place(std::span<std::byte> floats) {
  const size_t count = floats.size() / 4;
  for (size_t i = count; i-- > 0;) {
    const auto upper = load<uint16_t>(floats.data() + i * 2);
    const uint32_t wide = static_cast<uint32_t>(upper) << 16;
    std::memcpy(floats.data() + i * 4, &wide, 4);
  }
}

}  // namespace

/// What is known of an operand between the look and the copy.
struct GraphDump::Look {
  const GraphOperand* operand = nullptr;
  Ref tensor;  // kept alive
  bool readable = false;
  const char* reason = "";
  std::string dtype_name;
  TensorView view;
  uint64_t size_bytes = 0;
};

/// A dump file in the queue. `dump` borrows the payload, or tensors that the waiting caller keeps
/// alive.
struct GraphDump::Job {
  std::string folder, name;
  CannDump dump;
  BufferPool::Buffer payload;
  std::vector<TensorView> borrowed;

  [[nodiscard]] Status write(writer::GeTree& tree) const {
    ASSAY_TRY(const std::vector<std::byte> header, formats::cann_dump_header(dump));
    std::vector<FilePiece> pieces{{header}};
    if (!payload.span().empty()) pieces.push_back({payload.span()});
    for (const TensorView& view : borrowed) {
      if (view.element_count() == 0) continue;
      pieces.push_back(is_plain(view) ? FilePiece{view.contiguous_bytes()} : FilePiece{{}, &view});
    }
    return tree.write(folder, name, pieces);
  }
};

GraphDump::GraphDump(TensorAccess& access, writer::AsyncWriterOptions options)
    : access_(access),
      queue_bytes_(options.queue_bytes),
      writer_(std::make_unique<writer::AsyncWriter>(options)),
      tree_(std::make_shared<writer::GeTree>()),
      buffers_(options.queue_bytes) {}

GraphDump::~GraphDump() { close(); }

bool GraphDump::live() const { return !closed_ && writer_->alive() && !tree_->stopped(); }

std::string GraphDump::write_operator(const DumpedOperator& op) {
  if (!live()) return {};
  std::vector<Look> looks;
  looks.reserve(op.operands.size());
  for (const GraphOperand& operand : op.operands) {
    Look look;
    if (!look_at(operand, &look)) miss(op, operand_text(operand) + ": " + std::string(look.reason));
    looks.push_back(std::move(look));
  }
  const uint64_t time_us = writer::unique_time_us();
  return op.statistics ? submit_statistics(op, looks, time_us) : submit_tensors(op, looks, time_us);
}

bool GraphDump::look_at(const GraphOperand& operand, Look* out) {
  out->operand = &operand;
  out->tensor = Ref(new_ref(operand.tensor));
  TensorLook look;
  access_.look(operand.tensor, look);
  if (look.dtype_name != nullptr) {
    out->dtype_name = look.dtype_name;
    out->view.dtype = look.dtype;
  }
  if (look.has_shape) out->view.shape = Dims(look.sizes());
  out->reason = look.readable == Readable::Device
                    ? "on a device: it must be copied to the host first"
                    : look.reason;
  if (look.readable != Readable::Memory) return false;
  if (!access_.storage_covers(operand.tensor, look)) {
    out->reason = "its storage is smaller than its shape";
    return false;
  }
  out->view = view_of(look);
  out->size_bytes = payload_bytes(look);
  out->readable = true;
  return true;
}

void GraphDump::miss(const DumpedOperator& op, std::string reason) {
  auto key = std::tuple(op.folder, op.op_name, std::move(reason));
  if (missed_.size() >= kMaxMissed && !missed_.contains(key)) return;
  ++missed_[std::move(key)];
}

std::vector<GraphMiss> GraphDump::take_missed() {
  std::vector<GraphMiss> result;
  for (const auto& [key, count] : missed_)
    result.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), count});
  missed_.clear();
  return result;
}

bool GraphDump::admit(uint64_t size_bytes) {
  const GilReleased released(writer_->would_wait(size_bytes));
  return writer_->admit(size_bytes);
}

// For a copy that was admitted; without memory the admitted bytes come back, and the file counts as
// failed.
bool GraphDump::take_buffer(const std::string& path, uint64_t size_bytes,
                            BufferPool::Buffer* buffer) {
  *buffer = buffers_.take(size_bytes);
  if (buffer->bytes != nullptr) return true;
  (void)writer_->submit(size_bytes + kJobBytes, [path] {
    return fail(Error{Errc::Internal, path, std::nullopt, "no memory for a copy"});
  });
  return false;
}

std::string GraphDump::submit_statistics(const DumpedOperator& op, const std::vector<Look>& looks,
                                         uint64_t time_us) {
  struct Table {
    std::string folder, name;
    std::vector<formats::CannStatistic> chosen;
    std::vector<Statistics> operands;
  };
  const auto table = std::make_shared<Table>();
  table->folder = op.folder;
  table->name = file_name(op, time_us) + ".csv";
  table->chosen = *op.statistics;
  uint64_t total_bytes = 0;
  for (const Look& look : looks) total_bytes += look.size_bytes;
  {
    const GilReleased released(total_bytes >= kReleaseGilBytes);
    for (const Look& look : looks) {
      Statistics& of = table->operands.emplace_back(Statistics{look.operand->is_input,
                                                               look.operand->index,
                                                               look.readable,
                                                               look.dtype_name,
                                                               look.view.dtype,
                                                               look.view.shape,
                                                               {}});
      if (look.readable) of.values = statistics_of(look.view);
    }
  }
  const std::string path = op.folder + "/" + writer::ge_stored_name(table->name);
  if (!admit(kJobBytes)) return {};
  const bool queued = writer_->submit(kJobBytes, [tree = tree_, table]() -> Status {
    std::vector<formats::CannStatisticsRow> rows;
    for (const Statistics& of : table->operands) rows.push_back(of.row());
    const std::string text = formats::write_cann_statistics(rows, table->chosen);
    const FilePiece piece{as_bytes(text)};
    return tree->write(table->folder, table->name, std::span(&piece, 1));
  });
  return queued ? path : std::string();
}

std::string GraphDump::submit_tensors(const DumpedOperator& op, const std::vector<Look>& looks,
                                      uint64_t time_us) {
  const auto job = std::make_shared<Job>();
  job->folder = op.folder;
  job->name = file_name(op, time_us);
  CannDump& dump = job->dump;
  dump.version = "2.0";
  dump.dump_time_us = time_us;
  dump.op_name = op.op_name;
  dump.message = op.message;
  dump.attributes = op.attributes;
  dump.has_operand_indices = op.left_out;
  uint64_t total_bytes = 0;
  for (const Look& look : looks) {
    if (!look.readable) {
      dump.has_operand_indices = true;
      dump.attributes.push_back({operand_key("assay_missing", *look.operand), look.reason});
      continue;
    }
    total_bytes += look.size_bytes;
    CannTensor tensor;
    const auto number = formats::cann_from_dtype(look.view.dtype);
    tensor.data_type = number.value_or(0);
    if (!number || look.dtype_name != name(look.view.dtype))
      dump.attributes.push_back({operand_key("assay_dtype", *look.operand), look.dtype_name});
    tensor.format = formats::kCannFormatNd;
    tensor.shape = formats::cann_shape(look.view.dtype, look.view.shape);
    tensor.original_shape = tensor.shape;
    tensor.size_bytes = look.size_bytes;
    tensor.arg_index = look.operand->index;
    tensor.origin = look.operand->origin;
    (look.operand->is_input ? dump.inputs : dump.outputs).push_back(std::move(tensor));
  }
  if (!dump.has_operand_indices) {
    for (CannTensor& tensor : dump.inputs) tensor.arg_index = 0;
    for (CannTensor& tensor : dump.outputs) tensor.arg_index = 0;
  }
  const std::string path = op.folder + "/" + writer::ge_stored_name(job->name);
  if (!admit(total_bytes + kJobBytes)) return {};
  const bool copy = total_bytes <= queue_bytes_;
  if (copy && !take_buffer(path, total_bytes, &job->payload)) return {};
  {
    const GilReleased released(copy && total_bytes >= kReleaseGilBytes);
    uint64_t at = 0;
    size_t input = 0, output = 0;
    for (const Look& look : looks) {
      if (!look.readable) continue;
      CannTensor& tensor = look.operand->is_input ? dump.inputs[input++] : dump.outputs[output++];
      if (copy) {
        const std::span<std::byte> target = job->payload.span().subspan(at, look.size_bytes);
        copy_elements(look.view, target);
        tensor.data = target;
        at += look.size_bytes;
      } else {
        job->borrowed.push_back(look.view);
        // The header needs the length alone.
        tensor.data = ByteSpan(look.view.storage.data(), look.size_bytes);
      }
    }
  }
  const bool queued =
      writer_->submit(total_bytes + kJobBytes, [tree = tree_, job] { return job->write(*tree); });
  if (queued && !copy) {
    const GilReleased released(true);
    writer_->flush();
  }
  return queued ? path : std::string();
}

Status GraphDump::write_array(const std::string& path, PyObject* tensor, bool widen_bfloat16) {
  ASSAY_TRY(const PathParts parts, parts_of(path));
  if (!live()) return {};
  DumpedOperator op;
  op.folder = parts.folder;
  op.op_name = parts.name;
  GraphOperand operand;
  operand.tensor = tensor;
  operand.is_input = false;
  Look look;
  if (!look_at(operand, &look)) {
    miss(op, look.reason);
    return {};
  }
  const bool pth = path.ends_with(".pth") || path.ends_with(".pt");
  const bool widen = widen_bfloat16 && !pth && look.view.dtype == DType::BFloat16;
  const DType stored = widen ? DType::Float32 : look.view.dtype;
  struct Array {
    PathParts path;
    std::string header;
    formats::PthPrologue prologue;
    BufferPool::Buffer payload;
  };
  const auto array = std::make_shared<Array>();
  array->path = parts;
  if (pth) {
    auto prologue =
        formats::pth_prologue(stored, look.view.shape,
                              {.archive_name = formats::pth_archive_name(path), .parameter = {}});
    if (!prologue) {
      miss(op, prologue.error().message);
      return {};
    }
    array->prologue = std::move(*prologue);
    array->header = array->prologue.header;
  } else {
    auto header = formats::npy_header(stored, look.view.shape);
    if (!header) {
      miss(op, header.error().message);
      return {};
    }
    array->header = std::move(*header);
  }
  const uint64_t stored_bytes = widen ? look.size_bytes * 2 : look.size_bytes;
  const uint64_t held_bytes = stored_bytes + kJobBytes;
  if (!admit(held_bytes)) return {};
  if (!take_buffer(path, stored_bytes, &array->payload)) return {};
  {
    const GilReleased released(look.size_bytes >= kReleaseGilBytes);
    copy_elements(look.view, array->payload.span().first(look.size_bytes));
    if (widen) widen_bfloat16_in_place(array->payload.span());
  }
  (void)writer_->submit(held_bytes, [tree = tree_, array, pth]() -> Status {
    const ByteSpan payload = array->payload.span();
    std::string epilogue;
    if (pth) epilogue = formats::pth_epilogue(array->prologue, formats::crc32(payload));
    const FilePiece pieces[] = {{as_bytes(array->header)}, {payload}, {as_bytes(epilogue)}};
    return tree->write(array->path.folder, array->path.name, pieces);
  });
  return {};
}

Status GraphDump::write_bytes(const std::string& path, std::string_view data) {
  ASSAY_TRY(const PathParts parts, parts_of(path));
  if (!live() || !admit(data.size() + kJobBytes)) return {};
  const auto content = std::make_shared<const std::string>(data);
  (void)writer_->submit(data.size() + kJobBytes, [tree = tree_, parts, content] {
    const FilePiece piece{as_bytes(*content)};
    return tree->write(parts.folder, parts.name, std::span(&piece, 1));
  });
  return {};
}

void GraphDump::flush() {
  if (closed_) return;
  const GilReleased released(true);
  writer_->flush();
}

void GraphDump::close() {
  if (std::exchange(closed_, true)) return;
  const GilReleased released(true);
  writer_->close();
}

writer::WriterCounters GraphDump::counters() const { return writer_->counters(); }

}  // namespace assay::capture
