#include "replay/file/settings.h"

#include "engine/base/float_modes.h"
#include "engine/host/host_version.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/version.h>

extern "C" uint64_t aoti_torch_abi_version() __attribute__((weak));

namespace overdrive::replay {

namespace {

engine::HostVersion running_version() {
  return aoti_torch_abi_version ? engine::version_from_abi(aoti_torch_abi_version()) : engine::HostVersion{};
}

}  // namespace

std::string settings_now() {
  const at::Context& context = at::globalContext();
  const auto precision = [&](at::Float32Op op) {
    return static_cast<int>(context.float32Precision(at::Float32Backend::MKLDNN, op));
  };
  return c10::str("deterministic ", context.deterministicAlgorithms(), ", oneDNN ", context.userEnabledMkldnn(),
                  ", precision ", precision(at::Float32Op::CONV), ' ', precision(at::Float32Op::RNN), ' ',
                  precision(at::Float32Op::MATMUL), ", float modes ", base::float_modes());
}

std::string running_torch() {
  const engine::HostVersion version = running_version();
  return c10::str(version.major, ".", version.minor, ".", version.patch);
}

void check_torch() {
  TORCH_CHECK(engine::runs_in(engine::version_from_text(TORCH_VERSION), running_version()),
              "this Overdrive was built for LibTorch ", TORCH_VERSION, ", and runs in LibTorch ",
              running_torch(), ". It is bound to the minor version: build it for the one you use.");
}

}  // namespace overdrive::replay
