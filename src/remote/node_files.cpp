// SPDX-License-Identifier: Apache-2.0
// Files of a run that other hosts of a cluster have. Below they are URLs of a scheme of our own, of
// which the user sees nothing.
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/mapped_file.hpp"
#include "remote/remote_files.hpp"

namespace assay::remote {
namespace {

constexpr std::string_view kHome = "nodes://cluster";

class NodeFile : public PartialFile {
 public:
  NodeFile(std::shared_ptr<PartialFile> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  int descriptor() const override { return file_->descriptor(); }
  uint64_t size_bytes() const override { return file_->size_bytes(); }
  Result<std::shared_ptr<const void>> fetch(uint64_t offset, uint64_t size_bytes) override {
    Result<std::shared_ptr<const void>> fetched = file_->fetch(offset, size_bytes);
    if (!fetched) return fail(without_home(fetched.error(), kHome, path_));
    return fetched;
  }

 private:
  std::shared_ptr<PartialFile> file_;
  std::string path_;
};

class NodeFiles : public FileSource {
 public:
  NodeFiles(std::shared_ptr<FileSource> files, std::string folder)
      : files_(std::move(files)), folder_(std::move(folder)) {}
  Status prepare(const std::string& path) override {
    if (const Status prepared = files_->prepare(url_of(path)); !prepared)
      return fail(without_home(prepared.error(), kHome, path));
    return {};
  }
  Result<FileFacts> facts(const std::string& path) override {
    return named(files_->facts(url_of(path)), path);
  }
  Result<std::vector<ListedFile>> list(const std::string& folder) override {
    return named(files_->list(url_of(folder)), folder);
  }
  Result<std::shared_ptr<PartialFile>> open(const std::string& path) override {
    ASSAY_TRY(std::shared_ptr<PartialFile> file, named(files_->open(url_of(path)), path));
    return std::make_shared<NodeFile>(std::move(file), path);
  }
  Result<std::string> head(const std::string& path, uint64_t size_bytes) override {
    return named(files_->head(url_of(path), size_bytes), path);
  }

 private:
  [[nodiscard]] std::string url_of(const std::string& path) const {
    return std::string(kHome) + normal_path((std::filesystem::path(folder_) / path).string());
  }
  template <typename T>
  static Result<T> named(Result<T> result, const std::string& path) {
    if (!result) return fail(without_home(result.error(), kHome, path));
    return result;
  }

  std::shared_ptr<FileSource> files_;
  std::string folder_;  // that relative paths are of
};

}  // namespace

Status register_node_files() {
  const char* const file = std::getenv("ASSAY_NODE_FILES");
  if (file == nullptr || *file == '\0') return {};
  ASSAY_TRY(const MappedFile mapped, MappedFile::open(file));
  const nlohmann::json said =
      nlohmann::json::parse(as_text(mapped.bytes()), nullptr, /*allow_exceptions=*/false);
  try {
    register_elsewhere(
        said.at("paths").get<std::vector<std::string>>(),
        std::make_shared<NodeFiles>(make_remote_files(make_process_carrier(), std::string(kHome)),
                                    said.at("folder").get<std::string>()));
  } catch (const nlohmann::json::exception&) {
    return fail(Error{Errc::Invalid, file, std::nullopt, "does not say what other hosts have"});
  }
  return {};
}

}  // namespace assay::remote
