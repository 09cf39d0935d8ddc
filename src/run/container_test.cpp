// SPDX-License-Identifier: Apache-2.0
// Single files and flat folders as runs.
#include "run/container.hpp"
#include "run/folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/safetensors.hpp"
#include "formats/zip.hpp"
#include "run/load.hpp"
#include "run/open.hpp"
#include "run/test_folder.hpp"

namespace assay::run {
namespace {

using test::floats_of;
using test::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> nodes_of(const Run& run) {
  std::vector<std::string> nodes;
  for (const TensorRecord& record : run.records) nodes.push_back(record.node);
  return nodes;
}

TEST(OpenFile, GivesOneRecordForOneTensor) {
  const TestFolder folder;
  folder.put_npy("x.npy", {1, 2, 3});
  const auto run = open_run(folder / "x.npy");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_EQ(run->layout, Layout::File);
  ASSERT_EQ(run->records.size(), 1u);
  EXPECT_EQ(run->records[0].node, "x");
  EXPECT_EQ(run->records[0].shape, Dims{3});
  EXPECT_THAT(floats_of(load_tensor(run->records[0]).value()), ElementsAre(1, 2, 3));
}

TEST(OpenFile, GivesOneRecordAMemberOfAContainer) {
  const TestFolder folder;
  const std::vector<float> a = {1};
  const std::vector<float> b = {2, 3};
  const auto view = [](const std::vector<float>& v) {
    return make_view(DType::Float32, Dims{static_cast<int64_t>(v.size())},
                     std::as_bytes(std::span(v)))
        .value();
  };
  folder.put("w.safetensors",
             formats::write_safetensors({{"model.b", view(b)}, {"model.a", view(a)}}).value());
  const auto run = open_run(folder / "w.safetensors");
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 2u);
  EXPECT_EQ(run->records[0].slot, "model.b");  // file order
  EXPECT_EQ(run->records[1].slot, "model.a");
  EXPECT_THAT(floats_of(load_tensor(run->records[0]).value()), ElementsAre(2, 3));
}

TEST(OpenFile, ReadsStoredAndDeflatedArraysOfAnNpz) {
  const TestFolder folder;
  const std::vector<float> values = {4, 5};
  const std::string npy =
      formats::write_npy(
          make_view(DType::Float32, Dims{2}, std::as_bytes(std::span(values))).value())
          .value();
  std::string zip;
  formats::ZipWriter writer(&zip);
  ASSERT_TRUE(writer.add("a.npy", as_bytes(npy), formats::ZipMethod::Stored));
  ASSERT_TRUE(writer.add("b.npy", as_bytes(npy), formats::ZipMethod::Deflated));
  ASSERT_TRUE(writer.finish());
  folder.put("x.npz", zip);

  auto run = open_run(folder / "x.npz");

  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 2u);
  for (TensorRecord& record : run->records) {
    ASSERT_TRUE(load_header(record));
    EXPECT_EQ(record.shape, Dims{2});
    EXPECT_THAT(floats_of(load_tensor(record).value()), ElementsAre(4, 5)) << record.slot;
  }
}

TEST(OpenFile, RefusesWhatIsNoTensorFile) {
  const TestFolder folder;
  folder.put("empty.pth", "");
  folder.put("text.npy", "hello");
  folder.put_fifo("pipe");
  EXPECT_EQ(open_run(folder / "empty.pth").error().code, Errc::Truncated);
  EXPECT_FALSE(open_run(folder / "text.npy"));
  EXPECT_EQ(open_run(folder / "pipe").error().code, Errc::Unsupported);
  EXPECT_EQ(open_run(folder / "missing").error().code, Errc::NotFound);
  EXPECT_EQ(open_run(folder / "missing").error().path, folder / "missing");
}

