// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "base/atomic_file.hpp"
#include "base/bytes.hpp"
#include "base/display.hpp"
#include "base/file_changes.hpp"
#include "base/hosted_descriptor.hpp"
#include "base/interruption.hpp"
#include "base/mapped_file.hpp"
#include "base/paths.hpp"
#include "base/simd.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"

namespace assay {
namespace {

std::string temporary_folder() {
  std::string pattern = testing::TempDir() + "assay_base_XXXXXX";
  return mkdtemp(pattern.data());
}

// Columns: "a" 1, U+00E9 1, U+5C42 (a Chinese layer) 2, U+0301 (an accent over what is before) 0,
// U+1F600 (a face) 2.
constexpr std::string_view kMixed = "a\xC3\xA9\xE5\xB1\x82\x65\xCC\x81\xF0\x9F\x98\x80";

TEST(DisplayColumns, CountsWhatATerminalShows) {
  EXPECT_EQ(display_columns(""), 0u);
  EXPECT_EQ(display_columns(kMixed), 7u);
  EXPECT_EQ(display_columns("\xFF\xFE"), 2u);  // no UTF-8: a column a byte
}

TEST(DisplayColumns, CutsBetweenCharacters) {
  EXPECT_EQ(first_columns(kMixed, 3), "a\xC3\xA9");  // a half of the next would fit
  EXPECT_EQ(first_columns(kMixed, 5), "a\xC3\xA9\xE5\xB1\x82\x65\xCC\x81");
  EXPECT_EQ(last_columns(kMixed, 3), "\x65\xCC\x81\xF0\x9F\x98\x80");
  EXPECT_EQ(last_columns(kMixed, 2), "\xF0\x9F\x98\x80");
  EXPECT_EQ(last_columns(kMixed, 1), "");
  EXPECT_EQ(last_columns(kMixed, 99), kMixed);
}

TEST(NumberRanges, JoinsNeighbours) {
  const std::vector<int64_t> numbers = {0, 1, 2, 5, 7, 8};
  EXPECT_EQ(number_ranges(numbers, ", "), "0-2, 5, 7-8");
  EXPECT_EQ(number_ranges({}, ","), "");
}

TEST(PythonRepr, PrintsWhatPythonPrints) {
  // Each right-hand side is the output of repr() in CPython 3.11.
  EXPECT_EQ(python_repr(1.0), "1.0");
  EXPECT_EQ(python_repr(-0.0), "-0.0");
  EXPECT_EQ(python_repr(0.1), "0.1");
  EXPECT_EQ(python_repr(5.4772257804870605), "5.4772257804870605");
  EXPECT_EQ(python_repr(1e-4), "0.0001");
  EXPECT_EQ(python_repr(1e-5), "1e-05");
  EXPECT_EQ(python_repr(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(python_repr(9007199254740993.0), "9007199254740992.0");
  EXPECT_EQ(python_repr(1e16), "1e+16");
  EXPECT_EQ(python_repr(5e-324), "5e-324");
  EXPECT_EQ(python_repr(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(python_repr(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(JsonQuote, EscapesControlCharactersAndReplacesInvalidUtf8) {
  EXPECT_EQ(json_quote("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
  EXPECT_EQ(json_quote("\xC3\xA9"), "\"\xC3\xA9\"");
  EXPECT_EQ(json_quote("\xFFx"), "\"\xEF\xBF\xBDx\"");
  EXPECT_EQ(json_quote("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(HumanBytes, UsesPowersOfAThousand) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1234567), "1.2 MB");
  EXPECT_EQ(human_bytes(999'999), "1.0 MB");
}

TEST(Counted, EndsAsEnglishDoes) {
  EXPECT_EQ(counted(0, "weight"), "0 weights");
  EXPECT_EQ(counted(1, "weight"), "1 weight");
  EXPECT_EQ(counted(2, "process"), "2 processes");
}

TEST(Lanes, AreAddedInAFixedOrder) {
  // 1e16 + 1 is 1e16: only the order (0 4)(2 6)(1 5)(3 7) keeps the ones of the lanes 1 and 5
  // together.
  const simd::f64x8 lanes = {1e16, 1, 0, 0, -1e16, 1, 0, 3};
  EXPECT_EQ(simd::add_lanes(lanes), 5);
  EXPECT_EQ(simd::largest_lane(-lanes), 1e16);
}

TEST(Paths, ALinkThatLeadsNowhereTakesItsName) {
  const std::string folder = testing::TempDir() + "paths";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink("nowhere", folder + "/link");
  EXPECT_TRUE(exists(folder));
  EXPECT_FALSE(exists(folder + "/link"));
  EXPECT_TRUE(is_taken(folder + "/link"));
  EXPECT_FALSE(is_taken(folder + "/other"));
}

TEST(ByteReader, SaysWhereTheBytesEnd) {
  const std::string bytes("\x01\x00\x00\x00\xFF", 5);
  ByteReader reader(as_bytes(bytes));
  EXPECT_EQ(reader.read<uint32_t>().value(), 1u);
  const auto second = reader.read<uint32_t>();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::Truncated);
  EXPECT_EQ(second.error().offset, 4u);
}

TEST(MappedFile, RefusesFoldersAndMissingFiles) {
  EXPECT_EQ(MappedFile::open("/nonexistent/file").error().code, Errc::NotFound);
  EXPECT_EQ(MappedFile::open("/").error().code, Errc::Unsupported);
}

TEST(MappedFile, MapsAnEmptyFileAsNoBytes) {
  const std::string path = temporary_folder() + "/empty";
  std::ofstream(path).close();
  EXPECT_EQ(MappedFile::open(path).value().bytes().size(), 0u);
}

/// A file of 64 KiB of ones, which is mapped and not copied.
std::string file_of_ones() {
  const std::string path = temporary_folder() + "/ones";
  std::ofstream(path) << std::string(65536, '\1');
  return path;
}

TEST(ReadingScope, AFileThatWasCutShowsZerosAndIsNamed) {
  const std::string path = file_of_ones();
  const MappedFile file = MappedFile::open(path).value();
  const ReadingScope reading;
  EXPECT_TRUE(reading.finish());
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(file.bytes()[40000], std::byte{0});
  const Status status = reading.finish();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().path, path);
  EXPECT_EQ(status.error().code, Errc::Io);
  EXPECT_FALSE(check_unchanged(file.bytes()));
  EXPECT_TRUE(ReadingScope().finish());  // what comes later has not read it
}

TEST(ReadingScope, EveryThreadThatReadsSurvives) {
  const std::string path = file_of_ones();
  const MappedFile file = MappedFile::open(path).value();
  const ReadingScope reading;
  std::filesystem::resize_file(path, 0);
  std::atomic<int> sum{0};
  parallel_for(16, 4, [&](size_t i) { sum += static_cast<int>(file.bytes()[i * 4096]); });
  EXPECT_EQ(sum.load(), 0);
  EXPECT_FALSE(reading.finish());
}

TEST(ReadingScope, AFileThatOnlyGrewIsTheSame) {
  const std::string path = file_of_ones();
  const ReadingScope reading;
  const MappedFile file = MappedFile::open(path).value();
  std::filesystem::resize_file(path, 1 << 20);
  EXPECT_TRUE(reading.finish());
}

TEST(MappedFile, AnotherHandlerIsBackWithTheLastMapping) {
  struct sigaction action{};
  action.sa_handler = [](int) {};
  struct sigaction before{};
  ::sigaction(SIGBUS, &action, &before);
  struct sigaction now{};
  {
    const MappedFile file = MappedFile::open(file_of_ones()).value();
    ::sigaction(SIGBUS, nullptr, &now);
    EXPECT_NE(now.sa_handler, action.sa_handler);
  }
  ::sigaction(SIGBUS, nullptr, &now);
  EXPECT_EQ(now.sa_handler, action.sa_handler);
  ::sigaction(SIGBUS, &before, nullptr);
}

TEST(Printable, NothingStaysThatATerminalObeys) {
  // Escape, CSI as C1 and as a single byte that is no UTF-8, DEL, right-to-left override, isolate.
  EXPECT_EQ(printable("a\x1b[2J\xc2\x9b\x9b\x7f\xe2\x80\xae\xe2\x81\xa6z"),
            "a?[2J?\xEF\xBF\xBD???z");
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f \xe5\xb1\x82"), "gr\xc3\xbc\xc3\x9f \xe5\xb1\x82");
  EXPECT_EQ(printable_screen("\033[31mred\033[0m\n\033[8mhidden"),
            "\033[31mred\033[0m\n?[8mhidden");
  EXPECT_EQ(json_quote("\x1b\xc2\x9b\xe2\x80\xae"), "\"\\u001b\\u009b\\u202e\"");
}

TEST(WriteFileAtomically, ReplacesTheOldContentAndLeavesNoTemporaryFile) {
  const std::string folder = temporary_folder();
  ASSERT_TRUE(write_file_atomically(folder + "/a", as_bytes("old")));
  ASSERT_TRUE(write_file_atomically(folder + "/a", as_bytes("new")));
  EXPECT_EQ(as_text(MappedFile::open(folder + "/a").value().bytes()), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(CreateFileAtomically, LeavesWhatIsThereAndSaysSo) {
  const std::string folder = temporary_folder();
  EXPECT_TRUE(create_file_atomically(folder + "/a", as_bytes("first")).value());
  EXPECT_FALSE(create_file_atomically(folder + "/a", as_bytes("second")).value());
  EXPECT_EQ(as_text(MappedFile::open(folder + "/a").value().bytes()), "first");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_FALSE(create_file_atomically(folder + "/none/a", as_bytes("x")).has_value());
}

// A daemon closes every descriptor and opens files of its own: our number then leads to one of
// them.
TEST(HostedDescriptor, NeitherUsesNorClosesANumberThatTheHostHasTaken) {
  const std::string folder = temporary_folder();
  const std::string ours = folder + "/ours";
  HostedDescriptor file(::open(ours.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  ASSERT_TRUE(file.check_place(ours));

  const int number = file.get();
  ::close(number);
  EXPECT_FALSE(file.check(ours));
  const int taken = ::open((folder + "/host").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_EQ(taken, number);
  EXPECT_THAT(file.check(ours).error().message, testing::HasSubstr("the host has closed"));
  EXPECT_EQ(file.close(), 0);
  EXPECT_EQ(::fcntl(taken, F_GETFD), FD_CLOEXEC);
  ::close(taken);
}

TEST(HostedDescriptor, NoticesAFileThatWasRemovedOrMoved) {
  const std::string path = temporary_folder() + "/a";
  const HostedDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  std::filesystem::rename(path, path + "2");
  EXPECT_TRUE(file.check(path));
  EXPECT_FALSE(file.check_place(path));
  std::filesystem::remove(path + "2");
  EXPECT_THAT(file.check(path).error().message, testing::HasSubstr("removed"));
}

TEST(WriteFileAtomically, FullDiskIsAnErrorWithThePath) {
  const auto status = write_file_atomically("/dev/full/x", as_bytes("a"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().path, "/dev/full/x");
}

TEST(MakeDirectories, CreatesParentsAndAcceptsExistingOnes) {
  const std::string folder = temporary_folder() + "/a/b/c";
  ASSERT_TRUE(make_directories(folder));
  ASSERT_TRUE(make_directories(folder));
  EXPECT_TRUE(std::filesystem::is_directory(folder));
  ASSERT_TRUE(write_file_atomically(folder + "/f", as_bytes("")));
  EXPECT_EQ(make_directories(folder + "/f").error().code, Errc::Usage);
}

TEST(JobCount, IsTheProcessDefaultUnlessOneIsAskedFor) {
  const unsigned cores = resolve_job_count(0);
  set_default_job_count(3);
  EXPECT_EQ(resolve_job_count(0), 3U);
  EXPECT_EQ(resolve_job_count(5), 5U);
  set_default_job_count(0);
  EXPECT_EQ(resolve_job_count(0), cores);
}

TEST(ParallelFor, VisitsEveryIndexOnceForAnyNumberOfThreads) {
  for (const unsigned jobs : {1u, 2u, 7u}) {
    std::vector<std::atomic<int>> visits(1000);
    parallel_for(visits.size(), jobs, [&](size_t i) { visits[i].fetch_add(1); });
    for (const auto& count : visits) EXPECT_EQ(count.load(), 1);
  }
}

// 1000 indices, the flag is set in the tenth, for which the others wait: whatever the threads, the
// loop ends early and says so once, here.
TEST(ParallelFor, LeavesALoopWhoseFlagIsSet) {
  for (const unsigned jobs : {1u, 2u, 7u}) {
    std::atomic<bool> flag{false};
    std::atomic<int> visits{0};
    const InterruptScope scope(&flag);
    EXPECT_THROW(parallel_for(1000, jobs,
                              [&](size_t) {
                                const int before = visits.fetch_add(1);
                                if (before == 9) flag = true;
                                while (before > 9 && !flag) std::this_thread::yield();
                              }),
                 Interrupted);
    EXPECT_LT(visits.load(), 10 + static_cast<int>(jobs));
  }
}

TEST(ParallelFor, ThrowsWhatAnyThreadThrew) {
  for (const unsigned jobs : {1u, 2u, 7u}) {
    for (const size_t wrong : {0u, 1u, 9u}) {
      std::atomic<int> visits{0};
      try {
        parallel_for(5000, jobs, [&](size_t i) {
          ++visits;
          if (i == wrong) throw std::runtime_error("index " + std::to_string(i));
          // Others are still at work when it is thrown.
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
        ADD_FAILURE() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "index " + std::to_string(wrong));
      }
      EXPECT_LT(visits.load(), 5000) << jobs;
    }
  }
  // All threads: one of them is told.
  EXPECT_THROW(parallel_for(1000, 7, [](size_t i) { throw i; }), size_t);
}

TEST(ParallelFor, IsWholeOutsideOfAScopeAndAfterOne) {
  std::atomic<bool> flag{true};
  {
    const InterruptScope scope(&flag);
    EXPECT_THROW(parallel_for(4, 2, [](size_t) {}), Interrupted);
    const InterruptScope inner(nullptr);
    EXPECT_FALSE(is_interrupted());
  }
  std::atomic<int> visits{0};
  parallel_for(100, 2, [&](size_t) { ++visits; });
  EXPECT_EQ(visits.load(), 100);
}

// Python 3.11: base64.b64encode() of "", b"f", b"fo", b"foo" and bytes([251, 255]).
TEST(Base64, ReadsBackWhatOthersWrite) {
  EXPECT_EQ(from_base64(""), "");
  EXPECT_EQ(from_base64("Zg=="), "f");
  EXPECT_EQ(from_base64("Zm8="), "fo");
  EXPECT_EQ(from_base64("Zm9v"), "foo");
  EXPECT_EQ(from_base64("+/8="), "\xfb\xff");
  for (const char* wrong :
       {"Z", "Zg", "Zg=", "Z===", "====", "Zh==", "Zm9=", "Zm9v\n", "Zm-v", "Zg==Zg=="})
    EXPECT_EQ(from_base64(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace assay
