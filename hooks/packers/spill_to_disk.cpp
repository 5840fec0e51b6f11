#include "hooks/packers/spill_to_disk.h"

#include "engine/base/job_thread.h"
#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/host/version_check.h"
#include "hooks/interface/hook_calls.h"
#include "hooks/packers/spill_file.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <utility>

namespace overdrive::hooks {
namespace {

// Note [Spilling and fork]: the writing thread is Overdrive's own, so a program of one thread may fork at any
// moment of a write. A child has no such thread, and it shares the file with its parent, where both would give
// out the same places. So a child that packs begins anew, with a thread, a file and counts of its own. A tensor
// that was not yet written at the fork stays in the child's memory; the child reads the others from the
// parent's file, and never writes to it.

// Guards the tensors in memory, for some nanoseconds at a time. One for the process.
base::ProcessMutex& tensors_lock() {
  static base::NoDestructor<base::ProcessMutex> lock("spilled tensors");
  return *lock;
}

// A tensor on its way to a file, or in it.
class Spilled {
 public:
  Spilled(at::Tensor tensor, std::shared_ptr<SpillFile> file)
      : sizes_(tensor.sizes()),
        strides_(tensor.strides()),
        dtype_(tensor.scalar_type()),
        bytes_(static_cast<int64_t>(tensor.nbytes())),
        version_(tensor),
        file_(std::move(file)),
        at_(file_->reserve(bytes_)),
        tensor_(std::move(tensor)) {}

  int64_t bytes() const { return bytes_; }

  // On the writing thread. The error of a failed write; the tensor then stays.
  std::exception_ptr write() {
    const at::Tensor tensor = in_memory();
    try {
      file_->write(tensor.const_data_ptr(), bytes_, at_);
    } catch (...) {
      return std::current_exception();
    }
    at::Tensor written;  // goes without the lock
    const base::MutexLock lock(tensors_lock());
    std::swap(written, tensor_);
    return nullptr;
  }

  void expect() const {
    if (!in_memory().defined()) file_->expect(bytes_, at_);
  }

  at::Tensor read() const {
    // Whether it was written before the change, nobody knows: an operator tells of a change when it is over.
    TORCH_CHECK(version_.is_current(), "A tensor of sizes ", at::IntArrayRef(sizes_),
                " was changed in place after spill_to_disk began to write it to \"", file_->path(),
                "\", so the bytes there are of no use.");
    at::Tensor tensor = in_memory();
    if (tensor.defined()) return tensor;
    at::Tensor result(at::detail::empty_strided_cpu(sizes_, strides_, dtype_));
    file_->read(result.data_ptr(), bytes_, at_);
    return result;
  }

 private:
  at::Tensor in_memory() const {
    const base::MutexLock lock(tensors_lock());
    return tensor_;
  }

  const at::DimVector sizes_, strides_;
  const at::ScalarType dtype_;
  const int64_t bytes_;
  const engine::host::VersionCheck version_;
  const std::shared_ptr<SpillFile> file_;
  const int64_t at_;
  at::Tensor tensor_;  // until it is written; guarded by tensors_lock()
};

// The writing of one process: its thread, its file, and the bytes that wait. See Note [Spilling and fork].
class Writing {
 public:
  explicit Writing(const SpillOptions& options) : options_(options) {}

  bool is_of_this_process() const { return process_ == ::getpid(); }

  std::shared_ptr<Spilled> push(const at::Tensor& tensor) OVERDRIVE_EXCLUDES(mutex_) {
    wait_for_room();
    const bool dense = tensor.is_non_overlapping_and_dense();
    auto spilled = std::make_shared<Spilled>(dense ? tensor : tensor.contiguous(), file());
    {
      const base::MutexLock lock(mutex_);
      waiting_ += spilled->bytes();
    }
    try {
      writer_.push([this, weak = std::weak_ptr(spilled), bytes = spilled->bytes()] { write(weak, bytes); });
    } catch (...) {  // no thread, or no memory: nobody would count these bytes down
      count_down(spilled->bytes());
      throw;
    }
    return spilled;
  }

