// SPDX-License-Identifier: Apache-2.0
// | 1f 8b 08 | flags 00 | time 00 00 00 00 | 02 (best) | system | deflate data | CRC-32 | size |
//
// zlib writes and checks all of it; the time stamp and the system are fixed so that equal contents
// are equal files.
#include "formats/gzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>

namespace assay::formats {
namespace {

constexpr int kGzipWindow = MAX_WBITS + 16;  // zlib's way to say "with a gzip header"
constexpr int kMemoryLevel = 9;
constexpr int kUnixSystem = 3;
constexpr size_t kPieceBytes = size_t{1} << 16;

struct Deflater {
  z_stream stream{};
  bool ready = false;
  Deflater() {
    ready = deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, kMemoryLevel,
                         Z_DEFAULT_STRATEGY) == Z_OK;
  }
  ~Deflater() {
    if (ready) deflateEnd(&stream);
  }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
};

struct Inflater {
  z_stream stream{};
  bool ready = false;
  Inflater() { ready = inflateInit2(&stream, kGzipWindow) == Z_OK; }
  ~Inflater() {
    if (ready) inflateEnd(&stream);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

// zlib counts in 32 bits.
constexpr uint64_t kMostBytes = std::numeric_limits<uInt>::max() / 2;

}  // namespace

bool is_gzip(ByteSpan file) {
  return file.size() >= 3 && file[0] == std::byte{0x1f} && file[1] == std::byte{0x8b} &&
         file[2] == std::byte{0x08};
}

Result<std::string> gzip(std::string_view content) {
  if (content.size() > kMostBytes) return fail(Errc::TooLarge, "more than 2 GiB to compress");
  Deflater deflater;
  if (!deflater.ready) return fail(Errc::Internal, "zlib cannot start");
  z_stream& stream = deflater.stream;
  gz_header header{};
  header.os = kUnixSystem;
  deflateSetHeader(&stream, &header);
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END)
    return fail(Errc::Internal, "zlib did not finish");
  out.resize(stream.total_out);
  return out;
}

Result<std::string> gunzip(ByteSpan file, uint64_t max_bytes) {
  if (!is_gzip(file)) return fail(Errc::BadMagic, "is no gzip file", 0);
  if (file.size() > kMostBytes) return fail(Errc::TooLarge, "a gzip file of more than 2 GiB", 0);
  Inflater inflater;
  if (!inflater.ready) return fail(Errc::Internal, "zlib cannot start");
  z_stream& stream = inflater.stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(file.data()));
  stream.avail_in = static_cast<uInt>(file.size());
  std::string out;
  std::string piece(kPieceBytes, '\0');
  int code = Z_OK;
  while (code == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    code = inflate(&stream, Z_NO_FLUSH);
    const size_t made = piece.size() - stream.avail_out;
    if (out.size() + made > max_bytes)
      return fail(Errc::TooLarge, "inflates to more than " + std::to_string(max_bytes) + " bytes",
                  stream.total_in);
    out.append(piece, 0, made);
  }
  if (code == Z_BUF_ERROR) return fail(Errc::Truncated, "ends too early", file.size());
  if (code != Z_STREAM_END) return fail(Errc::Invalid, "damaged gzip data", stream.total_in);
  if (stream.avail_in > 0) return fail(Errc::Invalid, "goes on behind its end", stream.total_in);
  return out;
}

}  // namespace assay::formats
