#include "python/bindings/bindings.h"

#include "engine/engine.h"

#include <algorithm>
#include <climits>
#include <optional>
#include <string>

namespace overdrive::python {
namespace {

using engine::Errors, engine::Exact, engine::Nan, engine::Threads;
using InstallPtr = HeldPtr<engine::ScopedInstall>;
using Word = std::optional<std::string>;

template <typename T>
void set_word(T& option, const char* name, const Word& word, const Words<T>& words) {
  if (word.has_value()) option = one_of<T>("engine", name, *word, words);
}

// What is not given is the environment's.
InstallPtr enter_engine(const Word& threads, const Word& exact, std::optional<bool> own_nodes,
                        std::optional<int64_t> check_every, const Word& errors, const Word& nan) {
  engine::Options options = engine::Options::from_environment();
  set_word(options.threads, "threads", threads,
           {{"auto", Threads::kAuto}, {"caller", Threads::kCaller}, {"device", Threads::kDevice}});
  set_word(options.exact, "exact", exact, {{"auto", Exact::kAuto}, {"always", Exact::kAlways}});
  set_word(options.errors, "errors", errors,
           {{"plain", Errors::kPlain}, {"note", Errors::kNote}, {"full", Errors::kFull}});
  set_word(options.nan, "nan", nan, {{"off", Nan::kOff}, {"first", Nan::kFirst}});
  options.own_nodes = own_nodes.value_or(options.own_nodes);
  options.check_every = static_cast<int>(std::min<int64_t>(check_every.value_or(options.check_every), INT_MAX));
  return hold<engine::ScopedInstall>([&] { return engine::ScopedInstall(options); });
}

}  // namespace

void add_engine(torch::Library& library) {
  // Scopes may overlap on several threads, and end on any.
  library.class_<InstallPtr::element_type>("Engine")
      .def_static("enter", &enter_engine)
      .def_static("leave", [](const InstallPtr& scope) { scope->take(); });
}

}  // namespace overdrive::python
