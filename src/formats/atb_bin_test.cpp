// SPDX-License-Identifier: Apache-2.0
#include "formats/atb_bin.hpp"

#include <gtest/gtest.h>

#include "formats/test_support.hpp"

namespace assay::formats {
namespace {

constexpr AtbAttribute kHalf2x3[] = {{"format", "2"}, {"dtype", "1"}, {"dims", "2,3"}};

TEST(AtbBinHeader, IsTheHistoricalTextByteForByte) {
  // fp16 [2, 3]: 6 values of 2 bytes.
  const std::string header = atb_bin_header(kHalf2x3, 12);
  EXPECT_EQ(header,
            "$Version=1.0\n$Object.Count=1\n$Object.Length=12\nformat=2\ndtype=1\ndims=2,3\n"
            "$Object.data=0,12\n$End=1\n");
  EXPECT_EQ(header.size(), 98u);
}

TEST(AtbBinHeader, HasNoObjectWhenOnlyTheDescriptionIsKept) {
  EXPECT_EQ(
      atb_bin_header(kHalf2x3, std::nullopt),
      "$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=2,3\n$End=1\n");
}

TEST(AtbBinHeader, KeepsTheOrderOfAttributes) {
  const AtbAttribute attributes[] = {{"format", "2"},           {"dtype", "1"},
                                     {"dims", "2,3"},           {"max", "65504.000000"},
                                     {"min", "-2.000000"},      {"mean", "10917.791667"},
                                     {"l2norm", "65504.000121"}};
  EXPECT_EQ(atb_bin_header(attributes, std::nullopt),
            "$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=2,3\n"
            "max=65504.000000\nmin=-2.000000\nmean=10917.791667\nl2norm=65504.000121\n$End=1\n");
}

TEST(AtbBinHeader, TellsAnEmptyTensorFromADescription) {
  const AtbAttribute attributes[] = {{"format", "2"}, {"dtype", "1"}, {"dims", "0,3"}};
  EXPECT_EQ(atb_bin_header(attributes, 0),
            "$Version=1.0\n$Object.Count=1\n$Object.Length=0\nformat=2\ndtype=1\ndims=0,3\n"
            "$Object.data=0,0\n$End=1\n");
}

// ---- reading ------------------------------------------------------------------------------------

std::string file_of(std::string_view dtype, std::string_view dims, const std::string& payload,
                    std::string_view format = "2") {
  const AtbAttribute attributes[] = {{"format", format}, {"dtype", dtype}, {"dims", dims}};
  return atb_bin_header(attributes, payload.size()) + payload;
}

Result<AtbBin> read(const std::string& file) { return read_atb_bin(as_bytes(file)); }

void expect_error(const std::string& file, Errc code, uint64_t offset) {
  const auto record = read(file);
  ASSERT_FALSE(record.has_value()) << file;
  EXPECT_EQ(record.error().code, code) << record.error().describe();
  EXPECT_EQ(record.error().offset, offset) << record.error().describe();
}

// fp16 1, -2, 0.5, 0, 3.25, 65504: the example of docs/formats/atb-bin.md.
const std::string kHalfBytes("\x00\x3c\x00\xc0\x00\x38\x00\x00\x80\x42\xff\x7b", 12);

TEST(ReadAtbBin, ReadsTheWorkedExample) {
  const std::string file = file_of("1", "2,3", kHalfBytes);
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->format, kAtbFormatNd);
  EXPECT_EQ(record->dtype, 1);
  EXPECT_EQ(record->dims, (Dims{2, 3}));
  EXPECT_EQ(record->payload_offset, 98u);
  EXPECT_EQ(record->record_bytes, 110u);
  const auto view = atb_bin_view(*record);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->dtype, DType::Float16);
  EXPECT_EQ(values_of(*view), (std::vector<double>{1, -2, 0.5, 0, 3.25, 65504}));
}

TEST(ReadAtbBin, ReadsEveryTypeThatHasOneHere) {
  for (int64_t number = -1; number <= 41; ++number) {
    const std::optional<DType> dtype = dtype_from_atb(number);
    if (!dtype) continue;
    const std::string payload(storage_bytes(*dtype, 6).value(), '\x01');
    const std::string file = file_of(std::to_string(number), "3,2", payload);
    const auto record = read(file);
    ASSERT_TRUE(record.has_value()) << number;
    const auto view = atb_bin_view(*record);
    ASSERT_TRUE(view.has_value()) << number << ": " << view.error().describe();
    EXPECT_EQ(view->dtype, *dtype);
    EXPECT_EQ(as_text(view->contiguous_bytes()), payload);
  }
}

TEST(ReadAtbBin, NamesTheTypeNumberThatItCannotRead) {
  for (const char* number : {"-1", "13", "5", "99"}) {
    const std::string file = file_of(number, "2", "abcd");
    const auto record = read(file);
    ASSERT_TRUE(record.has_value()) << number;
    const auto view = atb_bin_view(*record);
    ASSERT_FALSE(view.has_value()) << number;
    EXPECT_EQ(view.error().code, Errc::Unsupported);
    EXPECT_NE(view.error().message.find(number), std::string::npos) << view.error().message;
  }
}