 private:
  void count_down(int64_t bytes) OVERDRIVE_EXCLUDES(mutex_) {
    {
      const base::MutexLock lock(mutex_);
      waiting_ -= bytes;
    }
    room_.notify_all();
  }

  // A graph may be gone before its tensors are written.
  void write(const std::weak_ptr<Spilled>& weak, int64_t bytes) OVERDRIVE_EXCLUDES(mutex_) {
    std::exception_ptr error;
    if (const auto spilled = weak.lock()) error = spilled->write();
    {
      const base::MutexLock lock(mutex_);
      if (error && !error_) error_ = error;
    }
    count_down(bytes);
  }

  // Throws the first error since the last call.
  void wait_for_room() OVERDRIVE_EXCLUDES(mutex_) {
    std::exception_ptr error;
    {
      base::MutexLock lock(mutex_);
      lock.wait(room_, [this]() OVERDRIVE_REQUIRES(mutex_) { return waiting_ <= options_.max_waiting_bytes; });
      error = std::exchange(error_, nullptr);
      if (error) file_.reset();
    }
    if (error) std::rethrow_exception(error);
  }

  std::shared_ptr<SpillFile> file() OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    std::shared_ptr<SpillFile> file = file_.lock();
    if (file == nullptr) file_ = file = std::make_shared<SpillFile>(options_.folder, options_.drop_cached);
    return file;
  }

  const int process_ = ::getpid();
  const SpillOptions& options_;
  base::ProcessMutex mutex_{"a spill file"};
  std::condition_variable room_;
  int64_t waiting_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  std::exception_ptr error_ OVERDRIVE_GUARDED_BY(mutex_);  // of a write, not yet told
  std::weak_ptr<SpillFile> file_ OVERDRIVE_GUARDED_BY(mutex_);
  base::JobThread writer_{"overdrive-spill"};  // last: its jobs use the rest
};

class SpillToDisk final : public SavedTensorHooks {
 public:
  explicit SpillToDisk(SpillOptions options) : options_(std::move(options)), writing_(new Writing(options_)) {}
  ~SpillToDisk() override {
    Writing* const writing = writing_.load();
    if (writing->is_of_this_process()) delete writing;
  }

  Packed pack(const at::Tensor& tensor, const SaveInfo&) override {
    return {.tensors = {}, .state = writing().push(tensor)};
  }

  at::Tensor unpack(Packed& packed, const UnpackInfo&) override {
    return std::any_cast<const std::shared_ptr<Spilled>&>(packed.state)->read();
  }

  void expect(const Packed& packed) override {
    std::any_cast<const std::shared_ptr<Spilled>&>(packed.state)->expect();
  }
  bool wants(const at::Tensor& tensor, const SaveInfo& info) override {
    return tensor.device().is_cpu() && info.bytes >= options_.min_bytes;
  }
  bool lossless() const override { return true; }
  std::string name() const override { return "spill_to_disk (" + options_.folder + ")"; }

 private:
  // The parent's stays where it is: its locks may be held by a thread that is gone.
  Writing& writing() {
    Writing* known = writing_.load();
    if (known->is_of_this_process()) return *known;
    auto own = std::make_unique<Writing>(options_);
    return writing_.compare_exchange_strong(known, own.get()) ? *own.release() : *known;
  }

  const SpillOptions options_;
  std::atomic<Writing*> writing_;
};

}  // namespace

HooksPtr spill_to_disk(SpillOptions options) {
  check_not_negative("spill_to_disk", "min_bytes", options.min_bytes);
  check_not_negative("spill_to_disk", "max_waiting_bytes", options.max_waiting_bytes);
  if (options.folder.empty()) {
    const char* folder = std::getenv("TMPDIR");
    options.folder = folder != nullptr && *folder != '\0' ? folder : "/tmp";
  }
  SpillFile trial(options.folder);  // better now than in the middle of a step
  return std::make_shared<SpillToDisk>(std::move(options));
}

}  // namespace overdrive::hooks
