// Base of the tests of packers: a tensor is packed and unpacked by hand, without an op.
#pragma once

#include "test/hooks/hooks_fixture.h"

#include <limits>

namespace overdrive::hooks {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class Packers : public HooksTest {
 protected:
  static SaveInfo info_of(const Tensor& t) {
    return {.id = 1, .sequence_nr = 42, .bytes = static_cast<int64_t>(t.nbytes()), .dtype = t.scalar_type()};
  }
  static Tensor through(const HooksPtr& hooks, const Tensor& tensor, int64_t* bytes = nullptr) {
    const SaveInfo info = info_of(tensor);
    Packed packed = hooks->pack(tensor, info);
    if (bytes != nullptr) {
      *bytes = 0;
      for (const Tensor& part : packed.tensors) *bytes += static_cast<int64_t>(part.nbytes());
    }
    return hooks->unpack(packed, {.node = nullptr, .save = info});
  }
};

}  // namespace overdrive::hooks