TEST(ReadAtbBin, ReadsRankZeroAndEmptyTensors) {
  const std::string scalar = file_of("0", "", std::string("\x00\x00\x80\x3f", 4));
  const auto one = read(scalar);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(values_of(atb_bin_view(*one).value()), std::vector<double>{1});
  const std::string empty = file_of("0", "0,3", "");
  const auto none = read(empty);
  ASSERT_TRUE(none.has_value());
  ASSERT_TRUE(none->payload.has_value()) << "an empty tensor is no description";
  EXPECT_EQ(atb_bin_view(*none).value().element_count(), 0);
}

TEST(ReadAtbBin, IgnoresNamesItDoesNotKnow) {
  const std::string file =
      "$Version=1.0\n$Mood=good\n$Object.Count=1\n$Object.Length=4\ncolour=blue\nformat=2\n"
      "dtype=3\ndims=1\n$Object.data=0,4\n$End=1\n" +
      std::string("\x07\x00\x00\x00", 4);
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->attribute("colour"), "blue");
  EXPECT_EQ(values_of(atb_bin_view(*record).value()), std::vector<double>{7});
}

TEST(ReadAtbBin, StopsAtTheFirstEndLine) {
  // The payload itself looks like a header line.
  const std::string file = file_of("2", "10", "dims=1,2\nx");
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->dims, Dims{10});
}

TEST(ReadAtbBin, TakesTheObjectAtItsOffset) {
  const std::string file =
      "$Version=1.0\n$Object.Count=1\n$Object.Length=4\nformat=2\ndtype=2\ndims=2\n"
      "$Object.data=3,2\n$End=1\n...ab";
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(as_text(*record->payload), "ab");
  EXPECT_EQ(record->payload_offset, file.size() - 2);
}

TEST(ReadAtbBin, TakesEverythingBehindTheHeaderWhenItDoesNotNameAnObject) {
  const std::string file = "$Version=1.0\ndtype=2\ndims=3\n$End=1\nabc";
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->format, kAtbUndefined);
  EXPECT_EQ(as_text(*record->payload), "abc");
}

TEST(ReadAtbBin, ReadsTheFirstOfAppendedRecords) {
  const std::string first = file_of("2", "3", "abc");
  const std::string file = first + file_of("2", "3", "xyz");
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(as_text(*record->payload), "abc");
  EXPECT_EQ(record->record_bytes, first.size()) << "the second record starts here";
}

TEST(ReadAtbBin, ReadsADescription) {
  const std::string file = atb_bin_header(kHalf2x3, std::nullopt);
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_FALSE(record->payload.has_value());
  EXPECT_FALSE(record->statistics.has_value());
  EXPECT_EQ(record->dims, (Dims{2, 3}));
  EXPECT_EQ(atb_bin_view(*record).error().code, Errc::NotFound);
}

TEST(ReadAtbBin, ReadsStatistics) {
  const AtbAttribute attributes[] = {
      {"format", "2"},         {"dtype", "1"},     {"dims", "2,3"},
      {"max", "65504.000000"}, {"min", "-inf"},    {"mean", "nan"},
      {"l2norm", "N/A"},       {"nan_count", "1"}, {"inf_count", "2"}};
  const std::string file = atb_bin_header(attributes, std::nullopt);
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  ASSERT_TRUE(record->statistics.has_value());
  EXPECT_EQ(record->statistics->max, (AtbNumber{65504, 0}));
  EXPECT_EQ(record->statistics->min, (AtbNumber{-INFINITY, 0}));
  ASSERT_TRUE(record->statistics->mean.has_value());
  EXPECT_TRUE(std::isnan(record->statistics->mean->real));
  EXPECT_FALSE(record->statistics->l2norm.has_value());
  EXPECT_EQ(record->statistics->nan_count, 1);
  EXPECT_EQ(record->statistics->inf_count, 2);
}

TEST(ReadAtbBin, ReadsStatisticsOfComplexTensors) {
  const AtbAttribute attributes[] = {
      {"dtype", "16"}, {"dims", "2"}, {"max", "(3.000000,-4.000000)"}, {"l2norm", "5.099020"}};
  const std::string file = atb_bin_header(attributes, std::nullopt);
  const auto record = read(file);
  ASSERT_TRUE(record.has_value() && record->statistics.has_value());
  EXPECT_EQ(record->statistics->max, (AtbNumber{3, -4}));
  EXPECT_FALSE(record->statistics->min.has_value());
}

TEST(ReadAtbBin, ReadsStatisticsWhoseEndLineIsMissing) {
  const std::string file = "$Version=1.0\n$Object.Count=0\ndtype=1\ndims=2\nmax=1.000000\n";
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_FALSE(record->ended);
  EXPECT_EQ(record->statistics->max, (AtbNumber{1, 0}));
}