TEST(OpenFlatFolder, SortsFilesNaturallyAndNamesThemByPath) {
  const TestFolder folder;
  folder.put_npy("flat/t10.npy", {1});
  folder.put_npy("flat/t2.npy", {1});
  folder.put_pth("flat/sub/t1.pth", {1});
  folder.put("flat/notes.txt", "x");
  const auto run = open_run(folder / "flat");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_EQ(run->layout, Layout::Flat);
  EXPECT_THAT(nodes_of(*run), ElementsAre("sub/t1", "t2", "t10"));
  EXPECT_THAT(run->warnings, ElementsAre(HasSubstr("1 files are no tensor files")));
}

TEST(OpenFlatFolder, KeepsTheSuffixOfFilesThatDifferOnlyInIt) {
  const TestFolder folder;
  folder.put_npy("flat/a.npy", {1});
  folder.put_pth("flat/a.pth", {1});
  EXPECT_THAT(nodes_of(open_run(folder / "flat").value()), ElementsAre("a.npy", "a.pth"));
}

TEST(ListFolder, ReadsAFolderOnceInAScope) {
  const TestFolder folder;
  folder.put("f/a", "x");
  const auto names = [&] {
    std::vector<std::string> out;
    const auto entries = list_folder(folder / "f", "");
    for (const FolderEntry& entry : *entries) out.push_back(entry.name);
    return out;
  };
  {
    const ListingScope outer;
    EXPECT_THAT(names(), ElementsAre("a"));
    folder.put("f/b", "x");
    {
      const ListingScope inner;
      EXPECT_THAT(names(), ElementsAre("a"));
    }
    EXPECT_THAT(names(), ElementsAre("a"));
  }
  EXPECT_THAT(names(), ElementsAre("a", "b"));
}

TEST(OpenFlatFolder, GivesOneRecordForEachUnreadableFile) {
  const TestFolder folder;
  folder.put_npy("flat/good.npy", {1});
  folder.put("flat/cut.npy", "\x93NUMPY\x01");
  folder.put_fifo("flat/pipe.npy");
  folder.put_link("flat/broken.npy", "nowhere");
  folder.put_link("flat/loop.npy", "loop.npy");
  folder.put_link("flat/outside.npy", "/etc/hostname");
  folder.put_link("flat/inside.npy", "good.npy");
  folder.put_link("flat/up", "..");
  folder.put_link("flat/again", ".");
  const auto run = open_run(folder / "flat");
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 7u);
  for (const TensorRecord& record : run->records) {
    const bool usable = record.node == "good" || record.node == "inside";
    EXPECT_EQ(record.problem.empty(), usable) << record.node << ": " << record.problem;
    EXPECT_EQ(load_tensor(record).has_value(), usable) << record.node;
  }
  EXPECT_THAT(run->warnings, ElementsAre(HasSubstr("again: linked folders are not followed"),
                                         HasSubstr("up: is a link that leaves the run")));
}

/// Version 3, one q8_0 tensor "w" of two blocks, d = 0.5, and one key.
std::string gguf_file() {
  std::string file = "GGUF";
  const auto text = [&](std::string_view value) {
    append(file, uint64_t{value.size()});
    file += value;
  };
  append(file, uint32_t{3});
  append(file, uint64_t{1});
  append(file, uint64_t{1});
  text("general.architecture");
  append(file, uint32_t{8});
  text("llama");
  text("w");
  append(file, uint32_t{2});
  append(file, uint64_t{32});
  append(file, uint64_t{2});
  append(file, uint32_t{8});
  append(file, uint64_t{0});
  file.resize(align_up(file.size(), 32), '\0');
  for (int block = 0; block < 2; ++block) {
    append(file, uint16_t{0x3800});
    for (int i = 0; i < 32; ++i) append(file, static_cast<int8_t>(i + block));
  }
  return file;
}

TEST(OpenFile, DecodesTheBlocksOfAGgufFile) {
  const TestFolder folder;
  folder.put("model.gguf", gguf_file());
  const auto run = open_run(folder / "model.gguf");
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 1u);
  const TensorRecord& record = run->records[0];
  EXPECT_EQ(record.slot, "w");
  EXPECT_EQ(record.shape, (Dims{2, 32}));
  EXPECT_EQ(record.memory_format, "q8_0");
  EXPECT_EQ(run->properties.at("gguf:general.architecture"), "llama");
  const auto tensor = load_tensor(record);
  ASSERT_TRUE(tensor) << tensor.error().describe();
  EXPECT_EQ(floats_of(*tensor)[31], 15.5F);
  EXPECT_EQ(floats_of(*tensor)[63], 16.0F);
}

