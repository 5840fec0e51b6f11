// pthread_exit() and pthread_cancel() inside a backward: the thread ends as it does with stock, what is on its
// stack is destroyed, and the next backward on another thread is right.
#include "test/support/contract.h"
#include "test/support/hooks.h"
#include "test/support/sanitized.h"

#include <c10/util/ScopeExit.h>
#include <pthread.h>

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(ThreadEnd);

char exit_value;

// What pthread_join() says of a thread that ran `body`.
void* end_of_thread(const std::function<void()>& body) {
  pthread_t thread;
  const auto start = [](void* out) -> void* {
    (*static_cast<const std::function<void()>*>(out))();
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, nullptr, start, const_cast<std::function<void()>*>(&body)), 0);
  void* value = nullptr;
  pthread_join(thread, &value);
  return value;
}

variable_list exit_thread(variable_list&&) { end_thread(&exit_value); }

void expect_right_backward() {
  auto x = leaf(3);
  auto y = x * x;
  add_tensor_hook(y, [](const at::Tensor& gradient) { return gradient * 2; });
  y.backward();
  EXPECT_EQ(value_of(x.grad()), 12);
}

TYPED_TEST(ThreadEnd, InANodeDestroysWhatIsOnTheStack) {
  int destroyed = 0;
  auto node = make_node("node", {}, exit_thread);
  EXPECT_EQ(end_of_thread([&] {
              const auto guard = c10::make_scope_exit([&] { ++destroyed; });
              run({.roots = {edge(node)}});
            }),
            &exit_value);
  EXPECT_EQ(destroyed, 1);
  expect_right_backward();
}

TYPED_TEST(ThreadEnd, InAHookOfAPrunedRun) {
  auto x = leaf();
  auto y = x * 2;
  add_tensor_hook(y, [](const at::Tensor& gradient) {
    end_thread(&exit_value);
    return gradient;
  });
  EXPECT_EQ(end_of_thread([&] { torch::autograd::grad({y}, {x}); }), &exit_value);
  expect_right_backward();
}

TYPED_TEST(ThreadEnd, InABackwardInsideOthers) {
  const std::function<void(int)> nest = [&](int levels) {
    auto body = [&nest, levels](variable_list&&) -> variable_list {
      if (levels == 0) end_thread(&exit_value);
      nest(levels - 1);
      return {};
    };
    run({.roots = {edge(make_node("node", {}, body))}});
  };
  EXPECT_EQ(end_of_thread([&] { nest(5); }), &exit_value);
  expect_right_backward();
}

TYPED_TEST(ThreadEnd, InACallback) {
  auto node = make_node("node", {}, [](variable_list&&) {
    Engine::get_default_engine().queue_callback([] { end_thread(&exit_value); });
    return variable_list{};
  });
  EXPECT_EQ(end_of_thread([&] { run({.roots = {edge(node)}}); }), &exit_value);
  expect_right_backward();
}

TYPED_TEST(ThreadEnd, ByCancellation) {
  auto node = make_node("node", {}, [](variable_list&&) {
    pthread_cancel(pthread_self());
    pthread_testcancel();
    return variable_list{};
  });
  EXPECT_EQ(end_of_thread([&] { run({.roots = {edge(node)}}); }), PTHREAD_CANCELED);
  expect_right_backward();
}

}  // namespace
}  // namespace overdrive::test
