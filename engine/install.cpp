#include "engine/install.h"

#include "engine/overdrive_engine.h"

#include <torch/version.h>

namespace overdrive::engine {

bool installed() { return &base::Engine::get_default_engine() == &OverdriveEngine::get(); }

void install(const Options& options) {
  OverdriveEngine::get().set_options(options);
  if (installed()) return;
  OverdriveEngine::get().set_previous(base::Engine::get_default_engine());
  torch::autograd::set_default_engine_stub(&OverdriveEngine::stub);
}

bool uninstall() {
  if (!installed()) return true;
  torch::autograd::set_default_engine_stub(&base::Engine::get_base_engine);
  return true;
}

std::string default_engine_owner() { return installed() ? "overdrive" : "base"; }
std::string built_for_torch() { return OVERDRIVE_BUILT_FOR_TORCH; }
std::string running_torch() { return TORCH_VERSION; }

ScopedInstall::ScopedInstall(const Options& options) : was_installed_(installed()) { install(options); }
ScopedInstall::~ScopedInstall() {
  if (!was_installed_) uninstall();
}

}  // namespace overdrive::engine
