// Stops a backward between two of its nodes: by a token, by a deadline, and with a report of how far it is. A
// StopScope belongs to the thread that makes it and covers the backwards that this thread begins meanwhile,
// with those nested in them, also on workers of the engine. Any thread may cancel. The engine works on
// afterwards.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace overdrive {

// Copies are the same token.
class CancelToken {
 public:
  CancelToken() : cancelled_(std::make_shared<std::atomic<bool>>(false)) {}
  // A signal handler may call this.
  void cancel() noexcept { cancelled_->store(true, std::memory_order_release); }
  bool is_cancelled() const noexcept { return cancelled_->load(std::memory_order_acquire); }

 private:
  std::shared_ptr<std::atomic<bool>> cancelled_;
};

// The error of a backward that was stopped.
class OVERDRIVE_API Cancelled : public std::runtime_error {
 public:
  Cancelled(const std::string& reason, size_t done, size_t total);
  ~Cancelled() override;
  Cancelled(const Cancelled&) = default;
  Cancelled& operator=(const Cancelled&) = default;

  // Nodes of the backward that was stopped: those that had run, and all.
  size_t done() const { return done_; }
  size_t total() const { return total_; }
  // The leaves that this backward, and those around it, had added a gradient to. The others' are untouched.
  const std::vector<at::Tensor>& accumulated() const { return accumulated_; }

  // The engine's.
  void add(const std::vector<at::Tensor>& leaves);

 private:
  size_t done_;
  size_t total_;
  std::vector<at::Tensor> accumulated_;
};

struct StopOptions {  // What stops a backward, and who hears of its progress.
  CancelToken token = {};
  // From the making of the scope on.
  std::optional<std::chrono::nanoseconds> deadline = {};
  // Called before each node of the outermost backwards, and once at their end, on the thread of the node: on
  // several at once where workers take part. An exception stops the backward and reaches the caller.
  std::function<void(size_t done, size_t total)> progress = {};
};

class OVERDRIVE_API StopScope {  // While it lives. A backward that it stops throws Cancelled.
 public:
  explicit StopScope(StopOptions options);
  explicit StopScope(const CancelToken& token) : StopScope(StopOptions{.token = token}) {}
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

  // The leaves that the last backward of the scope, if it failed with this or another error, and those nested
  // in it had added a gradient to.
  std::vector<at::Tensor> accumulated() const;
  // The error of the last backward of the scope, if it was stopped: for callers that get it as another type.
  std::optional<Cancelled> stopped() const;

 private:
  class Watching;
  std::shared_ptr<Watching> watching_;
};

}  // namespace overdrive
