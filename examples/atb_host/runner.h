// SPDX-License-Identifier: Apache-2.0
// Runners: the objects that execute operations, one a node, and make most of the calls into the probe.
#pragma once
#include <chrono>

#include "library.h"

namespace atb_host {

/// Life: made once; then again and again setup(), fill_tiling(), execute().
class Runner {
 public:
  /// runner_name: class name of the runner, which serves as directory while directories are not wanted.
  Runner(const Operation& operation, std::string name, const std::string& runner_name, Ids ids,
         Context& context);
  virtual ~Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void ask_flag();
  virtual void set_directory(const std::string& directory) { directory_ = directory; }
  void setup(const VariantPack& pack);
  virtual size_t tiling_bytes() const { return 0; }
  virtual void fill_tiling(uint8_t* /*base*/) {}
  Status execute();

 protected:
  virtual void setup_below() = 0;
  virtual Status run() = 0;
  virtual bool is_graph() const { return false; }
  virtual std::string parameters() const { return {}; }  // JSON text; empty for none
  virtual std::vector<std::string> in_names() const { return {}; }
  virtual std::vector<std::string> out_names() const { return {}; }

  bool in_directory(const std::string& directory) const;
  void save_pack(const std::string& directory, const std::vector<Tensor>& in,
                 const std::vector<Dims>& in_views, const std::vector<Tensor>& out,
                 bool with_names) const;

  const std::string name_;
  const Ids ids_;
  Context& context_;
  std::string directory_;
  VariantPack pack_;
  bool flag_ = false;           // the probe wants this node
  uint64_t execute_count_ = 0;  // completed calls of execute()

 private:
  bool wants_tensors() const;
  void report_tensors() const;

  const size_t in_count_;
};

/// Microseconds since its construction.
class Stopwatch {
 public:
  double elapsed_us() const {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    return std::chrono::duration<double, std::micro>(elapsed).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace atb_host
