// SPDX-License-Identifier: Apache-2.0
#include "formats/detect.hpp"

#include <gtest/gtest.h>

#include "formats/test_support.hpp"
#include "formats/zip.hpp"

namespace assay::formats {
namespace {

FileKind kind_of_golden(const std::string& name) {
  const std::string file = golden_file(name);
  return detect_file(as_bytes(file), "");
}

TEST(DetectFile, BelievesTheBytesAndNotTheName) {
  EXPECT_EQ(kind_of_golden("npy/float32.npy"), FileKind::Npy);
  EXPECT_EQ(kind_of_golden("npy/two.npz"), FileKind::Npz);
  EXPECT_EQ(kind_of_golden("pth/recent.pth"), FileKind::Pth);
  EXPECT_EQ(kind_of_golden("pth/legacy.pth"), FileKind::PthLegacy);
  EXPECT_EQ(kind_of_golden("pth/unsupported_torchscript.pth"), FileKind::TorchScript);
  EXPECT_EQ(kind_of_golden("safetensors/mixed.safetensors"), FileKind::Safetensors);
  EXPECT_EQ(detect_file(as_bytes("GGUF\x03"), "x.bin"), FileKind::Gguf);
  EXPECT_EQ(detect_file(ByteSpan(), "model.gguf"), FileKind::Gguf);
  EXPECT_EQ(detect_file(as_bytes("$Version=1.0\n"), "x.npy"), FileKind::AtbBin);
  EXPECT_EQ(detect_file(as_bytes("\x93NUMPY\x01"), "x.pth"), FileKind::Npy);
}

TEST(DetectFile, LooksIntoZips) {
  std::string workbook;
  ZipWriter zip(&workbook);
  ASSERT_TRUE(zip.add("xl/workbook.xml", {}));
  ASSERT_TRUE(zip.finish());
  EXPECT_EQ(detect_file(as_bytes(workbook), ""), FileKind::Xlsx);
  // Given only the beginning of a zip, then its name decides.
  EXPECT_EQ(detect_file(as_bytes("PK\x03\x04"), "a/output.pth"), FileKind::Pth);
  EXPECT_EQ(detect_file(as_bytes("PK\x03\x04"), "a/output"), FileKind::Zip);
}

TEST(DetectFile, AsksTheNameWhereBytesSayNothing) {
  EXPECT_EQ(detect_file({}, "dir/statistics.csv"), FileKind::Csv);
  EXPECT_EQ(detect_file({}, "model_tree.json"), FileKind::Json);
  EXPECT_EQ(detect_file({}, "records.jsonl"), FileKind::Jsonl);
  EXPECT_EQ(detect_file({}, "model.onnx"), FileKind::Onnx);
  EXPECT_EQ(detect_file({}, "dynamo_graph_1.txt"), FileKind::GraphText);
  EXPECT_EQ(detect_file({}, "Add.Add_1.25.6.1719000000"), FileKind::CannDump);
  EXPECT_EQ(detect_file({}, "a.b.c/notes"), FileKind::Unknown);
  EXPECT_EQ(detect_file(std::vector<std::byte>(64), "step-000000.safetensors"),
            FileKind::Safetensors);
}

TEST(DetectFile, NamesEveryKind) {
  EXPECT_EQ(kind_name(FileKind::Unknown), "unknown");
  EXPECT_EQ(kind_name(FileKind::PthLegacy), "pth (legacy)");
  EXPECT_EQ(kind_name(FileKind::GraphText), "graph text");
}

}  // namespace
}  // namespace assay::formats
