// SPDX-License-Identifier: Apache-2.0
#include "formats/probe_status.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace assay::formats {
namespace {

ByteSpan bytes_of(const ProbeStatus& status) {
  return {reinterpret_cast<const std::byte*>(&status), sizeof(status)};
}

ProbeStatus example() {
  ProbeStatus status;
  status.pid = 4711;
  status.started = 1767225600;  // 2026-01-01T00:00:00Z
  status.counters.tensors_seen = 10;
  status.counters.tensors_accepted = 7;
  status.counters.tensors_written = 3;
  status.counters.tensors_linked = 1;
  status.counters.tensors_failed = 1;
  status.counters.waited_us = 2500;
  set_status_text(status.tool, sizeof(status.tool), "assay 0.1.0");
  set_status_text(status.program, sizeof(status.program), "/opt/a \"host\"");
  set_status_text(status.notes[0], sizeof(status.notes[0]), "a note");
  return status;
}

TEST(OperationsNote, ListsTypesAndIds) {
  const auto note =
      parse_operations_note("operations that ran: LinearOperation, Add; ids 0_1, 0_12");
  ASSERT_TRUE(note.has_value());
  EXPECT_EQ(note->types, (std::vector<std::string>{"LinearOperation", "Add"}));
  EXPECT_EQ(note->ids, (std::vector<std::string>{"0_1", "0_12"}));
  // A note has 256 bytes: what stands at its end may be cut off.
  const auto cut = parse_operations_note("operations that ran: LinearOperation");
  ASSERT_TRUE(cut.has_value());
  EXPECT_TRUE(cut->ids.empty());
  EXPECT_FALSE(parse_operations_note("a tensor was not saved: the disk is almost full"));
}

TEST(ProbeStatus, GivesTheSummaryOfADeadProcess) {
  const std::string json = probe_summary_json(example(), false, std::nullopt);
  EXPECT_EQ(
      json,
      "{\"format\":\"assay-probe-summary\",\"version\":1,\"tool\":\"assay 0.1.0\",\"pid\":4711,"
      "\"program\":\"/opt/a \\\"host\\\"\",\"started\":\"2026-01-01T00:00:00Z\",\"ended\":null,"
      "\"complete\":false,"
      "\"tensors\":{\"seen\":10,\"accepted\":7,\"written\":3,\"linked\":1,\"failed\":1,"
      "\"dropped\":0,\"lost\":2},"
      "\"skipped\":{\"part\":0,\"time\":0,\"device\":0,\"size\":0,\"null\":0,\"header\":0,"
      "\"name\":0,\"disk\":0},"
      "\"files\":{\"tiling\":0,\"params\":0,\"layers\":0,\"models\":0,\"operation_rows\":0,"
      "\"kernel_rows\":0,\"statistics\":0,\"overflows\":0},"
      "\"bytes\":{\"payload\":0,\"queue_bound\":0,\"queue_peak\":0},"
      "\"asked\":{\"need_save\":0,\"need_save_yes\":0,\"in_range\":0,\"in_range_yes\":0,"
      "\"in_dir\":0,\"in_dir_yes\":0},"
      "\"waited_ms\":2.5,\"first_error\":\"\",\"notes\":[\"a note\"]}\n");
}

TEST(ProbeStatus, SummaryReadsBackToTheSameNumbers) {
  ProbeStatus status = example();
  status.counters.queue_peak_bytes = UINT64_MAX;
  const auto summary = read_probe_summary(probe_summary_json(status, true, 1767225605));
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->counters, status.counters);
  EXPECT_EQ(summary->pid, 4711);
  EXPECT_EQ(summary->program, "/opt/a \"host\"");
  EXPECT_EQ(summary->ended, "2026-01-01T00:00:05Z");
  EXPECT_TRUE(summary->complete);
  EXPECT_EQ(summary->notes, std::vector<std::string>{"a note"});
}

TEST(ProbeStatus, PageReadsBackAndIsCheckedFirst) {
  const ProbeStatus status = example();
  const auto read = read_probe_status(bytes_of(status));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->counters, status.counters);
  EXPECT_STREQ(read->program, "/opt/a \"host\"");

  EXPECT_EQ(read_probe_status({}).error().code, Errc::Truncated);
  EXPECT_EQ(read_probe_status(bytes_of(status).first(100)).error().code, Errc::Truncated);
  ProbeStatus foreign = status;
  foreign.magic[7] = '2';
  EXPECT_EQ(read_probe_status(bytes_of(foreign)).error().code, Errc::BadMagic);
  ProbeStatus newer = status;
  newer.version = 2;
  EXPECT_EQ(read_probe_status(bytes_of(newer)).error().code, Errc::Unsupported);
}

TEST(ProbeStatus, DamagedTextsAreCutAtTheirFields) {
  ProbeStatus status = example();
  std::memset(status.program, 'x', sizeof(status.program));
  const auto summary = read_probe_summary(probe_summary_json(status, true, 0));
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->program, std::string(sizeof(status.program), 'x'));
}

TEST(ProbeStatus, CutsTextsBetweenCharacters) {
  char field[4];
  set_status_text(field, sizeof(field), "ab\xC3\xA9");  // the last letter has two bytes
  EXPECT_STREQ(field, "ab");
  set_status_text(field, sizeof(field), "abc");
  EXPECT_STREQ(field, "abc");
}

TEST(ProbeSummary, RefusesWhatIsNoSummary) {
  EXPECT_EQ(read_probe_summary("").error().code, Errc::Invalid);
  EXPECT_EQ(read_probe_summary("[]").error().code, Errc::Invalid);
  EXPECT_EQ(read_probe_summary(R"({"format":"assay-run","version":1})").error().code,
            Errc::Invalid);
  EXPECT_EQ(read_probe_summary(R"({"format":"assay-probe-summary","version":2})").error().code,
            Errc::Invalid);
  // Wrong types are as good as missing.
  const auto odd = read_probe_summary(
      R"({"format":"assay-probe-summary","version":1,"tensors":{"seen":"x"},"waited_ms":-1,"notes":[1]})");
  ASSERT_TRUE(odd.has_value());
  EXPECT_EQ(odd->counters, ProbeCounters{});
  EXPECT_TRUE(odd->notes.empty());
}

TEST(ProbeSummary, CountersOfProcessesAddUp) {
  ProbeSummary one;
  one.counters.tensors_written = 3;
  one.counters.waited_us = 5;
  ProbeSummary two;
  two.counters.tensors_written = 4;
  two.counters.asked_in_dir_yes = 1;
  const ProbeSummary processes[] = {one, two};
  ProbeCounters expected;
  expected.tensors_written = 7;
  expected.waited_us = 5;
  expected.asked_in_dir_yes = 1;
  EXPECT_EQ(sum_of_counters(processes), expected);
}

}  // namespace
}  // namespace assay::formats
