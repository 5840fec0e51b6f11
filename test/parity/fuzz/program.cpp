#include "test/parity/fuzz/program.h"

#include <algorithm>

namespace overdrive::fuzz {

const char* hook_name(HookKind kind) {
  switch (kind) {
    case HookKind::kTensor:
      return "tensor pre-hook";
    case HookKind::kRetainsGrad:
      return "retains_grad";
    case HookKind::kNodePre:
      return "node pre-hook";
    case HookKind::kNodePost:
      return "node post-hook";
    case HookKind::kPostAccumulate:
      return "post-accumulate-grad hook";
    case HookKind::kCount_:
      break;
  }
  return "?";
}

bool Program::uses_lanes() const {
  return std::any_of(statements.begin(), statements.end(), [](const Statement& s) { return s.lane != 0; });
}

int size_of(const std::vector<Statement>& statements) {
  int size = 0;
  for (const Statement& s : statements) size += 1 + size_of(s.body);
  return size;
}

}  // namespace overdrive::fuzz
