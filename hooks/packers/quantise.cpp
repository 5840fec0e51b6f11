#include "hooks/packers/quantise.h"

#include "hooks/cuda/quantise_cuda.h"
#include "hooks/interface/hook_calls.h"
#include "hooks/kernels/quantise_kernels.h"
#include "hooks/packers/large_memory.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace overdrive::hooks {
namespace {
constexpr int64_t kGrain = 1 << 15;  // elements worth a thread

int64_t blocks_of(int64_t count, int64_t block) { return (count + block - 1) / block; }

class Quantise final : public SavedTensorHooks {
 public:
  explicit Quantise(const QuantiseOptions& options)
      : options_(options), memory_(std::make_shared<LargeMemory>(options.most_idle_bytes)) {}

  Packed pack(const at::Tensor& tensor, const SaveInfo& info) override {
    // Elements in the order of memory; where there are gaps, a copy without.
    const at::Tensor from = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    return options_.type == QuantisedType::kInt8 ? pack_int8(from, info) : pack_bfloat16(from, info);
  }

  at::Tensor unpack(Packed& packed, const UnpackInfo&) override {
    const at::Tensor& codes = packed.tensors[0];
    at::Tensor result = memory_like(codes, at::kFloat);
    if (codes.is_cuda()) {
      unpack_on_cuda(packed, result);
      return result;
    }
    auto* to = static_cast<float*>(result.data_ptr());
    const QuantiseKernels& kernels = quantise_kernels();
    if (options_.type == QuantisedType::kInt8) {
      const auto* from = static_cast<const int8_t*>(codes.const_data_ptr());
      const auto* scales = static_cast<const float*>(packed.tensors[1].const_data_ptr());
      in_blocks(codes.numel(), [&](int64_t begin, int64_t count) {
        kernels.from_int8(from + begin, scales + begin / options_.block, count, options_.block, to + begin);
      });
    } else {
      const auto* from = static_cast<const uint16_t*>(codes.const_data_ptr());
      in_blocks(codes.numel(),
                [&](int64_t begin, int64_t count) { kernels.from_bfloat16(from + begin, count, to + begin); });
    }
    return result;
  }

  bool wants(const at::Tensor& tensor, const SaveInfo& info) override {
    const bool has_kernels = tensor.is_cpu() || (tensor.is_cuda() && cuda::has_kernels());
    return info.dtype == at::kFloat && has_kernels && info.bytes >= options_.min_bytes;
  }
  std::string name() const override {
    return options_.type == QuantisedType::kInt8 ? "quantise (int8)" : "quantise (bfloat16)";
  }

 private:
  at::Tensor memory_of(at::IntArrayRef sizes, at::ScalarType type, c10::Device device) const {
    if (!device.is_cpu()) return at::empty(sizes, at::TensorOptions().dtype(type).device(device));
    return memory_->tensor(sizes, type);
  }
  at::Tensor memory_like(const at::Tensor& tensor, at::ScalarType type) const {
    if (tensor.is_cpu()) return memory_->tensor(tensor.sizes(), tensor.strides(), type);
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().dtype(type));
  }

  Packed pack_int8(const at::Tensor& tensor, const SaveInfo& info) const {
    at::Tensor codes = memory_like(tensor, at::kChar);
    at::Tensor scales = memory_of({blocks_of(tensor.numel(), options_.block)}, at::kFloat, tensor.device());
    if (tensor.is_cuda()) {
      cuda::quantise_to_int8(tensor, options_.block, key_of(info), codes, scales);
      return {.tensors = {std::move(codes), std::move(scales)}, .state = {}};
    }
    const auto* from = static_cast<const float*>(tensor.const_data_ptr());
    auto* to = static_cast<int8_t*>(codes.data_ptr());
    auto* scale = static_cast<float*>(scales.data_ptr());
    const QuantiseKernels& kernels = quantise_kernels();
    in_blocks(tensor.numel(), [&](int64_t begin, int64_t count) {
      kernels.to_int8(from + begin, begin, count, options_.block, key_of(info), to + begin,
                      scale + begin / options_.block);
    });
    return {.tensors = {std::move(codes), std::move(scales)}, .state = {}};
  }

