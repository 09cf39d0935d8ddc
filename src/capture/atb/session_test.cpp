// SPDX-License-Identifier: Apache-2.0
#include "capture/atb/session.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>
#include <vector>

#include "base/atomic_file.hpp"

namespace assay::capture::atb {
namespace {

namespace fs = std::filesystem;

const unsigned char kHalves[12] = {0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38,
                                   0x00, 0x00, 0x80, 0x42, 0xff, 0x7b};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    std::string pattern = (fs::temp_directory_path() / "assay_probe_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    settings_.types = kTensor;
    settings_.save_data = true;
    settings_.part = 2;
    settings_.range.all = true;
    settings_.disk_reserve_bytes = 0;
    options_.root = folder_ + "/dump";
    options_.pid = 4711;
    options_.program = "/opt/host";
  }
  ~SessionTest() override { fs::remove_all(folder_); }

  // Sessions live as long as the process, as in a host.
  AtbSession& session() {
    // Reachable to the end, so that nobody takes them for leaks.
    static auto* const all = new std::vector<AtbSession*>();
    if (session_ == nullptr)
      all->push_back(session_ = AtbSession::open(settings_, options_).value());
    return *session_;
  }
  void save(const std::string& path, const void* data, uint64_t size, std::string dtype = "1",
            std::string dims = "2,3") {
    session().save_tensor(settings_, {"2", dtype, dims, data, size, path});
  }
  std::string text(const std::string& name) const {
    std::ifstream file(options_.root + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  formats::ProbeSummary summary() const {
    return formats::read_probe_summary(text("probe_summary_4711.json")).value();
  }

  std::string folder_;
  Settings settings_;
  SessionOptions options_;
  AtbSession* session_ = nullptr;
};

TEST_F(SessionTest, WritesTheRecordOfTheFormatDocument) {
  save("0_1/0/2_A/before/intensor0.bin", kHalves, 12);
  session().finish();
  EXPECT_EQ(text("tensors/0_1/0/2_A/before/intensor0.bin"),
            "$Version=1.0\n$Object.Count=1\n$Object.Length=12\nformat=2\ndtype=1\ndims=2,3\n"
            "$Object.data=0,12\n$End=1\n" +
                std::string(reinterpret_cast<const char*>(kHalves), 12));
  EXPECT_EQ(summary().counters.tensors_written, 1u);
  EXPECT_EQ(summary().counters.payload_bytes, 12u);
  EXPECT_TRUE(summary().complete);
  EXPECT_FALSE(fs::exists(options_.root + "/probe_status_4711"));
}

TEST_F(SessionTest, WritesDescriptionsAndStatisticsWithoutData) {
  settings_.save_data = false;
  save("0_1/0/2_A/before/intensor0.bin", kHalves, 12);
  settings_.statistics = true;
  settings_.statistics_text = StatisticsText::Decimals;
  save("0_1/0/2_A/before/intensor1.bin", kHalves, 12);
  session().finish();
  EXPECT_EQ(
      text("tensors/0_1/0/2_A/before/intensor0.bin"),
      "$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=2,3\n$End=1\n");
  EXPECT_EQ(text("tensors/0_1/0/2_A/before/intensor1.bin"),
            "$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=2,3\n"
            "max=65504.000000\nmin=-2.000000\nmean=10917.791667\nl2norm=65504.000121\n$End=1\n");
}

TEST_F(SessionTest, TheHostsRoundingModeChangesNoStatistic) {
  settings_.statistics = true;
  const float values[] = {1, 2, 2};  // the mean is 5/3: the nearest double is above it
  std::fesetround(FE_DOWNWARD);
  save("0_1/0/2_A/before/intensor0.bin", values, sizeof(values), "0", "3");
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD);
  std::fesetround(FE_TONEAREST);
  session().finish();
  EXPECT_NE(text("tensors/0_1/0/2_A/before/intensor0.bin").find("mean=1.6666666666666667\n"),
            std::string::npos);
}

TEST_F(SessionTest, LeavesOutTheDataOfKernelsAlone) {
  settings_.without_kernel_data = true;
  save("0_1/0/2_A/0_MatMulKernel/before/intensor0.bin", kHalves, 12);
  save("0_1/0/2_A/before/intensor0.bin", kHalves, 12);
  session().finish();
  EXPECT_TRUE(text("tensors/0_1/0/2_A/0_MatMulKernel/before/intensor0.bin").ends_with("$End=1\n"));
  EXPECT_FALSE(text("tensors/0_1/0/2_A/before/intensor0.bin").ends_with("$End=1\n"));
  EXPECT_EQ(summary().counters.payload_bytes, 12u);
}

TEST_F(SessionTest, CountsWhatItSkipsAndWhy) {
  settings_.in_before_out_after = true;
  settings_.devices = {"0"};
  const std::string in = "0_1/0/2_A/before/intensor0.bin";
  save("0_1/0/2_A/before/outtensor0.bin", kHalves, 12);  // time
  save("1_1/0/2_A/before/intensor0.bin", kHalves, 12);   // device
  save(in, kHalves, 0);                                  // size
  save(in, kHalves, (10ull << 30) + 1);                  // size
  save(in, nullptr, 12);                                 // null
  save(in, kHalves, 12, std::string(51, '1'));           // header
  save(in, kHalves, 12, "1", "2\nevil=3");               // header (and no shape to trust)
  save("../intensor0.bin", kHalves, 12);                 // name
  settings_.part = 1;
  save(in, kHalves, 12);  // part
  settings_.part = 2;
  save(in, kHalves, 12);
  session().finish();
  const auto counters = summary().counters;
  EXPECT_EQ(counters.tensors_seen, 10u);
  EXPECT_EQ(counters.tensors_written, 1u);
  EXPECT_EQ(counters.skipped_time, 1u);
  EXPECT_EQ(counters.skipped_device, 1u);
  EXPECT_EQ(counters.skipped_size, 2u);
  EXPECT_EQ(counters.skipped_null, 1u);
  EXPECT_EQ(counters.skipped_header, 2u);
  EXPECT_EQ(counters.skipped_name, 1u);
  EXPECT_EQ(counters.skipped_part, 1u);
}

TEST_F(SessionTest, MemoryThatEndsTooEarlyIsNoReasonToEndTheHost) {
  // Two pages of which the second may not be read.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  mprotect(static_cast<char*>(memory) + page, page, PROT_NONE);
  save("0_1/0/2_A/before/intensor0.bin", memory, 2 * page, "4", "16");  // 16 bytes say the dims
  session().save_tiling(settings_, memory, 2 * page, "0_1/0/2_A/0_K/kernel_tilingdata.bin");
  // What can be read is saved, although the shape says otherwise: formats may pad.
  save("0_1/0/2_A/before/intensor1.bin", memory, page, "4", "16");
  session().finish();
  munmap(memory, 2 * page);
  EXPECT_EQ(summary().counters.skipped_size, 1u);
  EXPECT_EQ(summary().counters.tiling_files, 0u);
  EXPECT_EQ(summary().counters.payload_bytes, page);
}

TEST_F(SessionTest, SlowDiskKeepsTheQueueWithinItsBound) {
  settings_.queue_bytes = 100'000;
  std::atomic<uint64_t> largest{0};
  options_.write_file = [&largest](const std::string&, ByteSpan content, unsigned) -> Status {
    largest = std::max<uint64_t>(largest, content.size());
    std::this_thread::yield();
    return {};
  };
  std::vector<unsigned char> bytes(30'000);
  for (int i = 0; i < 200; ++i) {
    save("0_1/0/2_A/after/outtensor" + std::to_string(i) + ".bin", bytes.data(), bytes.size(), "4",
         "30000");
  }
  session().finish();
  const auto& counters = session().counters();
  EXPECT_EQ(counters.tensors_written, 200u);
  EXPECT_EQ(counters.queue_bound_bytes, 100'000u);
  EXPECT_LE(counters.queue_peak_bytes, 100'000u);
  EXPECT_GT(counters.queue_peak_bytes, 30'000u);
  EXPECT_GE(largest.load(), 30'000u);
}

TEST_F(SessionTest, WaitsForAStuckDiskAndCountsTheTime) {
  settings_.queue_bytes = 2'000;
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  options_.write_file = [opened](const std::string&, ByteSpan, unsigned) -> Status {
    opened.wait();
    return {};
  };
  std::vector<unsigned char> bytes(1'000);
  save("0_1/0/2_A/after/outtensor0.bin", bytes.data(), bytes.size(), "4", "1000");
  std::promise<void> about_to_wait;
  std::thread host([&] {
    about_to_wait.set_value();
    save("0_1/0/2_A/after/outtensor1.bin", bytes.data(), bytes.size(), "4", "1000");
    save("0_1/0/2_A/after/outtensor2.bin", bytes.data(), bytes.size(), "4", "1000");
  });
  about_to_wait.get_future().wait();
  gate.set_value();
  host.join();
  session().finish();
  EXPECT_EQ(session().counters().tensors_written, 3u);
  EXPECT_EQ(session().counters().tensors_dropped, 0u);
}

TEST_F(SessionTest, DropsAndCountsWhenToldSo) {
  settings_.queue_bytes = 2'000;
  settings_.drop_when_full = true;
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  options_.write_file = [opened](const std::string&, ByteSpan, unsigned) -> Status {
    opened.wait();
    return {};
  };
  std::vector<unsigned char> bytes(1'500);
  for (int i = 0; i < 5; ++i) {
    save("0_1/0/2_A/after/outtensor" + std::to_string(i) + ".bin", bytes.data(), bytes.size(), "4",
         "1500");
  }
  session().save_param(settings_, "{}", "0_1/0/2_A/op_param.json");  // small things are kept
  gate.set_value();
  session().finish();
  const auto& counters = session().counters();
  EXPECT_EQ(counters.tensors_accepted, 1u);
  EXPECT_EQ(counters.tensors_dropped, 4u);
  EXPECT_EQ(counters.param_files, 1u);
}

TEST_F(SessionTest, KeepsTheFirstErrorAndGoesOn) {
  int calls = 0;
  options_.write_file = [&calls](const std::string& path, ByteSpan content,
                                 unsigned mode) -> Status {
    if (++calls <= 2)
      return fail(Error{Errc::NoSpace, path, {}, "cannot write: number " + std::to_string(calls)});
    return write_file_atomically(path, content, mode);
  };
  for (int i = 0; i < 4; ++i) {
    save("0_1/0/2_A/after/outtensor" + std::to_string(i) + ".bin", kHalves, 12);
  }
  session().finish();
  EXPECT_EQ(summary().counters.tensors_failed, 2u);
  EXPECT_EQ(summary().counters.tensors_written, 2u);
  EXPECT_EQ(formats::tensors_lost(summary().counters), 0u);
  EXPECT_NE(summary().first_error.find("number 1"), std::string::npos);
}

TEST_F(SessionTest, AFullDiskIsLeftAlone) {
  settings_.disk_reserve_bytes = 1ull << 60;
  save("0_1/0/2_A/after/outtensor0.bin", kHalves, 12);
  session().finish();
  EXPECT_EQ(summary().counters.skipped_disk, 1u);
  EXPECT_FALSE(fs::exists(options_.root + "/tensors"));
  ASSERT_EQ(summary().notes.size(), 1u);
  EXPECT_NE(summary().notes[0].find("disk is almost full"), std::string::npos);
}

TEST_F(SessionTest, CallsAfterTheEndAreWrittenAtOnceAndCounted) {
  save("0_1/0/2_A/after/outtensor0.bin", kHalves, 12);
  session().finish();
  EXPECT_EQ(summary().counters.tensors_written, 1u);
  save("0_1/0/2_A/after/outtensor1.bin", kHalves, 12);
  EXPECT_TRUE(fs::exists(options_.root + "/tensors/0_1/0/2_A/after/outtensor1.bin"));
  EXPECT_EQ(summary().counters.tensors_written, 2u);
}

TEST_F(SessionTest, SynchronousModeHasWrittenWhenTheCallReturns) {
  settings_.write_in_caller = true;
  save("0_1/0/2_A/after/outtensor0.bin", kHalves, 12);
  EXPECT_TRUE(fs::exists(options_.root + "/tensors/0_1/0/2_A/after/outtensor0.bin"));
  // The page tells a reader of the file what a killed process did.
  const std::string page = text("probe_status_4711");
  const auto status = formats::read_probe_status(as_bytes(page));
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->counters.tensors_written, 1u);
  EXPECT_STREQ(status->program, "/opt/host");
  session().finish();
}

TEST_F(SessionTest, FourThreadsLoseNothing) {
  settings_.queue_bytes = 4'000;
  session();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 50; ++i) {
        save("0_1/" + std::to_string(t) + "/2_A/after/outtensor" + std::to_string(i) + ".bin",
             kHalves, 12);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  session().finish();
  EXPECT_EQ(summary().counters.tensors_written, 200u);
  EXPECT_EQ(std::distance(fs::directory_iterator(options_.root + "/tensors/0_1/3/2_A/after"),
                          fs::directory_iterator()),
            50);
}

TEST_F(SessionTest, NotesSayWhatTheLibraryCannotTell) {
  settings_.tiling = true;
  const unsigned char zeros[32] = {};
  for (int i = 0; i < 2; ++i) {
    session().save_tiling(settings_, zeros, 32, "0_1/0/2_A/1_AddKernel/kernel_tilingdata.bin");
  }
  session().report_setup(settings_, 1, "A_2", "totalTime:0, runnerCreateTime:0");
  session().finish();
  const auto notes = summary().notes;
  const auto has = [&notes](const char* part) {
    return std::any_of(notes.begin(), notes.end(), [part](const std::string& note) {
      return note.find(part) != std::string::npos;
    });
  };
  EXPECT_TRUE(has("kernels behind the first"));
  EXPECT_TRUE(has("all zero"));
  EXPECT_TRUE(has("replayed"));
  EXPECT_TRUE(has("resets its statistics"));
  EXPECT_EQ(notes.size(), 4u);
}

// One report of zeros among others says nothing about the library: an operation may need no time.
TEST_F(SessionTest, OneReportOfZerosAmongOthersIsNoNote) {
  session().report_execute(settings_, 1, "A_2", "totalTime:0, runnerCreateTime:0");
  session().report_execute(settings_, 1, "B_3", "totalTime:17, runnerCreateTime:0");
  session().finish();
  for (const std::string& note : summary().notes)
    EXPECT_EQ(note.find("every number"), std::string::npos) << note;
}

TEST_F(SessionTest, AFolderThatCannotBeMadeIsAnError) {
  std::ofstream(folder_ + "/file") << "x";
  options_.root = folder_ + "/file/dump";
  EXPECT_FALSE(AtbSession::open(settings_, options_).has_value());
}

}  // namespace
}  // namespace assay::capture::atb
