// A program without LibTorch that loads a plugin which needs it, later:
//   autoload_late_program PLUGIN local|global
// `none` for the latter: loads nothing, and asks for LibTorch's engine.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::strcmp(argv[2], "none") == 0) {
    void* const getter = dlsym(RTLD_DEFAULT, "_ZN5torch8autograd6Engine18get_default_engineEv");
    const bool there = getter == nullptr || reinterpret_cast<void* (*)()>(getter)() != nullptr;
    return std::printf("%s\n", there ? "an engine, or no function" : "no engine"), 0;
  }
  void* plugin = dlopen(argv[1], RTLD_NOW | (std::strcmp(argv[2], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
  if (!plugin) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  const auto run = reinterpret_cast<const char* (*)()>(dlsym(plugin, "plugin_run"));
  if (!run) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  std::printf("plugin: %s\n", run());
  return 0;
}
