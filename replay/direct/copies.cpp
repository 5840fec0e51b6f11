#include "engine/kernels/blocks.h"
#include "replay/bind/share.h"
#include "replay/direct/direct_step.h"
#include "replay/direct/kernels.h"
#include "replay/direct/row_copy.h"

#include <algorithm>
#include <cstring>

namespace overdrive::replay {

namespace {

AddressRange bytes_at(const void* begin, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  return {address, address + bytes};
}

template <typename T>
struct Fill {
  T* to;
  T value;
  void operator()(int64_t begin, int64_t end) const { std::fill(to + begin, to + end, value); }
  Touched touched(int64_t begin, int64_t end) const {
    return {.writes = {bytes_at(to + begin, (end - begin) * sizeof(T))}};
  }
};

template <typename T>
Step fill(const at::Tensor& out, T value) {
  return range_step(Fill<T>{out.mutable_data_ptr<T>(), value}, out.numel(), kShareGrain);
}

struct ByteCopy {
  char* to;
  const char* from;
  void operator()(int64_t begin, int64_t end) const { std::memcpy(to + begin, from + begin, end - begin); }
  Touched touched(int64_t begin, int64_t end) const {
    return {.reads = {bytes_at(from + begin, end - begin)}, .writes = {bytes_at(to + begin, end - begin)}};
  }
};

std::optional<Step> fills(DirectCall& call) {
  std::optional<double> value;
  const std::string_view name = call.name;
  if (name == "zeros" || name == "zeros_like" || name == "zero" || name == "new_zeros") value = 0;
  if (name == "ones" || name == "ones_like" || name == "new_ones") value = 1;
  if ((name == "fill" || name == "full" || name == "full_like") && call.has_scalar(1)) {
    value = call.constant(1).toScalar().toDouble();
  }
  if (!value || !call.out.is_non_overlapping_and_dense()) return std::nullopt;
  if (call.out.scalar_type() == at::kFloat) return fill(call.out, static_cast<float>(*value));
  return fill(call.out, *value);
}

std::optional<Step> copy_of(const at::Tensor& to, const at::Tensor& from) {
  if (from.scalar_type() != to.scalar_type()) return std::nullopt;
  if (to.sizes() == from.sizes() && to.strides() == from.strides() && to.is_non_overlapping_and_dense()) {
    const ByteCopy copy{static_cast<char*>(to.mutable_data_ptr()),
                        static_cast<const char*>(from.const_data_ptr())};
    return range_step(copy, static_cast<int64_t>(to.nbytes()), kShareGrain * to.element_size());
  }
  if (const auto rows = RowCopy::of(to, from.expand_as(to))) return range_step(*rows, rows->size(), 1);
#ifdef OVERDRIVE_DIRECT_KERNELS
  auto iterator = std::make_shared<at::TensorIterator>(at::TensorIteratorConfig()
                                                           .add_owned_output(to)
                                                           .add_owned_const_input(from.expand_as(to))
                                                           .resize_outputs(false)
                                                           .check_all_same_dtype(false)
                                                           .check_all_same_device(false)
                                                           .build());
  return step_of([iterator, kernel = chosen(at::native::copy_stub)] { kernel(*iterator, false); });
#else
  return std::nullopt;
#endif
}

// Zeros around a part that is copied: the backward of select() and slice().
std::optional<Step> part_of_zeros(DirectCall& call) {
  if ((call.name != "select_backward" && call.name != "slice_backward") || !call.out.is_contiguous() ||
      !call.has_tensor(0)) {
    return std::nullopt;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  const int64_t dim = call.constant(2).toInt(), begin = call.constant(3).toInt();
  const at::Tensor part = call.name == "select_backward"
                              ? call.out.select(dim, begin)
                              : call.out.slice(dim, begin, call.constant(4).toInt(), call.constant(5).toInt());
  if (part.sizes() != call.tensor(0).sizes() || part.numel() == 0) return std::nullopt;
  auto copy = copy_of(part, call.tensor(0));
  if (!copy) return std::nullopt;
  auto* zeros = static_cast<char*>(call.out.mutable_data_ptr());
  const size_t bytes = call.out.nbytes(), size = part.is_contiguous() ? part.nbytes() : 0,
               before = size > 0 ? static_cast<char*>(part.mutable_data_ptr()) - zeros : 0;
  return step_of([copy = std::make_shared<Step>(std::move(*copy)), zeros, bytes, before, size] {
    std::memset(zeros, 0, before);
    std::memset(zeros + before + size, 0, bytes - before - size);
    (*copy)();
  });
}

// Contiguous pieces, each a part of every row of the result.
std::optional<Step> concatenation(DirectCall& call) {
  if (call.name != "cat" || !call.out.is_contiguous()) return std::nullopt;
  int64_t dim = call.constant(1).toInt();
  if (dim < 0) dim += call.out.dim();
  int64_t rows = 1;
  for (int64_t i = 0; i < dim; ++i) rows *= call.out.size(i);
  struct Piece {
    const void* source;
    size_t offset;
    size_t bytes;
  };
  size_t row = 0;
  std::vector<Piece> pieces;
  for (const int value : call.op.in[0].values) {
    const at::Tensor& part = call.bound.tensor(value);
    if (!part.is_contiguous() || part.dim() != call.out.dim() || part.scalar_type() != call.out.scalar_type()) {
      return std::nullopt;
    }
    pieces.push_back({part.const_data_ptr(), row, part.nbytes() / rows});
    row += pieces.back().bytes;
  }
  return step_of([pieces = std::move(pieces), rows, row, target = call.out.mutable_data_ptr()] {
    for (const Piece& piece : pieces)
      kernels::put_into_rows(target, piece.source, rows, row, piece.offset, piece.bytes);
  });
}

}  // namespace

std::optional<Step> direct_copy(DirectCall& call) {
  if (auto step = fills(call)) return step;
  if (call.name == "clone") return copy_of(call.out, call.tensor(0));
  if (call.name == "copy" && call.op.name == "aten::copy_") return copy_of(call.out, call.tensor(1));
  // LibTorch copies where it would raise to 1.
  if (call.name == "pow" && call.has_tensor(0) && call.has_scalar(1) && call.constant(1).toScalar().equal(1))
    return copy_of(call.out, call.tensor(0));
  if (auto step = part_of_zeros(call)) return step;
  return concatenation(call);
}

}  // namespace overdrive::replay
