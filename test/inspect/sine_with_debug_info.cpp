// Compiled with debug information: forward_frames_test looks for this file and the line of sin().
#include <ATen/core/Tensor.h>

namespace overdrive::test {

extern const int kLineOfSine;  // a constant is not seen from outside otherwise
const int kLineOfSine = __LINE__ + 3;

at::Tensor sine_with_debug_info(const at::Tensor& x) {
  at::Tensor y = x.sin();
  return y;
}

}  // namespace overdrive::test
