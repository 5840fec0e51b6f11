// A library whose constructor calls its program. The loader's lock is held meanwhile.
extern "C" void called_while_loading();

namespace {
[[maybe_unused]] const bool loaded = (called_while_loading(), true);
}  // namespace
