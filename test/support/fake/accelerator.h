// An accelerator that does not exist: a device guard for PrivateUse1 with several devices, streams and
// events. Its memory is host memory and its kernels run on the CPU at once, over the same memory; what
// is checked is their order on the streams (HappensBefore). Linking it registers it, for the whole
// process and for good, so tests that use it have programs of their own. Any thread.
#pragma once

#include "test/support/pch.h"

#include <functional>
#include <string>
#include <vector>

namespace overdrive::test::fake {

constexpr int kDevices = 8;
constexpr int kStreams = 4;  // of each device; 0 is the default one
constexpr at::DeviceType kType = at::DeviceType::PrivateUse1;

inline at::Device device(int index) { return {kType, static_cast<at::DeviceIndex>(index)}; }
c10::Stream stream(int device, int id);
at::TensorOptions options(int device);

int current_device();
c10::Stream current_stream(int device);

// What a kernel was and where it was put.
struct Kernel {
  std::string op;
  int device = 0;
  int stream = 0;
  std::string thread;  // its name
};

// Called before each kernel, on the thread that starts it: a test may record it, or hold it up. Null for
// nobody. Changed while no kernel runs.
void on_kernel(std::function<void(const Kernel&)> watcher);

// Called whenever a thread makes a device current, on that thread: on hardware it may get a context there,
// which takes memory. Null for nobody. Changed while no kernel runs.
void on_set_device(std::function<void(int device)> watcher);

// What the checker has found so far, and a new beginning.
std::vector<std::string> violations();
void clear_violations();

// A mistake for the checker to find: streams do not wait for events.
void ignore_waits(bool ignore);

// A stream that is being captured into a graph, as the device guard reports it.
void set_capturing(int device, int stream, bool capturing);

// How the driver is. Like CUDA's, one that cannot be reached counts no devices and says nothing; one that has
// failed throws when it is asked which device is current.
enum class Driver { kFine, kUnreachable, kFailed };
void set_driver(Driver driver);

// Gives each device a generator of its own, for who draws from it by name; the operators go on drawing from the
// CPU's, which else is that of all devices.
void use_own_generators(bool own);

// How often the guard was asked since reset_calls().
struct Calls {
  uint64_t records = 0;
  uint64_t waits = 0;
  uint64_t recorded_streams = 0;  // record_stream() on a tensor's memory
};
Calls calls();
void reset_calls();

// Work that stands for a kernel: reads and writes the tensors' memory on the current stream of `device`.
void touch(const std::string& name, int device, const std::vector<at::Tensor>& reads,
           const std::vector<at::Tensor>& writes);

// Makes `later` wait for all that is on `earlier` now.
void wait_for(const c10::Stream& later, const c10::Stream& earlier);

}  // namespace overdrive::test::fake
