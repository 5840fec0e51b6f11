// Makes a program from a seed. Statements are tried on the base engine as they are made, and most
// of those that fail are thrown away again, so that programs go far. The same seed gives the same
// program everywhere. One generator at a time; it leaves nothing behind.
#pragma once

#include <functional>
#include <vector>

#include "test/parity/fuzz/interpreter.h"
#include "test/parity/fuzz/ops.h"
#include "test/parity/fuzz/program.h"
#include "test/parity/fuzz/random.h"

namespace overdrive::fuzz {

Program generate(uint64_t seed);

// From this seed on programs are plain: no hooks, no Functions or nodes of the program's, nothing that watches.
// Their backwards need no graph task, so Overdrive runs the nodes that it has a function for.
inline constexpr uint64_t kPlainSeeds = uint64_t{1} << 63;
inline bool is_plain(uint64_t seed) { return seed >= kPlainSeeds; }

// The interpreter has a few more.
inline constexpr int kMostSlots = 230;

// What kind of program it is to be: rare things come together rather than thinly everywhere.
struct Traits {
  bool threads, nested, throwing, pruned, create_graph, functions, complex, sparse, nested_tensors, modes,
      many_hooks, hook_all;
  bool plain = false;
  Traits(Random& random, Group featured, bool is_plain);
};

class Generator {
 public:
  explicit Generator(uint64_t seed);
  Program make();

 private:
  using Wanted = std::function<bool(const Tensor&)>;

  // Tries the statement; keeps it when it did something, and now and then when it failed.
  bool keep(Statement s, int keep_failures = 4);
  int new_slots(int n);
  int some_lane();
  Statement statement(What what);

  void add_leaf();
  const Op& random_op();
  bool add_op();
  bool add_op(const std::string& name, std::vector<int> from);
  void add_forward(int ops);
  void add_hook();
  void add_plain_hook(int slot, HookKind kind);
  int add_join();
  void add_backward();
  void add_between();

  // Operands.
  int slot_where(const Wanted& wanted);
  int operand(const std::string& op);
  int slot_like(const Tensor& first);
  int differentiable();
  std::vector<int> roots();
  int gradient_for(int root, int depth);

  Statement make_hook(int depth);
  Statement make_backward(int depth);
  void choose_inputs(Statement& s);
  void nest_inside(const std::vector<int>& of);
  void make_body(Statement& s, int depth);
  void add_to_body(Statement& s, int depth);

  Random random_;
  Program program_;
  const Op& featured_;  // seeds in a row take turns with the ops: a run of programs misses none
  const Traits traits_;
  Interpreter run_;
  std::vector<int> live_;  // slots that hold a tensor
  std::vector<int> uses_;  // by slot
  std::vector<int> hook_ids_;
  std::vector<int> leaves_;
  int next_id_ = 1;
};

}  // namespace overdrive::fuzz
