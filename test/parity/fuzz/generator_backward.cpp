// The generator's hooks, bodies and backwards.
#include <algorithm>

#include "test/parity/fuzz/generator.h"
#include "test/parity/fuzz/ops.h"

namespace overdrive::fuzz {

Statement Generator::make_hook(int depth) {
  Statement s = statement(What::kHook);
  s.hook = static_cast<HookKind>(random_.below(static_cast<int>(HookKind::kCount_)));
  const bool leaf = s.hook == HookKind::kPostAccumulate;
  const int target = slot_where([&](const Tensor& t) {
    return t.requires_grad() && (leaf ? t.is_leaf() : s.hook != HookKind::kRetainsGrad || !t.is_leaf());
  });
  if (target == kNoSlot) return s;
  s.from = {target};
  if (s.hook != HookKind::kRetainsGrad && random_.percent(depth == 0 ? 70 : 40)) make_body(s, depth);
  return s;
}

void Generator::make_body(Statement& s, int depth) {
  s.to = new_slots(1);
  const int kind = random_.below(10);
  Statement op = statement(What::kOp);
  op.from = {s.to};
  op.k = random_.below(3);
  op.to = s.to;
  if (kind < 3) {  // a new gradient
    op.name = random_.pick(
        std::vector<std::string>{"mul_scalar", "clone", "alias", "neg", "ones_like", "expanded_like"});
    op.to = new_slots(1);
    s.gives = Gives::kSlot;
    s.given = op.to;
    s.body.push_back(op);
  } else if (kind == 3) {  // the same one, written to
    op.name = "mul_scalar_";
    s.body.push_back(op);
  } else if (kind == 4) {
    s.gives = Gives::kUndefined;
  } else if (kind == 5 && random_.percent(30)) {  // one that does not fit
    op.name = random_.pick(std::vector<std::string>{"to_double", "wider_than", "sum", "to_sparse"});
    op.to = new_slots(1);
    s.gives = Gives::kSlot;
    s.given = op.to;
    s.body.push_back(op);
  } else if (kind == 6) {  // one that lives on: nobody may write into it
    op.name = "detach";
    op.to = new_slots(1);
    s.body.push_back(op);
  }
  for (int i = random_.below(3); i > 0; --i) add_to_body(s, depth);
}

void Generator::add_to_body(Statement& s, int depth) {
  const int kind = random_.below(100);
  if (traits_.nested && kind < 35 && depth < 2) {
    Statement inner = make_backward(depth + 1);
    if (!inner.from.empty()) s.body.push_back(std::move(inner));
  } else if (traits_.throwing && kind < 55) {
    Statement inner = statement(What::kThrow);
    inner.k = random_.below(kThrows - 1);  // the last is no std::exception: stock then forgets its warnings
    s.body.push_back(std::move(inner));
  } else if (traits_.modes && kind < 65) {
    Statement inner = statement(What::kMode);
    inner.k = random_.below(10);
    s.body.push_back(std::move(inner));
  } else if (kind < 72 && depth < 2) {
    Statement inner = make_hook(depth + 1);
    if (!inner.from.empty()) s.body.push_back(std::move(inner));
  } else if (kind < 77 && !hook_ids_.empty()) {
    Statement inner = statement(What::kRemoveHook);
    inner.k = random_.pick(hook_ids_);
    s.body.push_back(std::move(inner));
  } else if (kind < 84 && depth < 2) {
    Statement inner = statement(What::kCallback);
    for (int i = random_.below(3); i > 0; --i) add_to_body(inner, depth + 1);
    s.body.push_back(std::move(inner));
  } else if (kind < 88) {
    s.body.push_back(statement(What::kWarn));
  } else if (kind < 92) {
    s.body.push_back(statement(What::kQuery));
  } else if (kind < 95) {
    Statement inner = statement(What::kDrop);
    inner.from = {slot_where([](const Tensor&) { return true; })};
    if (inner.from[0] != kNoSlot) s.body.push_back(std::move(inner));
  } else if (kind < 97 && !leaves_.empty()) {
    Statement inner = statement(What::kClearGrad);
    inner.from = {random_.pick(leaves_)};
    s.body.push_back(std::move(inner));
  } else if (kind < 98) {
    s.body.push_back(statement(What::kSwitch));
  }
}

int Generator::gradient_for(int root, int depth) {
  const Tensor t = run_.slot(root);
  if (depth > 0 || random_.percent(25)) {
    const int other = slot_where([&](const Tensor& g) {
      return g.layout() == t.layout() && !g.is_nested() && !t.is_nested() && g.sizes() == t.sizes() &&
             g.scalar_type() == t.scalar_type();
    });
    if (other != kNoSlot) return other;
  }
  if (depth > 0) return root;
  const char* name = random_.percent(50) ? "cos_of" : random_.percent(70) ? "ones_like" : "expanded_like";
  if (random_.percent(2)) name = "wider_than";
  return add_op(name, {root}) ? live_.back() : kNoSlot;
}

std::vector<int> Generator::roots() {
  std::vector<int> chosen;
  if (random_.percent(70)) {
    const int sum = add_join();
    if (sum != kNoSlot) chosen.push_back(sum);
  }
  const int more = chosen.empty() ? random_.between(1, 3) : random_.percent(25) ? random_.between(1, 2) : 0;
  for (int i = 0; i < more; ++i) {
    const int slot = random_.percent(97) ? differentiable() : slot_where([](const Tensor&) { return true; });
    if (slot != kNoSlot) chosen.push_back(slot);
  }
  if (!chosen.empty() && random_.percent(8)) chosen.push_back(chosen[0]);  // the same twice
  if (!chosen.empty() && !leaves_.empty() && random_.percent(8))
    chosen.push_back(random_.pick(leaves_));  // a leaf
  return chosen;
}

// Puts a backward into a hook of the graph that is about to run, where it is sure to happen.
void Generator::nest_inside(const std::vector<int>& of) {
  Statement hook = statement(What::kHook);
  hook.hook = random_.percent(50) ? HookKind::kNodePre : HookKind::kNodePost;
  hook.from = {of[0]};
  const Tensor t = run_.slot(of[0]);
  if (!t.defined() || !t.requires_grad()) return;
  hook.to = new_slots(1);
  Statement inner = make_backward(1);
  inner.call.keep_graph = Flag::kYes;
  if (inner.from.empty()) return;
  hook.body.push_back(std::move(inner));
  keep(std::move(hook), 0);
}

void Generator::choose_inputs(Statement& s) {
  for (int i = random_.between(1, 4); i > 0; --i) {
    int slot = random_.percent(50) && !leaves_.empty() ? random_.pick(leaves_) : differentiable();
    if (random_.percent(8)) slot = random_.pick(s.from);                            // an input that is a root
    if (random_.percent(1)) slot = slot_where([](const Tensor&) { return true; });  // maybe without gradient
    if (slot != kNoSlot) s.call.inputs.push_back(slot);
  }
  if (!s.call.inputs.empty() && random_.percent(15)) s.call.inputs.push_back(s.call.inputs[0]);
}

Statement Generator::make_backward(int depth) {
  Statement s = statement(What::kBackward);
  if (depth == 0) {
    s.from = roots();
    s.lane = random_.percent(80) ? 0 : some_lane();
  } else {
    const int slot = differentiable();
    if (slot != kNoSlot) s.from = {slot};
    s.flag = random_.percent(50);  // an error in it goes on to the outer one
  }
  if (s.from.empty()) return s;
  const bool pruned = traits_.pruned && random_.percent(60);
  s.call.entry = static_cast<Entry>(random_.below(4));
  if (s.call.entry == Entry::kGrad || pruned) choose_inputs(s);
  if (depth == 0 && traits_.nested && random_.percent(60)) nest_inside(s.from);
  if (s.call.entry == Entry::kTensorBackward) s.from.resize(1);
  if (s.call.entry == Entry::kGrad) {
    s.to = new_slots(static_cast<int>(s.call.inputs.size()));
    s.call.allow_unused = random_.percent(85);
  }
  s.call.create_graph = traits_.create_graph && random_.percent(50);
  s.call.keep_graph = depth > 0             ? (random_.percent(75) ? Flag::kYes : Flag::kDefault)
                      : random_.percent(50) ? Flag::kYes
                                            : static_cast<Flag>(random_.between(-1, 0));
  const bool scalars =
      std::all_of(s.from.begin(), s.from.end(), [&](int i) { return run_.slot(i).numel() == 1; });
  if (s.call.entry == Entry::kExecute || !scalars || random_.percent(30)) {
    for (int root : s.from) {
      // execute() itself takes no undefined one, so that is rare there.
      const bool scalar = run_.slot(root).numel() == 1 && s.call.entry != Entry::kExecute;
      const bool undefined = (scalar && random_.percent(40)) || random_.percent(1);
      s.call.gradients.push_back(undefined ? kNoSlot : gradient_for(root, depth));
    }
  }
  return s;
}

void Generator::add_backward() {
  if (program_.slots > kMostSlots - 20) return;
  Statement s = make_backward(0);
  if (!s.from.empty()) keep(std::move(s), 100);
}

}  // namespace overdrive::fuzz
