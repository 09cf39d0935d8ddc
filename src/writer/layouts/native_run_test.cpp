// SPDX-License-Identifier: Apache-2.0
#include "writer/layouts/native_run.hpp"
#include "tensor/node.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <vector>

#include "base/mapped_file.hpp"
#include "formats/safetensors.hpp"
#include "writer/layouts/step_file.hpp"

namespace assay::writer {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "assay-native-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void wait_plainly(void (*wait)(void* data), void* data) { wait(data); }

std::unique_ptr<NativeRun> start(NativeRunOptions options) {
  auto run = NativeRun::create(std::move(options), wait_plainly);
  EXPECT_TRUE(run.has_value()) << (run ? "" : run.error().describe());
  return std::move(*run);
}

std::vector<float> ramp(size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Appends one float tensor; returns where it went.
std::optional<native::PayloadLocation> add(NativeRun& run, const native::RecordNode* node,
                                           const std::vector<float>& values) {
  const auto view = make_view(DType::Float32, Dims{static_cast<int64_t>(values.size())},
                              std::as_bytes(std::span(values)));
  native::Record record;
  record.node = node;
  record.slot = run.intern("0");
  record.dtype = DType::Float32;
  record.dtype_name = "float32";
  record.has_shape = true;
  record.ndim = 1;
  record.payload = run.append_payload(*view, record, nullptr);
  record.first_copy = record.payload.has_value();
  const auto location = record.payload;
  if (location) run.push_record(std::move(record), view->shape.span(), view->strides.span());
  return location;
}

std::vector<float> read_floats(const std::string& path, uint64_t offset, size_t count) {
  std::vector<float> values(count);
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(count * sizeof(float)));
  EXPECT_TRUE(file.good()) << path;
  return values;
}

std::vector<std::string> lines_of(const std::string& folder) {
  std::ifstream file(folder + "/records.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Two lines that store a tensor each, in the order of their numbers.
class TwoTensors final : public native::PreparedLines {
 public:
  TwoTensors(const native::RecordNode* node, const std::string* slot, native::PayloadLocation first,
             native::PayloadLocation second)
      : node_(node), slot_(slot), places_{first, second} {}
  [[nodiscard]] uint64_t line_count() const override { return 2; }
  [[nodiscard]] uint64_t size_bytes() const override { return sizeof(*this); }
  void append(uint64_t first, native::RecordText& out, EntryFunction entry, void* data) override {
    native::RecordBatch sizes;
    for (uint64_t i = 0; i < 2; ++i) {
      out += std::string_view("{\"n\":" + std::to_string(first + i) + ",\"prepared\":true}\n");
      native::Record record;
      record.number = first + i;
      record.node = node_;
      record.slot = slot_;
      record.payload = places_[i];
      sizes.clear();
      const int64_t shape[] = {static_cast<int64_t>(places_[i].size_bytes / sizeof(float))};
      sizes.set_dims(record, shape, {});
      entry(data, sizes, record);
    }
  }

 private:
  const native::RecordNode* node_;
  const std::string* slot_;
  native::PayloadLocation places_[2];
};

native::PayloadLocation append(NativeRun& run, const native::RecordNode* node,
                               const std::vector<float>& values) {
  const auto view = make_view(DType::Float32, Dims{static_cast<int64_t>(values.size())},
                              std::as_bytes(std::span(values)));
  native::Record record;
  record.node = node;
  record.slot = run.intern("0");
  return run.append_payload(*view, record, nullptr).value();
}

TEST(NativeRun, NumbersPreparedLinesAmongRecordsAndSortsTheirTensorsByOffset) {
  const TemporaryFolder folder;
  auto run = start({.folder = folder.path()});
  const native::RecordNode* node = run->add_node("layer", "");
  run->begin_file("step-000000", 4);

  // Two threads store in turns; the lines of each come in one go.
  const native::PayloadLocation a = append(*run, node, ramp(4, 0));
  const native::PayloadLocation b = append(*run, node, ramp(5, 10));
  const native::PayloadLocation c = append(*run, node, ramp(6, 20));
  const native::PayloadLocation d = append(*run, node, ramp(7, 30));
  EXPECT_EQ(run->push_lines(std::make_shared<TwoTensors>(node, run->intern("0"), a, c)), 0u);
  EXPECT_EQ(run->push_lines(std::make_shared<TwoTensors>(node, run->intern("0"), b, d)), 2u);
  const auto e = add(*run, node, ramp(2, 40));
  run->close();

  const std::vector<std::string> lines = lines_of(folder.path());
  ASSERT_EQ(lines.size(), 5u);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(lines[i], "{\"n\":" + std::to_string(i) + ",\"prepared\":true}");
  EXPECT_TRUE(lines[4].starts_with("{\"n\":4,")) << lines[4];
  EXPECT_EQ(run->counters().records, 5u);
  // The format wants the entries to cover the data without holes; they are told by their sizes of 4
  // to 7 and 2.
  const auto file = MappedFile::open(folder.path() + "/step-000000.safetensors");
  ASSERT_TRUE(file);
  const auto tensors = formats::read_safetensors_file(*file);
  ASSERT_TRUE(tensors) << tensors.error().describe();
  std::vector<int64_t> counts;
  for (const auto& tensor : tensors->entries) {
    if (!tensor.name.starts_with("__pad")) counts.push_back(tensor.view.element_count());
  }
  EXPECT_EQ(counts, (std::vector<int64_t>{4, 5, 6, 7, 2}));
  EXPECT_EQ(read_floats(folder.path() + "/step-000000.safetensors", b.offset, 5), ramp(5, 10));
  EXPECT_EQ(e->size_bytes, 8u);
}

TEST(NativeRun, WritesWhatItWasGivenAcrossBlocksAndArenaTurns) {
  TemporaryFolder folder;
  auto run = start({.folder = folder.path(), .arena_bytes = 8u << 20});
  const native::RecordNode* node = run->add_node("layer", "Linear");
  // 40 tensors of 1 to 700 000 floats: some smaller than a gap, some larger than a block, 5 turns
  // of the arena.
  std::vector<std::pair<std::vector<float>, native::PayloadLocation>> written;
  run->begin_file("step-000000", 40);
  for (size_t i = 0; i < 40; ++i) {
    auto values = ramp(1 + (i * i * 7919) % 700'000, static_cast<float>(i));
    const auto location = add(*run, node, values);
    ASSERT_TRUE(location.has_value());
    EXPECT_EQ(location->offset % 64, 0u);
    written.emplace_back(std::move(values), *location);
  }
  run->end_file();
  run->close();
  for (const auto& [values, location] : written) {
    EXPECT_EQ(read_floats(folder.path() + "/" + *location.file, location.offset, values.size()),
              values);
  }
  EXPECT_EQ(lines_of(folder.path()).size(), 40u);
  EXPECT_EQ(lines_of(folder.path())[0].substr(0, 60),
            R"({"n":0,"step":0,"node":"layer","type":"Linear","order":0,"ro)");
}

TEST(NativeRun, WritesOperatorsAndTheValuesBetweenThem) {
  TemporaryFolder folder;
  auto run = start({.folder = folder.path(), .arena_bytes = 0});
  native::Record line;
  line.kind = native::RecordKind::Operator;
  line.node = run->add_node("model.norm", "Norm");
  line.slot = run->intern("");
  line.call = 2;
  line.order = 7;
  line.operation = run->intern("aten.mul_.Tensor");
  line.operation_index = 1;
  line.writes = run->intern(R"(["self"])");
  native::Record input = line;
  run->push_record(std::move(line), {}, {}, R"({"self":{"tensor":"self"},"other":2})");
  input.kind = native::RecordKind::Tensor;
  input.writes = nullptr;
  input.role = Role::Input;
  input.slot = run->intern("self");
  input.dtype_name = "float32";
  input.has_shape = true;
  input.value = {.id = 5, .storage = 3, .storage_offset = 8, .version = 1, .producer = 0};
  native::Record output = input;
  const std::vector<int64_t> shape = {4};
  run->push_record(std::move(input), shape, {});
  output.role = Role::Output;
  output.slot = run->intern("");
  output.value = {.id = 6, .storage = 3, .leaf = run->intern("model.norm.weight")};
  run->push_record(std::move(output), shape, {});
  run->close();
  // Keys and their order: docs/formats/native.md, "Operator level".
  const std::string node = R"("step":0,"node":"model.norm::aten.mul_.Tensor.1",)";
  const std::string call = R"("type":"aten.mul_.Tensor","call":2,"order":7,)";
  EXPECT_EQ(lines_of(folder.path()),
            (std::vector<std::string>{
                R"({"n":0,)" + node + call + R"("kind":"operator","module":"model.norm",)" +
                    R"("args":{"self":{"tensor":"self"},"other":2},"writes":["self"]})",
                R"({"n":1,)" + node + call + R"("role":"input","slot":"self","dtype":"float32",)" +
                    R"("shape":[4],"vid":5,"storage":3,"storage_offset":8,"version":1,"from":0})",
                R"({"n":2,)" + node + call + R"("role":"output","slot":"","dtype":"float32",)" +
                    R"("shape":[4],"vid":6,"storage":3,"leaf":"model.norm.weight"})"}));
}

#ifndef ASSAY_SANITIZED  // their pthread_create() ends the program
TEST(NativeRun, AHostGoesOnWithoutAWriterThread) {
  TemporaryFolder folder;
  // given a system that has no memory for the stack of another thread
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  auto run = start({.folder = folder.path(), .arena_bytes = 8u << 20});
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  // when it stores five times what the arena holds
  const native::RecordNode* node = run->add_node("layer", "Linear");
  run->begin_file("step-000000", 16);
  for (int i = 0; i < 16; ++i) (void)add(*run, node, ramp(700'000, static_cast<float>(i)));
  run->end_file();
  run->close();
  // then it is not held up, and is told
  EXPECT_NE(run->stop_reason().find("no writer thread"), std::string::npos) << run->stop_reason();
}
#endif

// Lines wait for the bytes before them; without new bytes they must not wait for ever.
TEST(NativeRun, EndsAFileWhenTooManyRecordsWait) {
  TemporaryFolder folder;
  auto run = start({.folder = folder.path(), .arena_bytes = 8u << 20});
  const native::RecordNode* node = run->add_node("layer", "Linear");
  run->begin_file("step-000000", 4);
  ASSERT_TRUE(add(*run, node, ramp(10, 1)).has_value());
  native::Record value;
  value.node = node;
  value.slot = run->intern("0");
  value.kind = native::RecordKind::Value;
  for (int i = 0; i < 40'000; ++i) run->push_record(native::Record(value), {}, {}, "1");
  const auto second = add(*run, node, ramp(10, 2));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(*second->file, "step-000000-1.safetensors");
  run->close();
  EXPECT_EQ(lines_of(folder.path()).size(), 40'002u);
  EXPECT_EQ(read_floats(folder.path() + "/" + *second->file, second->offset, 10), ramp(10, 2));
}

TEST(NativeRun, WritesTailsOfAnySizeWhole) {
  TemporaryFolder folder;
  auto run = start({.folder = folder.path(), .arena_bytes = 8u << 20});
  const native::RecordNode* node = run->add_node("layer", "Linear");
  // Given files of one tensor around the size from which a tail's whole pages are written directly
  std::vector<std::pair<std::vector<float>, native::PayloadLocation>> written;
  for (const size_t count : {1u, 16'383u, 16'384u, 16'385u, 17'408u, 100'001u}) {
    run->begin_file("step-" + std::to_string(count), 1);
    auto values = ramp(count, 1.0f);
    const auto location = add(*run, node, values);
    ASSERT_TRUE(location.has_value());
    written.emplace_back(std::move(values), *location);
  }
  // When they are closed
  run->close();
  // Then each has its bytes, and ends with them
  for (const auto& [values, location] : written) {
    const std::string path = folder.path() + "/" + *location.file;
    EXPECT_EQ(read_floats(path, location.offset, values.size()), values);
    EXPECT_EQ(fs::file_size(path), location.offset + location.size_bytes);
  }
}

TEST(NativeRun, WritesOutWhatIsNoWholeBlockYetAndGoesOnInTheSameFile) {
  const TemporaryFolder folder;
  uint64_t told = 0;
  NativeRunOptions options{.folder = folder.path(), .arena_bytes = 2 * kBlockBytes};
  options.written = [&told](const native::RecordBatch& batch) { told += batch.records.size(); };
  const auto run = start(std::move(options));
  const auto* node = run->add_node("a", "A");
  run->begin_file("step-000000", 16);
  std::vector<std::pair<std::vector<float>, native::PayloadLocation>> added;
  const auto expect_on_disk = [&] {
    EXPECT_EQ(lines_of(folder.path()).size(), added.size());
    EXPECT_EQ(told, added.size());
    for (const auto& [values, place] : added)
      EXPECT_EQ(read_floats(folder.path() + "/" + *place.file, place.offset, values.size()),
                values);
  };
  // Parts of a block, a block and more, and again a part.
  for (const size_t count : {10u, 20u, 3'000'000u, 5u, 1'500'000u}) {
    added.emplace_back(ramp(count, static_cast<float>(added.size())), native::PayloadLocation());
    added.back().second = add(*run, node, added.back().first).value();
    run->write_out();
    run->wait_until_written();
    expect_on_disk();
  }
  run->write_out();  // nothing to do
  run->close();
  expect_on_disk();
  const auto file = MappedFile::open(folder.path() + "/step-000000.safetensors");
  ASSERT_TRUE(file);
  EXPECT_TRUE(formats::read_safetensors_file(*file));
  // The digest counts each byte once.
  const auto files = run->files();
  ASSERT_EQ(files.size(), 2u);
  const uint64_t header_bytes = 8 + load<uint64_t>(file->bytes().data());
  EXPECT_EQ(files[0].digest, stats::digest_bytes(file->bytes().subspan(header_bytes)));
}

TEST(NativeRun, MakesFilesThatOurOwnSafetensorsReaderOpens) {
  TemporaryFolder folder;
  auto run = start({.folder = folder.path(), .arena_bytes = 8u << 20});
  /// A name that must be escaped.
  const native::RecordNode* node = run->add_node("a\"b\\c\x01", "T");
  run->begin_file("step-000000", 2);
  ASSERT_TRUE(add(*run, node, ramp(3, 1)).has_value());  // 12 bytes: a gap of 52 follows
  ASSERT_TRUE(add(*run, node, ramp(5, 7)).has_value());
  run->close();
  const std::string path = folder.path() + "/step-000000.safetensors";
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto header = load<uint64_t>(bytes.data());
  EXPECT_EQ((header + 8) % 4096, 0u);
  EXPECT_EQ(bytes.size(), header + 8 + 64 + 20);
  EXPECT_NE(bytes.find(R"("__pad.0":{"dtype":"U8","shape":[52],"data_offsets":[12,64]})"),
            std::string::npos);
  EXPECT_NE(bytes.find(R"("0:a\"b\\c\u0001.output.0")"), std::string::npos);
}

TEST(NativeRun, RollsOverWhenTheHeaderOrTheFileIsFull) {
  TemporaryFolder folder;
  auto run = start({.folder = folder.path(), .arena_bytes = 8u << 20, .max_file_bytes = 3u << 20});
  const native::RecordNode* node = run->add_node("layer", "Linear");
  run->begin_file("step-000007", 1);
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(add(*run, node, ramp(1, 0)).has_value());  // about 300 bytes of header each
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(add(*run, node, ramp(500'000, 0)).has_value());
  run->begin_file("step-000007", 1);  // the same step again: never over its own files
  ASSERT_TRUE(add(*run, node, ramp(1, 42)).has_value());
  run->close();
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    EXPECT_LE(entry.file_size(), (3u << 20) + (64u << 10));
  }
  EXPECT_GE(files, 6u);
  EXPECT_TRUE(fs::exists(folder.path() + "/step-000007.safetensors"));
  EXPECT_TRUE(fs::exists(folder.path() + "/step-000007-1.safetensors"));
  EXPECT_EQ(lines_of(folder.path()).size(), 105u);
}

TEST(NativeRun, StopsAtTheDiskLimitAndKeepsWhatItHas) {
  TemporaryFolder folder;
  auto run =
      start({.folder = folder.path(), .arena_bytes = 8u << 20, .disk = {.limit_bytes = 1'000'000}});
  const native::RecordNode* node = run->add_node("layer", "Linear");
  run->begin_file("step-000000", 4);
  EXPECT_TRUE(add(*run, node, ramp(200'000, 1)).has_value());
  EXPECT_FALSE(add(*run, node, ramp(200'000, 2)).has_value());
  EXPECT_TRUE(run->stopped());
  EXPECT_FALSE(add(*run, node, ramp(1, 3)).has_value());
  run->close();
  EXPECT_NE(run->stop_reason().find("disk limit"), std::string::npos);
  EXPECT_EQ(lines_of(folder.path()).size(), 1u);
  EXPECT_EQ(fs::file_size(folder.path() + "/step-000000.safetensors") % 4096, 800'000u % 4096);
}

// A disk that takes so many bytes, in writes of at most so many.
std::atomic<int64_t> disk_bytes_left;
std::atomic<size_t> longest_write;

template <typename Write>
ssize_t limited(size_t size, Write write) {
  if (disk_bytes_left <= 0) {
    errno = ENOSPC;
    return -1;
  }
  const size_t allowed =
      std::min({size, longest_write.load(), static_cast<size_t>(disk_bytes_left.load())});
  const ssize_t written = write(allowed);
  if (written > 0) disk_bytes_left -= written;
  return written;
}
ssize_t limited_pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  return limited(size, [&](size_t allowed) { return ::pwrite(fd, bytes, allowed, offset); });
}
ssize_t limited_write(int fd, const void* bytes, size_t size) {
  return limited(size, [&](size_t allowed) { return ::write(fd, bytes, allowed); });
}

TEST(NativeRun, SurvivesAFullDisk) {
  for (const int64_t room : {0, 4096, 100'000, 2'500'000, 5'000'000}) {
    TemporaryFolder folder;
    disk_bytes_left = room;
    longest_write = SIZE_MAX;
    auto run = start({.folder = folder.path(),
                      .arena_bytes = 8u << 20,
                      .io = {.pwrite = limited_pwrite, .write = limited_write}});
    const native::RecordNode* node = run->add_node("layer", "Linear");
    for (int step = 0; step < 10; ++step) {
      run->begin_file("step-00000" + std::to_string(step), 4);
      for (int i = 0; i < 4; ++i) (void)add(*run, node, ramp(100'000, static_cast<float>(i)));
      run->end_file();
    }
    run->close();
    EXPECT_TRUE(run->stopped());
    EXPECT_NE(run->stop_reason().find("No space left on device"), std::string::npos)
        << run->stop_reason();
    for (const std::string& line : lines_of(folder.path())) {
      if (!line.ends_with("}")) continue;  // the line that the full disk cut
      const auto number = [&line](const char* key) {
        return std::stoull(line.substr(line.find(key) + std::string_view(key).size()));
      };
      const size_t at = line.find("step-");
      const std::string file = line.substr(at, line.find('"', at) - at);
      const uint64_t record = number("\"n\":");
      EXPECT_EQ(read_floats(folder.path() + "/" + file, number("\"offset\":"), 100'000),
                ramp(100'000, static_cast<float>(record % 4)))
          << line;
    }
  }
}

TEST(NativeRun, FinishesShortWrites) {
  TemporaryFolder folder;
  disk_bytes_left = INT64_MAX;
  longest_write = 100'003;
  auto run = start({.folder = folder.path(),
                    .arena_bytes = 8u << 20,
                    .io = {.pwrite = limited_pwrite, .write = limited_write}});
  const native::RecordNode* node = run->add_node("layer", "Linear");
  run->begin_file("step-000000", 2);
  const auto values = ramp(3'000'000, 5);
  const auto location = add(*run, node, values);
  run->close();
  ASSERT_TRUE(location.has_value());
  EXPECT_FALSE(run->stopped());
  EXPECT_EQ(read_floats(folder.path() + "/" + *location->file, location->offset, values.size()),
            values);
}

// A decode step of some megabytes had 64 MiB of zeros made for it in a memory file system, and a
// killed host left them.
TEST(StepFile, ReservesNoMoreThanItHas) {
  const TemporaryFolder folder;
  StepFile file(folder.path() + "/step-000000.safetensors", kDirectAlignment, IoFunctions());
  constexpr uint64_t kBlock = 2 << 20;
  constexpr std::align_val_t kAlignment{kDirectAlignment};
  auto* bytes = new (kAlignment) std::byte[kBlock]();
  for (uint64_t end = kDirectAlignment; end < 100 * kBlock;) {
    ASSERT_TRUE(file.write_block(end, {bytes, kBlock}).has_value());
    end += kBlock;
    EXPECT_LE(fs::file_size(file.path()), 2 * end);
  }
  ::operator delete[](bytes, kAlignment);
}

TEST(NativeRun, SaysWhichFileCannotBeCreated) {
  const auto run = NativeRun::create({.folder = "/nonexistent/rank0"}, wait_plainly);
  ASSERT_FALSE(run.has_value());
  EXPECT_EQ(run.error().code, Errc::NotFound);
  EXPECT_EQ(run.error().path, "/nonexistent/rank0/records.jsonl");
}

TEST(NativeRun, DoesNothingInAForkedChild) {
  TemporaryFolder folder;
  auto run = start({.folder = folder.path(), .arena_bytes = 8u << 20});
  const native::RecordNode* node = run->add_node("layer", "Linear");
  run->begin_file("step-000000", 1);
  ASSERT_TRUE(add(*run, node, ramp(10, 1)).has_value());
  const pid_t child = fork();
  if (child == 0) {
    const bool silent = !run->alive() && !add(*run, node, ramp(10, 2)).has_value();
    run->end_file();
    run->flush();
    run->close();
    run.reset();
    _exit(silent ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  run->close();
  EXPECT_EQ(lines_of(folder.path()).size(), 1u);
}

TEST(DiskBudget, StopsBeforeTheReserveIsTouched) {
  uint64_t free_bytes = 1000u << 20;
  DiskBudget budget([&] { return DiskSpace{free_bytes, 100ull << 30}; },
                    {.reserve_bytes = 600u << 20});
  EXPECT_TRUE(budget.admit(300u << 20));
  free_bytes -= 300u << 20;
  EXPECT_FALSE(budget.admit(200u << 20));  // 700 MiB are free, 600 must stay
  EXPECT_FALSE(budget.admit(1));           // sticky
  EXPECT_EQ(budget.used_bytes(), 300u << 20);
  EXPECT_NE(budget.stop_reason().find("stay free for the host"), std::string::npos);
}

TEST(DiskBudget, ReservesATwentiethOfASmallDisk) {
  DiskBudget budget([] { return DiskSpace{20u << 20, 100u << 20}; }, {.reserve_bytes = 256u << 20});
  EXPECT_TRUE(budget.admit(15u << 20));
}

TEST(DiskBudget, GoesOnWhenNobodyKnowsTheSpace) {
  DiskBudget budget([]() -> std::optional<DiskSpace> { return std::nullopt; }, {});
  EXPECT_TRUE(budget.admit(1ull << 40));
}

TEST(NativeRun, NamesTheRunInEveryFileAndTellsTheirDigests) {
  const TemporaryFolder folder;
  NativeRunOptions options;
  options.folder = folder.path();
  options.run_id = "0123456789abcdef0123456789abcdef";
  const auto run = start(std::move(options));
  const native::RecordNode* node = run->add_node("norm", "RMSNorm");
  run->begin_file("step-000000", 8);
  // More than a block, so that a part goes out before the tail does; and a gap behind the first.
  ASSERT_TRUE(add(*run, node, ramp(3, 1)));
  ASSERT_TRUE(add(*run, node, ramp(kBlockBytes / sizeof(float) + 100, 2)));
  run->close();

  const std::string path = folder.path() + "/step-000000.safetensors";
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  const auto read = formats::read_safetensors_file(*file);
  ASSERT_TRUE(read) << read.error().describe();
  const uint64_t header = 8 + load<uint64_t>(file->bytes().data());
  const std::string digest = stats::digest_text(stats::digest_bytes(file->bytes().subspan(header)));
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"run", "0123456789abcdef0123456789abcdef"},
      {"file", "step-000000.safetensors"},
      {"digest", digest}};
  EXPECT_EQ(read->metadata, expected);
  EXPECT_EQ(lines_of(folder.path())[0].find(R"({"run":"0123456789abcdef0123456789abcdef","n":0,)"),
            0u);

  const std::vector<native::ManifestFile> files = run->files();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "step-000000.safetensors");
  EXPECT_EQ(files[0].bytes, file->bytes().size());
  EXPECT_EQ(files[0].entries, 2u);
  EXPECT_EQ(stats::digest_text(files[0].digest), digest);
  const auto records = MappedFile::open(folder.path() + "/records.jsonl");
  ASSERT_TRUE(records);
  EXPECT_EQ(files[1].name, "records.jsonl");
  EXPECT_EQ(files[1].bytes, records->bytes().size());
  EXPECT_EQ(files[1].entries, 2u);
  EXPECT_EQ(files[1].digest, stats::digest_bytes(records->bytes()));
}

}  // namespace
}  // namespace assay::writer
