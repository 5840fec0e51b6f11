#include "replay/file/settings.h"

#include "engine/base/float_modes.h"

#include <ATen/Context.h>
#include <c10/util/StringUtil.h>

namespace overdrive::replay {

std::string settings_now() {
  const at::Context& context = at::globalContext();
  const auto precision = [&](at::Float32Op op) {
    return static_cast<int>(context.float32Precision(at::Float32Backend::MKLDNN, op));
  };
  return c10::str("deterministic ", context.deterministicAlgorithms(), ", oneDNN ", context.userEnabledMkldnn(),
                  ", precision ", precision(at::Float32Op::CONV), ' ', precision(at::Float32Op::RNN), ' ',
                  precision(at::Float32Op::MATMUL), ", float modes ", base::float_modes());
}

}  // namespace overdrive::replay
