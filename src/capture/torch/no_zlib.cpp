// SPDX-License-Identifier: Apache-2.0
// A capture stores and never compresses, so the extension module carries no zlib: the archives it
// writes have stored entries only. Debian's static zlib is not position-independent and could not
// be linked into a shared object, and a shared one is a dependency that a host may not have. These
// definitions stand in for the six functions that the zip code refers to; each answers with zlib's
// own "wrong version", which the zip code reports as an error.
extern "C" {

struct z_stream_s;
constexpr int kVersionError = -6;  // Z_VERSION_ERROR of zlib.h

int deflateInit2_(z_stream_s*, int, int, int, int, int, const char*, int) { return kVersionError; }
int deflate(z_stream_s*, int) { return kVersionError; }
int deflateEnd(z_stream_s*) { return kVersionError; }
int inflateInit2_(z_stream_s*, int, const char*, int) { return kVersionError; }
int inflate(z_stream_s*, int) { return kVersionError; }
int inflateEnd(z_stream_s*) { return kVersionError; }

}  // extern "C"