TEST(OpenFile, RefusesAGgufFileThatWasCutOff) {
  const TestFolder folder;
  folder.put("model.gguf", gguf_file().substr(0, 150));
  const auto run = open_run(folder / "model.gguf");
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Errc::Truncated);
  EXPECT_EQ(run.error().path, folder / "model.gguf");
}

TEST(LoadTensor, DecodesBlocksOfARecord) {
  const TestFolder folder;
  std::string blocks;
  for (int block = 0; block < 2; ++block) {
    append(blocks, uint16_t{0x3800});
    blocks.append(32, static_cast<char>(4 + block));
  }
  for (const size_t lead : {size_t{0}, size_t{100'000}}) {  // read, and mapped
    folder.put("step.bin", std::string(lead, 'x') + blocks);
    TensorRecord record;
    record.dtype = DType::Float32;
    record.memory_format = "q8_0";
    record.shape = Dims{64};
    ByteLocation location;
    location.file = folder / "step.bin";
    location.offset = lead;
    location.size_bytes = blocks.size();
    location.raw = true;
    record.bytes = location;
    const auto tensor = load_tensor(record);
    ASSERT_TRUE(tensor) << tensor.error().describe();
    EXPECT_EQ(floats_of(*tensor)[0], 2.0F);
    EXPECT_EQ(floats_of(*tensor)[63], 2.5F);
    record.memory_format = "iq2_xs";
    EXPECT_FALSE(load_tensor(record));
  }
}

TEST(OpenRun, NamesTheLayoutsItTried) {
  const TestFolder folder;
  const auto run = open_run(folder.path());
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Errc::Unsupported);
  EXPECT_THAT(run.error().message, HasSubstr("torch_tensors"));
}

TEST(OpenContainer, SeesAFileThatWasReplaced) {
  const TestFolder folder;
  folder.put_npy("x.npy", {1});
  const TensorRecord record = open_run(folder / "x.npy").value().records[0];
  const Tensor before = load_tensor(record).value();
  folder.put_npy("new.npy", {7, 8});
  std::filesystem::rename(folder / "new.npy", folder / "x.npy");
  EXPECT_THAT(floats_of(load_tensor(record).value()), ElementsAre(7, 8));
  EXPECT_THAT(floats_of(before), ElementsAre(1));  // keeps its mapping
}

TEST(OpenContainer, KeepsTensorsAliveBeyondTheCache) {
  const TestFolder folder;
  folder.put_npy("first.npy", {42});
  const Tensor first = load_tensor(open_run(folder / "first.npy").value().records[0]).value();
  for (size_t i = 0; i < 2 * kMaxCachedFiles; ++i) {
    const std::string name = "n" + std::to_string(i) + ".npy";
    folder.put_npy(name, {static_cast<float>(i)});
    ASSERT_TRUE(open_container(folder / name));
  }
  EXPECT_THAT(floats_of(first), ElementsAre(42));
}

TEST(OpenContainer, MapsAFileOnceAsLongAsSomebodyHoldsIt) {
  // Given  a file that is held, and more others than are kept open
  const TestFolder folder;
  folder.put_npy("held.npy", {1});
  const auto held = open_container(folder / "held.npy").value();
  for (size_t i = 0; i < 2 * kMaxCachedFiles; ++i) {
    const std::string name = "n" + std::to_string(i) + ".npy";
    folder.put_npy(name, {static_cast<float>(i)});
    ASSERT_TRUE(open_container(folder / name));
  }
  // When, then
  EXPECT_EQ(open_container(folder / "held.npy").value(), held);
  folder.put_npy("new.npy", {7, 8});
  std::filesystem::rename(folder / "new.npy", folder / "held.npy");
  EXPECT_NE(open_container(folder / "held.npy").value(), held);
}

}  // namespace
}  // namespace assay::run
