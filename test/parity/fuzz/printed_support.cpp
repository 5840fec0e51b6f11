#include "test/parity/fuzz/printed_support.h"

namespace overdrive::fuzz {

const char* printed_includes() {
  return R"(
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/torch.h>

#include <future>
#include <iostream>

#include "engine/engine.h"

using namespace torch::autograd;
using at::Tensor;

)";
}

const char* printed_support() {
  return R"(
using namespace overdrive::fuzz;
struct Thrown {
  int value;
};
using Hook = std::function<Tensor(Tensor)>;
std::map<int, std::function<void()>> removers;
void remove_hook(int id) {
  if (const auto remove = std::exchange(removers[id], nullptr)) remove();
}

void show(const std::string& what, const Tensor& t) {
  std::cout << what << " = ";
  try {
    t.defined() ? std::cout << t << "\n" : std::cout << "undefined\n";
  } catch (const c10::Error&) {  // nested, and irregular
    std::cout << " of another kind\n";
  }
}
void show_all(const std::string& name, const Tensor& t) {
  show(name, t);
  if (t.defined() && t.is_leaf()) show(name + ".grad", t.grad());
}
void attempt(const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::Error& e) {
    std::cout << "error: " << e.msg() << "\n";
  } catch (const std::exception& e) {
    std::cout << "error: " << e.what() << "\n";
  } catch (const Thrown& e) {
    std::cout << "error: " << e.value << "\n";
  }
}
decltype(Edge::function) node_of(const Tensor& t) { return t.is_leaf() ? impl::grad_accumulator(t) : t.grad_fn(); }

struct Pre : FunctionPreHook {
  explicit Pre(Hook h) : hook(std::move(h)) {}
  variable_list operator()(const variable_list& g) override {
    variable_list out = g;
    if (!out.empty()) out[0] = hook(out[0]);
    return out;
  }
  Hook hook;
};
struct Post : FunctionPostHook {
  explicit Post(Hook h) : hook(std::move(h)) {}
  variable_list operator()(const variable_list& g, const variable_list&) override {
    variable_list out = g;
    if (!out.empty()) out[0] = hook(out[0]);
    return out;
  }
  Hook hook;
};
struct Accumulated : PostAccumulateGradHook {
  explicit Accumulated(Hook h) : hook(std::move(h)) {}
  void operator()(const Tensor& t) override { hook(t.grad()); }
  Hook hook;
};
// The fuzzer leaves such hooks out.
bool has_no_node(const Tensor& t) { return !t.defined() || !t.requires_grad(); }

void tensor_hook(int id, Tensor t, Hook hook) {
  if (has_no_node(t)) return;
  const unsigned at = t.register_hook([hook](const Tensor& g) -> Tensor { return hook(g); });
  removers[id] = [t, at] { t.remove_hook(at); };
}
void node_pre_hook(int id, Tensor t, Hook hook) {
  if (has_no_node(t)) return;
  const auto node = node_of(t);
  auto owned = std::make_unique<Pre>(hook);
  removers[id] = [node, key = owned.get()] {
    std::erase_if(node->pre_hooks(), [&](const auto& each) { return each.get() == key; });
  };
  node->add_pre_hook(std::move(owned));
}
void node_post_hook(int id, Tensor t, Hook hook) {
  if (has_no_node(t)) return;
  const auto node = node_of(t);
  const auto key = node->add_post_hook(std::make_unique<Post>(hook));
  removers[id] = [node, key] { node->del_post_hook(key); };
}
void post_accumulate_hook(int id, Tensor t, Hook hook) {
  if (has_no_node(t) || !t.is_leaf()) return;
  impl::set_post_acc_grad_hooks(t, std::make_unique<Accumulated>(hook));
  removers[id] = [t] { impl::set_post_acc_grad_hooks(t, nullptr); };
}
void retain_grad(Tensor t) {
  if (!has_no_node(t) && t.output_nr() == 0) t.retain_grad();
}
void execute(variable_list roots, variable_list gradients, bool keep, bool create, variable_list inputs) {
  edge_list from, to;
  for (auto& t : roots) from.push_back(impl::gradient_edge(t));
  for (auto& t : inputs) to.push_back(impl::gradient_edge(t));
  gradients.resize(from.size());
  for (auto& g : Engine::get_default_engine().execute(from, gradients, keep, create, inputs.empty(), to)) show("result", g);
}
// Each helper thread does its work in turn, so its sequence numbers start from 0.
struct Helper {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> work;
  bool stop = false;
  std::thread thread{[this] {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return work || stop; });
      if (!work) return;
      work();
      work = nullptr;
      changed.notify_all();
    }
  }};
  ~Helper() {
    { std::lock_guard<std::mutex> lock(mutex); stop = true; }
    changed.notify_all();
    thread.join();
  }
};
std::map<int, std::unique_ptr<Helper>> helpers;
void on_thread(int lane, std::function<void()> work) {
  auto& helper = helpers[lane];
  if (!helper) helper = std::make_unique<Helper>();
  std::unique_lock<std::mutex> lock(helper->mutex);
  helper->work = std::move(work);
  helper->changed.notify_all();
  helper->changed.wait(lock, [&] { return !helper->work; });
}

)";
}

const char* printed_main() {
  return R"(
int main() {
  at::set_num_threads(1);
  node_event = [](const std::string& what, int64_t id) { std::cout << "node " << id << " " << what << "\n"; };
  for (const bool ours : {false, true}) {
    ours ? overdrive::install() : (void)overdrive::uninstall();
    std::cout << "----- " << overdrive::engine::default_engine_owner() << "\n";
    std::thread(program).join();
    helpers.clear();
    removers.clear();
    bodies.clear();
    AnomalyMode::set_enabled(false);
  }
}
)";
}

}  // namespace overdrive::fuzz