TEST(ReadAtbBin, KeepsAReferenceToAnotherFile) {
  const AtbAttribute attributes[] = {{"dtype", "1"}, {"dims", "2"}, {"data", "0_0_intensor0.bin"}};
  const std::string file = atb_bin_header(attributes, std::nullopt);
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->reference, "0_0_intensor0.bin");
  EXPECT_FALSE(record->payload.has_value());
}

TEST(ReadAtbBin, KeepsFractalNzAsStored) {
  // Logical [2, 20] of fp16: 2 column blocks of 16, rows rounded up to 16 -> 2 * 16 * 16 values.
  const std::string file = file_of("1", "2,20", std::string(1024, '\0'), "29");
  const auto record = read(file);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->dims, (Dims{2, 20}));
  EXPECT_EQ(atb_bin_view(*record).value().shape, (Dims{2, 16, 16}));
  // Usually the dims are those of the stored order already.
  const std::string tiled = file_of("1", "1,2,16,16", std::string(1024, '\0'), "29");
  EXPECT_EQ(atb_bin_view(read(tiled).value()).value().shape, (Dims{1, 2, 16, 16}));
}

TEST(ReadAtbBin, ReadsPackedInt4) {
  // Low nibble first: 0x21 is 1, 2; 0xF3 is 3, -1; the high half of the last byte is padding.
  const std::string file = file_of("29", "5", "\x21\xF3\x04");
  EXPECT_EQ(values_of(atb_bin_view(read(file).value()).value()),
            (std::vector<double>{1, 2, 3, -1, 4}));
}

TEST(ReadAtbBin, RefusesOtherFiles) {
  expect_error("", Errc::BadMagic, 0);
  expect_error("PK\x03\x04", Errc::BadMagic, 0);
}

TEST(ReadAtbBin, RefusesHeadersThatEndEarly) {
  const std::string whole = file_of("1", "2,3", kHalfBytes);
  // Every cut inside the header or the payload is an error, never a tensor.
  for (size_t size = 1; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    const auto record = read(cut);
    ASSERT_FALSE(record.has_value()) << size;
    EXPECT_EQ(record.error().code, Errc::Truncated) << size << record.error().describe();
    EXPECT_LE(record.error().offset.value(), size);
  }
}

TEST(ReadAtbBin, RefusesBrokenLines) {
  expect_error("$Version=1.0\nno equals\n", Errc::Invalid, 13);
  expect_error("$Version=1.0\na=b=c\n", Errc::Invalid, 13);
  expect_error("$Version=1.0\n=b\n", Errc::Invalid, 13);
  expect_error(std::string("$Version=1.0\na=\0\n", 17), Errc::Invalid, 15);
  expect_error("$Version=1.0\na=1\na=2\n", Errc::Invalid, 17);
  expect_error("$Version=1.0\ndtype=x\n", Errc::Invalid, 13);
  expect_error("$Version=1.0\ndims=2,-3\n", Errc::Invalid, 13);
  expect_error("$Version=1.0\ndims=2,,3\n", Errc::Invalid, 13);
  expect_error("$Version=1.0\n$Object.data=1\n", Errc::Invalid, 13);
  expect_error("$Version=1.0\ndims=1\n$End=1\n", Errc::Invalid, 27);
}

TEST(ReadAtbBin, RefusesAnObjectOutsideTheFile) {
  for (const char* object : {"0,5", "5,0", "1,18446744073709551615", "18446744073709551615,1"}) {
    const std::string head = "$Version=1.0\ndtype=2\ndims=1\n";
    expect_error(head + "$Object.data=" + object + "\n$End=1\nabcd", Errc::Truncated, head.size());
  }
}

TEST(ReadAtbBin, RefusesDimsThatNeedMoreThanThePayload) {
  const std::string small = file_of("1", "2,4", kHalfBytes);
  const auto record = read(small);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(atb_bin_view(*record).error().code, Errc::Truncated);
  EXPECT_EQ(atb_bin_view(*record).error().offset, small.size());
  const std::string huge = file_of("1", "4294967296,4294967296", kHalfBytes);
  EXPECT_EQ(atb_bin_view(read(huge).value()).error().code, Errc::TooLarge);
}

TEST(ReadAtbBin, RefusesHeadersWithoutMeasure) {
  std::string many = "$Version=1.0\n";
  for (int i = 0; i < 9000; ++i) many += "a" + std::to_string(i) + "=1\n";
  EXPECT_EQ(read(many).error().code, Errc::TooLarge);
  EXPECT_EQ(read("$Version=1.0\na=" + std::string(2 << 20, 'x') + "\n").error().code,
            Errc::TooLarge);
  std::string rank = "1";
  for (int i = 0; i < 64; ++i) rank += ",1";
  EXPECT_EQ(read(file_of("2", rank, "a")).error().code, Errc::TooLarge);
}

}  // namespace
}  // namespace assay::formats
