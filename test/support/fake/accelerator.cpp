#include "test/support/fake/accelerator.h"

#include "engine/base/torch_types.h"
#include "test/support/fake/accelerator_parts.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <mutex>
#include <set>

namespace overdrive::test::fake {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constinit thread_local DeviceIndex device_of_thread = 0;
constinit thread_local std::array<c10::StreamId, kDevices> streams_of_thread{};

struct State {
  std::function<void(const Kernel&)> watcher;
  std::function<void(int)> device_watcher;
  std::atomic<bool> ignore_waits{false};
  std::atomic<Driver> driver{Driver::kFine};
  std::atomic<bool> own_generators{false};
  std::atomic<uint64_t> records{0};
  std::atomic<uint64_t> waits{0};
  std::atomic<uint64_t> recorded_streams{0};
  std::array<std::atomic<bool>, kDevices * kStreams> capturing{};
};
State& state() {
  static auto* const all = new State;
  return *all;
}

DeviceIndex index_of(Device device) { return device.has_index() ? device.index() : device_of_thread; }

void set_device(DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < kDevices, "the fake accelerator has no device ", static_cast<int>(index));
  if (state().device_watcher) state().device_watcher(index);
  device_of_thread = index;
}

Stream stream_of(DeviceIndex index, c10::StreamId id) {
  return Stream(Stream::UNSAFE, Device(kType, index), id);
}

DeviceIndex device_count() { return state().driver.load() == Driver::kUnreachable ? 0 : kDevices; }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device to) const override {
    const Device before = getDevice();
    set_device(index_of(to));
    return before;
  }
  Device getDevice() const override {
    TORCH_CHECK(state().driver.load() != Driver::kFailed, "the fake driver has failed");
    return {kType, device_of_thread};
  }
  void setDevice(Device to) const override { set_device(to.index()); }
  void uncheckedSetDevice(Device to) const noexcept override { set_device(to.index()); }
  DeviceIndex deviceCount() const noexcept override { return device_count(); }

  Stream getStream(Device of) const override {
    const DeviceIndex index = index_of(of);  // of a device that does not exist, too
    return stream_of(index, index < kDevices ? streams_of_thread[static_cast<size_t>(index)] : 0);
  }
  Stream getDefaultStream(Device of) const override { return stream_of(index_of(of), 0); }
  Stream getNewStream(Device of, int) const override {
    static std::atomic<int> next{0};
    return stream_of(index_of(of), 1 + next++ % (kStreams - 1));
  }
  Stream exchangeStream(Stream to) const override {
    const Stream before = getStream(to.device());
    streams_of_thread[static_cast<size_t>(to.device_index())] = to.id();
    return before;
  }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeDevice(DeviceIndex) const override {}
#ifndef OVERDRIVE_SHARED_NODES  // before 2.13 the host does not ask
  bool isStreamCapturing(const Stream& of) const override {
    return state().capturing[static_cast<size_t>(stream_number(of))].load();
  }
#endif

  void record(void** event, const Stream& of, DeviceIndex, c10::EventFlag) const override {
    ++state().records;
    if (*event == nullptr) *event = new HappensBefore::Clock;
    *static_cast<HappensBefore::Clock*>(*event) = checker().record(stream_number(of));
  }
  void block(void* event, const Stream& of) const override {
    ++state().waits;
    if (event == nullptr || state().ignore_waits.load()) return;
    checker().wait(stream_number(of), *static_cast<HappensBefore::Clock*>(event));
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<HappensBefore::Clock*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override { ++state().recorded_streams; }
};

