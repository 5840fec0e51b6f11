// A program without LibTorch that loads a plugin which needs it, later:
//   autoload_late_program PLUGIN local|global
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* plugin = dlopen(argv[1], RTLD_NOW | (std::strcmp(argv[2], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
  if (!plugin) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  const auto run = reinterpret_cast<const char* (*)()>(dlsym(plugin, "plugin_run"));
  if (!run) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  std::printf("plugin: %s\n", run());
  return 0;
}
