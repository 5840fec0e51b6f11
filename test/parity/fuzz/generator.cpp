#include "test/parity/fuzz/generator.h"

#include <algorithm>
#include <array>

#include "test/parity/fuzz/ops.h"

namespace overdrive::fuzz {

Traits::Traits(Random& random, Group featured, bool is_plain)
    : threads(random.percent(25)),
      nested(random.percent(35)),
      throwing(random.percent(25)),
      pruned(random.percent(50)),
      create_graph(random.percent(35)),
      functions(random.percent(50) || featured == Group::kFunction),
      complex(random.percent(20) || featured == Group::kComplex),
      sparse(random.percent(25) || featured == Group::kSparse),
      nested_tensors(random.percent(20) || featured == Group::kNested),
      modes(random.percent(15)),
      many_hooks(random.percent(50)),
      hook_all(random.percent(60)),
      plain(is_plain) {
  if (plain) nested = throwing = functions = modes = many_hooks = hook_all = false;
}

namespace {

Watch choose_watch(Random& random) {
  Watch watch;
  watch.pre_hooks = random.percent(20);
  watch.post_hooks = random.percent(15);
  watch.events = random.percent(10);
  watch.anomaly = random.percent(20);
  watch.traced = watch.anomaly && random.percent(5);
  return watch;
}

bool is_dense(const Tensor& t) { return t.layout() == at::kStrided && !t.is_nested(); }

}  // namespace

Program generate(uint64_t seed) { return Generator(seed).make(); }

Generator::Generator(uint64_t seed)
    : random_(seed),
      featured_(ops()[seed % ops().size()]),
      traits_(random_, featured_.group, is_plain(seed)),
      run_(seed, Watch{.lifetimes = false}),
      uses_(256, 0) {
  program_.seed = seed;
  if (!traits_.plain) program_.watch = choose_watch(random_);
}

Program Generator::make() {
  for (int i = random_.between(2, 5); i > 0; --i) add_leaf();
  const int backwards = random_.between(1, 3);
  for (int i = 0; i < backwards; ++i) {
    add_forward(random_.between(5, i == 0 ? 18 : 8));
    add_between();
    add_backward();
  }
  if (random_.percent(30)) add_backward();  // again, often on what the last one freed
  run_.finish();
  return std::move(program_);
}

Statement Generator::statement(What what) {
  Statement s;
  s.what = what;
  s.id = next_id_++;
  return s;
}

int Generator::new_slots(int n) {
  const int first = program_.slots;
  program_.slots = std::min(program_.slots + n, kMostSlots);
  return std::min(first, kMostSlots - n);
}

int Generator::some_lane() { return traits_.threads ? random_.below(4) : 0; }

bool Generator::keep(Statement s, int keep_failures) {
  const bool done = run_.step(s);
  if (!done && !random_.percent(keep_failures)) return false;
  for (int i : s.from) ++uses_[static_cast<size_t>(i)];
  if (done && s.to != kNoSlot && (s.what == What::kLeaf || s.what == What::kOp || s.what == What::kBackward)) {
    const auto n = s.what == What::kOp ? ops()[op_index(s.name)].results
                                       : std::max<int>(1, static_cast<int>(s.call.inputs.size()));
    for (int i = s.to; i < s.to + n; ++i) {
      if (run_.slot(i).defined()) live_.push_back(i);
    }
  }
  program_.statements.push_back(std::move(s));
  return done;
}

void Generator::add_leaf() {
  Statement s = statement(What::kLeaf);
  s.to = new_slots(1);
  s.shape = random_.below(kShapes);
  s.layout = random_.percent(55) ? 0 : random_.below(5);
  if (traits_.sparse && random_.percent(15)) s.layout = 5;
  if (traits_.nested_tensors && random_.percent(25)) s.layout = 6, s.shape = 0;
  if (traits_.sparse && random_.percent(4)) s.layout = 7;
  s.dtype = random_.percent(75)   ? 0
            : random_.percent(60) ? 2
            : traits_.complex     ? 3
            : random_.percent(20) ? 4
                                  : 0;
  s.k = random_.below(8);
  s.flag = random_.percent(85);
  const int slot = s.to;
  if (keep(std::move(s), 0)) leaves_.push_back(slot);
}

int Generator::slot_where(const Wanted& wanted) {
  std::vector<int> fit;
  for (int i : live_) {
    const Tensor& t = run_.slot(i);
    if (!t.defined() || !wanted(t)) continue;
    fit.push_back(i);
    // What is new and not yet used is likelier to be taken.
    if (uses_[static_cast<size_t>(i)] == 0) fit.insert(fit.end(), 3, i);
  }
  return fit.empty() ? kNoSlot : random_.pick(fit);
}

int Generator::operand(const std::string& op) {
  if (op == "to_dense" || op == "coalesce" || op == "sparse_sum") {
    return slot_where([](const Tensor& t) { return t.is_sparse(); });
  }
  if (op == "to_padded" || op == "nested_add" || op == "nested_unbind") {
    return slot_where([](const Tensor& t) { return t.is_nested(); });
  }
  if (op == "real" || op == "imag" || op == "conj" || op == "conj_physical" || op == "view_as_real") {
    return slot_where([](const Tensor& t) { return t.is_complex(); });
  }
  if (op == "avg_pool2d" || op == "max_pool2d") {
    return slot_where([](const Tensor& t) { return is_dense(t) && t.dim() >= 3; });
  }
  if (random_.percent(3)) return slot_where([](const Tensor&) { return true; });
  return slot_where([](const Tensor& t) { return is_dense(t) && t.numel() <= 64; });
}

int Generator::differentiable() {
  return slot_where([](const Tensor& t) { return t.requires_grad(); });
}

bool Generator::add_op(const std::string& name, std::vector<int> from) {
  const Op& op = ops()[op_index(name)];
  Statement s = statement(What::kOp);
  s.name = name;
  s.from = std::move(from);
  s.k = random_.below(6);
  s.lane = some_lane();
  s.to = new_slots(op.results);
  if (op.group == Group::kFunction && random_.percent(40)) make_body(s, 0);
  const int to = s.to;
  if (!keep(std::move(s), 1)) return false;
  if (traits_.hook_all && op.group != Group::kConstant) {
    for (const HookKind kind :
         {HookKind::kTensor, HookKind::kRetainsGrad, HookKind::kNodePre, HookKind::kNodePost}) {
      if (random_.percent(50)) add_plain_hook(to, kind);
    }
  }
  return true;
}

// One that only looks, so that every op meets every kind.
void Generator::add_plain_hook(int slot, HookKind kind) {
  const Tensor& t = run_.slot(slot);
  if (!t.defined() || !t.requires_grad() || t.is_leaf()) return;
  Statement s = statement(What::kHook);
  s.hook = kind;
  s.from = {slot};
  keep(std::move(s), 0);
}

// What fits nearly any op; most other shapes are refused.
int Generator::slot_like(const Tensor& first) {
  if (!is_dense(first)) return kNoSlot;
  return slot_where([&](const Tensor& t) { return is_dense(t) && t.sizes() == first.sizes(); });
}

const Op& Generator::random_op() {
  std::vector<Group> groups = {Group::kMath, Group::kMath, Group::kMath,
                               Group::kMath, Group::kView, Group::kInPlace};
  if (traits_.functions) groups.insert(groups.end(), 2, Group::kFunction);
  if (traits_.complex) groups.insert(groups.end(), 2, Group::kComplex);
  if (traits_.sparse) groups.insert(groups.end(), 2, Group::kSparse);
  if (traits_.nested_tensors) groups.insert(groups.end(), 2, Group::kNested);
  const Group group = random_.pick(groups);
  std::vector<const Op*> rows;
  for (const Op& op : ops()) {
    if (op.group == group) rows.push_back(&op);
  }
  return *random_.pick(rows);
}

bool Generator::add_op() {
  const Op& op = random_.percent(30) ? featured_ : random_op();
  std::vector<int> from;
  for (int i = 0; i < op.arity; ++i) {
    // In place on a view, and on what is used elsewhere, is where the hard cases are.
    int slot = kNoSlot;
    if (op.group == Group::kInPlace && i == 0) {
      const bool view = random_.percent(60);
      slot = slot_where([&](const Tensor& t) {
        return is_dense(t) && t.is_view() == view && !(t.is_leaf() && t.requires_grad());
      });
    }
    if (i > 0 && random_.percent(50)) slot = slot_like(run_.slot(from.front()));
    if (slot == kNoSlot) slot = operand(op.name);
    if (slot == kNoSlot) return false;
    from.push_back(slot);
  }
  return add_op(op.name, std::move(from));
}

void Generator::add_forward(int count) {
  for (int done = 0, tries = 0; done < count && tries < 6 * count && program_.slots < kMostSlots - 60;
       ++tries) {
    done += add_op();
    if (!traits_.plain && random_.percent(traits_.many_hooks ? 35 : 12)) add_hook();
  }
}

void Generator::add_hook() {
  Statement s = make_hook(0);
  if (s.from.empty()) return;
  const int id = s.id;
  if (keep(std::move(s), 0)) hook_ids_.push_back(id);
}

// Adds up what nobody has used, so that most ops are part of the graph of one scalar.
int Generator::add_join() {
  int sum = kNoSlot;
  const std::vector<int> ends = live_;
  for (int end : ends) {
    const Tensor t = run_.slot(end);
    if (!t.defined() || !t.requires_grad() || uses_[static_cast<size_t>(end)] > 0) continue;
    if (program_.slots > kMostSlots - 40) break;
    const bool plain = t.layout() == at::kStrided && !t.is_nested();
    bool good = true;
    if (t.is_nested()) good = add_op("to_padded", {end});
    if (t.layout() != at::kStrided) good = add_op("to_dense", {end});
    if (plain && t.is_complex()) good = add_op("abs", {end});
    if (!good || !add_op("sum", {plain && !t.is_complex() ? end : live_.back()})) continue;
    const int part = live_.back();
    if (sum == kNoSlot) {
      sum = part;
    } else if (add_op("add", {sum, part})) {
      sum = live_.back();
    }
  }
  return sum;
}

void Generator::add_between() {
  if (random_.percent(20))
    keep([&] {
      Statement s = statement(What::kWarn);
      return s;
    }());
  if (random_.percent(15) && !hook_ids_.empty()) {
    Statement s = statement(What::kRemoveHook);
    s.k = random_.pick(hook_ids_);
    keep(std::move(s), 0);
  }
  if (random_.percent(10)) {
    Statement s = statement(What::kClearGrad);
    if (!leaves_.empty()) s.from = {random_.pick(leaves_)}, keep(std::move(s), 0);
  }
  if (!traits_.plain && random_.percent(4)) {
    Statement s = statement(What::kCallback);  // outside a backward: an error
    keep(std::move(s), 100);
  }
}

}  // namespace overdrive::fuzz