struct Memory final : c10::Allocator {
  static void free(void* memory) {
    checker().forget(memory);
    ::free(memory);
  }
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, bytes != 0 ? bytes : 64) != 0) throw std::bad_alloc();
    return {memory, memory, &free, Device(kType, device_of_thread)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

// Page-locked memory of the host, whose copies the checker follows, too.
struct HostMemory final : c10::Allocator {
  static std::set<const void*>& blocks() {
    static auto* const all = new std::set<const void*>;
    return *all;
  }
  static std::mutex& mutex() {
    static auto* const one = new std::mutex;
    return *one;
  }
  static void free(void* memory) {
    checker().forget(memory);
    {
      const std::lock_guard lock(mutex());
      blocks().erase(memory);
    }
    ::free(memory);
  }
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, bytes != 0 ? bytes : 64) != 0) throw std::bad_alloc();
    const std::lock_guard lock(mutex());
    blocks().insert(memory);
    return {memory, memory, &free, Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(DeviceIndex to) const override { set_device(to); }
  DeviceIndex getCurrentDevice() const override { return device_of_thread; }
  DeviceIndex exchangeDevice(DeviceIndex to) const override {
    const DeviceIndex before = device_of_thread;
    set_device(to);
    return before;
  }
  bool isPinnedPtr(const void* memory) const override { return is_page_locked(memory); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    static auto* const one = new HostMemory;
    return one;
  }
  // Random numbers are the CPU's, as everything is, unless a test wants others.
  const at::Generator& getDefaultGenerator(DeviceIndex of) const override {
    if (!state().own_generators) return at::detail::getDefaultCPUGenerator();
    static auto* const all = [] {
      auto* const generators = new std::array<at::Generator, kDevices>;
      for (at::Generator& one : *generators) one = at::make_generator<at::CPUGeneratorImpl>(1);
      return generators;
    }();
    return (*all)[static_cast<size_t>(of < 0 ? device_of_thread : of)];
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex to) const override { return exchangeDevice(to); }
};

// Before main(): nothing of it may be missing when the first backward of the process begins.
const bool registered = [] {
  static Guard guard;
  c10::impl::registerDeviceGuard(kType, &guard);
  c10::SetAllocator(kType, &allocator());
  c10::register_privateuse1_backend("fake");
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

}  // namespace

HappensBefore& checker() {
  static auto* const one = new HappensBefore(kDevices * kStreams);
  return *one;
}

bool is_page_locked(const void* memory) {
  const std::lock_guard lock(HostMemory::mutex());
  return HostMemory::blocks().count(memory) != 0;
}

c10::Allocator& allocator() {
  static auto* const one = new Memory;
  return *one;
}

int stream_number(const Stream& of) { return of.device_index() * kStreams + static_cast<int>(of.id()); }

void announce(const std::string& op, int device) {
  if (!state().watcher) return;
  char thread[16] = "";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  state().watcher({op, device, static_cast<int>(current_stream(device).id()), thread});
}

void account(const std::string& op, int device, const std::vector<const void*>& reads,
             const std::vector<const void*>& writes) {
  checker().kernel(stream_number(current_stream(device)), op, reads, writes);
}

Stream stream(int device, int id) { return stream_of(static_cast<DeviceIndex>(device), id); }
at::TensorOptions options(int index) { return at::TensorOptions().device(device(index)); }
int current_device() { return device_of_thread; }
Stream current_stream(int device) {
  return stream(device, static_cast<int>(streams_of_thread[static_cast<size_t>(device)]));
}

void on_kernel(std::function<void(const Kernel&)> watcher) { state().watcher = std::move(watcher); }
void on_set_device(std::function<void(int)> watcher) { state().device_watcher = std::move(watcher); }
std::vector<std::string> violations() { return checker().violations(); }
void clear_violations() { checker().clear_violations(); }
void ignore_waits(bool ignore) { state().ignore_waits = ignore; }
void set_driver(Driver driver) { state().driver = driver; }
void use_own_generators(bool own) { state().own_generators = own; }
void set_capturing(int device, int id, bool capturing) {
  state().capturing[static_cast<size_t>(stream_number(stream(device, id)))] = capturing;
}

Calls calls() { return {state().records, state().waits, state().recorded_streams}; }
void reset_calls() { state().records = state().waits = state().recorded_streams = 0; }

void touch(const std::string& name, int device, const std::vector<at::Tensor>& reads,
           const std::vector<at::Tensor>& writes) {
  const auto memory_of = [](const std::vector<at::Tensor>& tensors) {
    std::vector<const void*> memory;
    for (const at::Tensor& tensor : tensors) memory.push_back(tensor.storage().data());
    return memory;
  };
  announce(name, device);
  account(name, device, memory_of(reads), memory_of(writes));
}

void wait_for(const Stream& later, const Stream& earlier) {
  c10::Event event(kType);
  event.record(earlier);
  event.block(later);
}

}  // namespace overdrive::test::fake
