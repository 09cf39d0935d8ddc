// SPDX-License-Identifier: Apache-2.0
// One thread sends the parts while another receives answers, in any order; a driver that has gone
// or answers what cannot be ends the round with an error.
#include "cli/part_pipe.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/byte_archive.hpp"
#include "base/file_descriptor.hpp"
#include "base/numbers.hpp"

namespace assay::cli {
namespace {

constexpr const char* kVariable = "ASSAY_PARTS";
constexpr uint64_t kMostAnswerBytes = uint64_t{1} << 32;

enum class PartEnd : uint8_t { Done, Failed, Stopped };

Status send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail(Errc::Io, "the driver of the parts has gone");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

Status receive_all(int socket, char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t count = ::recv(socket, bytes, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail(Errc::Io, "the driver of the parts has gone");
    bytes += count;
    size -= static_cast<size_t>(count);
  }
  return {};
}

template <typename T>
Result<T> receive(int socket) {
  T value{};
  ASSAY_TRY_STATUS(receive_all(socket, reinterpret_cast<char*>(&value), sizeof(value)));
  return value;
}

class PipeRunner : public run::PartRunner {
 public:
  PipeRunner(int socket, PartSettings settings) : socket_(socket), settings_(std::move(settings)) {}

  Status run(size_t count, const std::function<Request(size_t i)>& request,
             const std::function<void(size_t i, Outcome outcome)>& done) override {
    std::mutex mutex;  // request() and done() are called one at a time
    Status sent;
    std::thread sender([&] { sent = send_parts(count, request, &mutex); });
    const Status received = receive_answers(count, done, &mutex);
    if (!received) ::shutdown(socket_.get(), SHUT_RDWR);  // ends the sender's wait
    sender.join();
    ASSAY_TRY_STATUS(received);
    return sent;
  }

 private:
  Status send_parts(size_t count, const std::function<Request(size_t i)>& request,
                    std::mutex* mutex) {
    std::string head;
    append(head, static_cast<uint32_t>(count));
    ASSAY_TRY_STATUS(send_all(socket_.get(), head));
    for (size_t i = 0; i < count; ++i) {
      std::string frame;
      {
        const std::lock_guard lock(*mutex);
        const Request asked = request(i);
        append(frame, static_cast<uint32_t>(i));
        append(frame, asked.part.bytes);
        append(frame, static_cast<uint8_t>(asked.part.crosses_ranks));
        append(frame, static_cast<uint32_t>(asked.part.files.size()));
        for (const std::string& file : asked.part.files) {
          append(frame, static_cast<uint32_t>(file.size()));
          frame += file;
        }
        ByteWriter settings;
        settings(settings_.compat, settings_.custom_algorithms);
        append(frame, static_cast<uint64_t>(settings.bytes().size() + asked.body.size()));
        frame += settings.bytes();
        frame += asked.body;
      }
      ASSAY_TRY_STATUS(send_all(socket_.get(), frame));
    }
    return {};
  }

  Status receive_answers(size_t count, const std::function<void(size_t i, Outcome outcome)>& done,
                         std::mutex* mutex) {
    std::vector<bool> is_answered(count);
    for (size_t answers = 0; answers < count; ++answers) {
      ASSAY_TRY(const uint32_t part, receive<uint32_t>(socket_.get()));
      ASSAY_TRY(const PartEnd end, receive<PartEnd>(socket_.get()));
      ASSAY_TRY(const uint64_t size, receive<uint64_t>(socket_.get()));
      if (part >= count || is_answered[part] || end > PartEnd::Stopped || size > kMostAnswerBytes)
        return fail(Errc::Io, "the driver of the parts says what cannot be");
      std::string answer(size, '\0');
      ASSAY_TRY_STATUS(receive_all(socket_.get(), answer.data(), size));
      is_answered[part] = true;
      const std::lock_guard lock(*mutex);
      if (end == PartEnd::Done) {
        done(part, std::move(answer));
      } else {
        done(part, fail(end == PartEnd::Failed ? Errc::Io : Errc::Interrupted, answer));
      }
    }
    return {};
  }

  FileDescriptor socket_;
  PartSettings settings_;
};

}  // namespace

Result<std::unique_ptr<run::PartRunner>> part_runner(PartSettings settings) {
  const char* const text = std::getenv(kVariable);
  if (text == nullptr) return nullptr;
  const std::optional<int> socket = parse_number<int>(text);
  int type = 0;
  socklen_t size = sizeof(type);
  if (!socket || ::getsockopt(*socket, SOL_SOCKET, SO_TYPE, &type, &size) != 0)
    return fail(Errc::Usage, std::string(kVariable) + " names no socket");
  ::unsetenv(kVariable);  // programs that are started from here are not meant
  return std::make_unique<PipeRunner>(*socket, std::move(settings));
}

Result<std::pair<PartSettings, ByteSpan>> settings_of(ByteSpan body) {
  ArchiveReader archive(body);
  PartSettings settings;
  archive(settings.compat, settings.custom_algorithms);
  ASSAY_TRY_STATUS(archive.status());
  return std::pair(std::move(settings), archive.rest());
}

}  // namespace assay::cli
