// SPDX-License-Identifier: Apache-2.0
#include "formats/overflow_report.hpp"

#include <gtest/gtest.h>

namespace assay::formats {
namespace {

/// Numbers one after the other, at their own width.
template <typename... Numbers>
std::string packed(Numbers... numbers) {
  std::string out;
  (append(out, numbers), ...);
  return out;
}
std::string at(size_t offset, const std::string& content, std::string payload = {}) {
  payload.resize(std::max(payload.size(), offset + content.size()), '\0');
  return payload.replace(offset, content.size(), content);
}
using U64 = uint64_t;
using U32 = uint32_t;

OverflowReport read(const std::string& payload) {
  const auto report = read_overflow_report(as_bytes(payload));
  EXPECT_TRUE(report.has_value()) << report.error().describe();
  return report ? *report : OverflowReport{};
}

/// Only the AI Core reports; the numbers of docs/formats/overflow-report.md.
std::string old_payload() {
  std::string payload = at(
      256, packed(U64{514}, U64{563}, U64{57}, U64{0}, U64{0x1008005b0000}, U64{0x100800297000}));
  payload = at(1024, packed(U64{0x1008005ae000}, U64{1}, U64{32}), payload);
  payload.resize(2048, '\0');
  return payload;
}

std::string core_payload(U32 version, const std::string& status) {
  const std::string data = packed(U64{1}, U64{2}, U64{3}, U64{4}, U64{5}, U64{6}, U64{0x70},
                                  U64{0x80}, U64{9}, U64{10}) +
                           status;
  return packed(U32{0x5a5a5a5a}, version, U32{1}, U32{0}, U32{0}, static_cast<U32>(data.size())) +
         data;
}

TEST(ReadOverflowReport, ReadsTheOldForm) {
  const OverflowReport report = read(old_payload());
  EXPECT_TRUE(report.is_old);
  ASSERT_EQ(report.entries.size(), 1u);
  const OverflowEntry& entry = report.entries[0];
  EXPECT_EQ(entry.core, OverflowCore::AiCore);
  EXPECT_EQ(entry.model_id, 514u);
  EXPECT_EQ(entry.stream_id, 563u);
  EXPECT_EQ(entry.task_id, 57u);
  EXPECT_EQ(entry.pc_start, 0x1008005b0000u);
  EXPECT_EQ(entry.para_base, 0x100800297000u);
  EXPECT_EQ(entry.kernel_code, 0x1008005ae000u);
  EXPECT_EQ(entry.block_id, 1u);
  EXPECT_EQ(entry.status[0], 32u);
}

TEST(ReadOverflowReport, ReadsAtomicAdditionsOfTheOldForm) {
  std::string payload = at(0, packed(U64{1}, U64{2}, U64{3}), std::string(2048, '\0'));
  payload = at(512, packed(U64{4}), payload);
  payload = at(128, packed(U64{11}, U64{12}, U64{13}), payload);
  payload = at(768, packed(U64{2}), payload);
  const OverflowReport report = read(payload);
  ASSERT_EQ(report.entries.size(), 2u);
  EXPECT_EQ(report.entries[0].core, OverflowCore::DhaAtomicAdd);
  EXPECT_EQ(report.entries[0].task_id, 3u);
  EXPECT_EQ(report.entries[0].status[0], 4u);
  EXPECT_EQ(report.entries[1].core, OverflowCore::L2AtomicAdd);
  EXPECT_EQ(report.entries[1].stream_id, 12u);
  EXPECT_EQ(report.entries[1].status[0], 2u);
}

TEST(ReadOverflowReport, ReadsTheNewFormOfACore) {
  const OverflowReport report = read(core_payload(0, packed(U64{0x110})));
  EXPECT_FALSE(report.is_old);
  ASSERT_EQ(report.entries.size(), 1u);
  const OverflowEntry& entry = report.entries[0];
  EXPECT_EQ(entry.context_id, 5u);
  EXPECT_EQ(entry.thread_id, 6u);
  EXPECT_EQ(entry.pc_start, 0x70u);
  EXPECT_EQ(entry.core_id, 9u);
  EXPECT_EQ(entry.block_id, 10u);
  EXPECT_EQ(entry.status[0], 0x110u);
}

TEST(ReadOverflowReport, ReadsFourWordsOfStatusFromVersionOne) {
  const OverflowReport report = read(core_payload(1, packed(U64{1}, U64{2}, U64{3}, U64{4})));
  EXPECT_EQ(report.version, 1u);
  EXPECT_EQ(report.entries.at(0).status, (std::array<uint64_t, 4>{1, 2, 3, 4}));
}

TEST(ReadOverflowReport, ReadsTheOtherKindsOfTheNewForm) {
  const OverflowReport cpu =
      read(packed(U32{0x5a5a5a5a}, U32{0}, U32{1}, U32{2}, U32{0}, U32{64}, U64{1}, U64{2}, U64{3},
                  U64{4}, U64{5}, U64{6}, U64{7}, U64{8}));
  EXPECT_EQ(cpu.entries.at(0).core, OverflowCore::AiCpu);
  EXPECT_EQ(cpu.entries[0].cpu_id, 6u);
  EXPECT_EQ(cpu.entries[0].thread_id, 7u);
  EXPECT_EQ(cpu.entries[0].status[0], 8u);
  const OverflowReport sdma =
      read(packed(U32{0x5a5a5a5a}, U32{0}, U32{1}, U32{3}, U32{0}, U32{80}, U64{1}, U64{2}, U64{3},
                  U64{4}, U64{5}, U64{6}, U64{7}, U64{8}, U64{9}, U64{10}));
  EXPECT_EQ(sdma.entries.at(0).core, OverflowCore::Sdma);
  EXPECT_EQ(sdma.entries[0].source_address, 7u);
  EXPECT_EQ(sdma.entries[0].target_address, 8u);
  EXPECT_EQ(sdma.entries[0].channel_id, 9u);
  EXPECT_EQ(sdma.entries[0].status[0], 10u);
}

TEST(ReadOverflowReport, FindsNothingWhereNothingIsReported) {
  EXPECT_TRUE(read(std::string(2048, '\0')).entries.empty());
  EXPECT_TRUE(
      read(packed(U32{0x5a5a5a5a}, U32{0}, U32{0}, U32{0}, U32{0}, U32{0})).entries.empty());
}

TEST(ReadOverflowReport, RefusesWhatIsNoReport) {
  const auto error_of = [](const std::string& payload) {
    const auto report = read_overflow_report(as_bytes(payload));
    return report ? Errc::Internal : report.error().code;
  };
  EXPECT_EQ(error_of(""), Errc::Truncated);
  EXPECT_EQ(error_of(std::string(2047, '\0')), Errc::Invalid);
  EXPECT_EQ(error_of(packed(U32{0x5a5a5a5a}, U32{0}, U32{1})), Errc::Truncated);
  EXPECT_EQ(error_of(core_payload(0, "")), Errc::Invalid);  // no status
  std::string cut = core_payload(0, packed(U64{1}));
  cut.pop_back();
  EXPECT_EQ(error_of(cut), Errc::Truncated);
  EXPECT_EQ(error_of(packed(U32{0x5a5a5a5a}, U32{0}, U32{1}, U32{9}, U32{0}, U32{0})),
            Errc::Unsupported);
}

TEST(WriteOverflowReport, ReadsBack) {
  for (const OverflowCore core :
       {OverflowCore::AiCore, OverflowCore::AiVector, OverflowCore::AiCpu, OverflowCore::Sdma,
        OverflowCore::DhaAtomicAdd, OverflowCore::L2AtomicAdd}) {
    OverflowEntry entry;
    entry.core = core;
    entry.model_id = 3;
    entry.stream_id = 7;
    entry.task_id = ~uint64_t{0};
    entry.status[0] = 0x20;
    const std::vector<std::byte> payload = write_overflow_report(entry);
    EXPECT_EQ(payload.size(), 2048u);
    const auto report = read_overflow_report(payload);
    ASSERT_TRUE(report.has_value());
    ASSERT_EQ(report->entries.size(), 1u);
    EXPECT_EQ(report->entries[0], entry);
  }
}

TEST(OverflowReportJson, HasTheOriginalsKeys) {
  EXPECT_EQ(overflow_report_json(read(old_payload())), R"({
    "DHA Atomic Add": {
        "model_id": 0,
        "stream_id": 0,
        "task_id": 0,
        "task_type": 0,
        "pc_start": "0x0",
        "para_base": "0x0",
        "status": 0
    },
    "L2 Atomic Add": {
        "model_id": 0,
        "stream_id": 0,
        "task_id": 0,
        "task_type": 0,
        "pc_start": "0x0",
        "para_base": "0x0",
        "status": 0
    },
    "AI Core": {
        "model_id": 514,
        "stream_id": 563,
        "task_id": 57,
        "task_type": 0,
        "pc_start": "0x1008005b0000",
        "para_base": "0x100800297000",
        "kernel_code": "0x1008005ae000",
        "block_id": 1,
        "status": 32
    }
})");
  EXPECT_EQ(overflow_report_json(read(core_payload(1, packed(U64{1}, U64{0}, U64{0}, U64{8})))),
            R"({
    "magic": "0x5a5a5a5a",
    "version": 1,
    "acc_list": {
        "valid": 1,
        "acc_type": "AIC",
        "rsv": 0,
        "data_len": 112,
        "data": {
            "model_id": 1,
            "stream_id": 2,
            "task_id": 3,
            "task_type": 4,
            "context_id": 5,
            "thread_id": 6,
            "pc_start": "0x70",
            "para_base": "0x80",
            "core_id": 9,
            "block_id": 10,
            "status": [
                1,
                0,
                0,
                8
            ]
        }
    }
})");
}

TEST(OverflowCauses, NamesEveryBit) {
  OverflowEntry entry;
  EXPECT_TRUE(overflow_causes(entry).empty());
  entry.status[0] = 0x110;
  EXPECT_EQ(overflow_causes(entry),
            (std::vector<std::string>{
                "an integer addition, subtraction, multiplication or multiply-add overflowed",
                "a conversion of float32 or int32 to float16 overflowed"}));
  entry.status = {0, 0, 0x20, 0};
  EXPECT_EQ(overflow_causes(entry),
            std::vector<std::string>{"a floating-point operation overflowed"});
  entry.status = {0x8488, 0, 0, 0};
  EXPECT_EQ(overflow_causes(entry).size(), 4u);
  EXPECT_EQ(overflow_causes(entry).back(), "status 0x8000 without a known meaning");
  entry.core = OverflowCore::L2AtomicAdd;
  EXPECT_EQ(overflow_causes(entry),
            std::vector<std::string>{"an atomic addition in memory overflowed"});
}

}  // namespace
}  // namespace assay::formats