  Packed pack_bfloat16(const at::Tensor& tensor, const SaveInfo& info) const {
    at::Tensor halves = memory_like(tensor, at::kBFloat16);
    if (tensor.is_cuda()) {
      cuda::quantise_to_bfloat16(tensor, key_of(info), halves);
      return {.tensors = {std::move(halves)}, .state = {}};
    }
    const auto* from = static_cast<const float*>(tensor.const_data_ptr());
    auto* to = static_cast<uint16_t*>(halves.data_ptr());
    in_blocks(tensor.numel(), [&](int64_t begin, int64_t count) {
      quantise_kernels().to_bfloat16(from + begin, begin, count, key_of(info), to + begin);
    });
    return {.tensors = {std::move(halves)}, .state = {}};
  }

  void unpack_on_cuda(const Packed& packed, at::Tensor& result) const {
    const at::Tensor& codes = packed.tensors[0];
    if (options_.type == QuantisedType::kInt8) {
      cuda::quantise_from_int8(codes, packed.tensors[1], options_.block, result);
    } else {
      cuda::quantise_from_bfloat16(codes, result);
    }
  }

  RoundingKey key_of(const SaveInfo& info) const {
    if (options_.rounding == Rounding::kNearest) return {};
    const auto spread = [](uint64_t x) {  // one round of splitmix64
      x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
      x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
      return x ^ (x >> 31);
    };
    const uint64_t key = spread(spread(options_.seed + 0x9E3779B97F4A7C15ULL) ^ info.sequence_nr) + info.index;
    return {.use = true,
            .first = static_cast<uint32_t>(spread(key)),
            .second = static_cast<uint32_t>(spread(key) >> 32)};
  }

  // Whole blocks at a time. LibTorch's threads share them only where this library is compiled with -fopenmp,
  // which ours is not: LibTorch brings an OpenMP runtime of its own, and two in a process do not go together.
  template <typename Body>
  void in_blocks(int64_t count, const Body& body) const {
    const int64_t block = options_.block;
    at::parallel_for(
        0, blocks_of(count, block), std::max<int64_t>(1, kGrain / block),
        [&](int64_t from, int64_t to) { body(from * block, std::min(count, to * block) - from * block); });
  }

  const QuantiseOptions options_;
  const std::shared_ptr<LargeMemory> memory_;
};

}  // namespace

HooksPtr quantise(QuantiseOptions options) {
  const bool int8 = options.type == QuantisedType::kInt8;
  TORCH_CHECK(int8 || options.type == QuantisedType::kBFloat16,
              "quantise() was given type = ", static_cast<int>(options.type),
              ", which is neither kBFloat16 nor kInt8.");
  TORCH_CHECK(options.rounding == Rounding::kNearest || options.rounding == Rounding::kStochastic,
              "quantise() was given rounding = ", static_cast<int>(options.rounding),
              ", which is neither kNearest nor kStochastic.");
  const int64_t block = options.block;
  TORCH_CHECK(block >= 16 && block <= 4096 && (block & (block - 1)) == 0, "quantise() was given blocks of ",
              block, " elements; it takes a power of two from 16 to 4096.");
  check_not_negative("quantise", "min_bytes", options.min_bytes);
  check_not_negative("quantise", "most_idle_bytes", options.most_idle_bytes);
  TORCH_CHECK(int8 || block == QuantiseOptions{}.block,
              "quantise() was given a block size with bfloat16, which has no blocks.");
  TORCH_CHECK(options.rounding == Rounding::kStochastic || options.seed == 0,
              "quantise() was given a seed with nearest rounding, which leaves nothing to chance.");
  return std::make_shared<Quantise>(options);
}

}  // namespace overdrive::hooks
