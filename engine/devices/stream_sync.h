// Streams of accelerators in a backward: the stream of a node, its waits, and the waits of the caller's streams
// at the end. All through c10's generic device guard. Values on the stack of a run; a thread uses its own, but
// any thread may add_leaf(). Leaves the sum of gradients to the host's InputBuffer::add.
#pragma once

#include "engine/base/mutex.h"
#include "engine/base/torch_types.h"

#include <torch/csrc/autograd/input_buffer.h>

#include <optional>
#include <vector>

namespace overdrive::engine {

// Gradients on such a device are put in order by streams and events.
bool is_on_accelerator(const at::Tensor& tensor);

// The stream that the gradient of a root was computed on, as far as anybody can know.
std::optional<c10::Stream> stream_of_root_gradient(const at::Tensor& gradient);

// The stream that `node` runs on: that of its forward, or another that the host's sums have put in its place
// because that one must not be used while a graph is captured. `gradients` may be null.
std::optional<c10::Stream> stream_of(base::Node& node, const torch::autograd::InputBuffer* gradients);

// Stock's warning, which names nothing, of a leaf whose node was made on another stream than that on which its
// gradient comes: says once in a process which leaf it is, and the streams.
void name_leaf_on_another_stream(const base::Node& node, const std::optional<c10::Stream>& producer,
                                 const std::optional<c10::Stream>& consumer);

// Makes `stream` wait for the gradients that `node` is about to take.
void wait_for_gradients(base::Node& node, const std::optional<c10::Stream>& stream,
                        torch::autograd::InputBuffer& gradients);

// Keeps a thread on its device, because the next node must not see a device that a node or hook left current.
class CurrentDevice {
 public:
  // The device that is current now, of the type given.
  explicit CurrentDevice(c10::DeviceType type);
  // The given device, and no other: a device that is touched gets a context, which takes memory there.
  explicit CurrentDevice(c10::Device device);
  void restore() const;

 private:
  const c10::impl::DeviceGuardImplInterface* guard_;
  c10::Device device_;
};

// The streams that were current where a backward was called. Made there; any thread may add_leaf().
class CallerStreams {
 public:
  CallerStreams();

  // A gradient was taken from `stream`: it is a leaf's, or was captured.
  void add_leaf(const c10::Stream& stream) OVERDRIVE_EXCLUDES(mutex_);
  // On the calling thread, at the end: its streams wait for the leaves'.
  void wait_for_leaves() OVERDRIVE_EXCLUDES(mutex_);
  // Makes them current again where a node left others.
  void restore() const;

 private:
  const c10::impl::DeviceGuardImplInterface* guard_ = nullptr;  // null without an accelerator
  std::vector<c10::Stream> streams_;
  base::Mutex mutex_;
  std::vector<c10::Stream> leaves_ OVERDRIVE_GUARDED_BY(mutex_);  // each once
};

}  // namespace overdrive::engine
