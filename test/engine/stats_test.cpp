#include "engine/c_api.h"
#include "engine/engine.h"

#include "test/support/pch.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

extern "C" int c_api_user_switches_on_and_off(void);

namespace {

using testing::HasSubstr;

// {x} --*3--> --sum--> {loss}: three nodes, with the one that accumulates into x.
constexpr uint64_t kNodes = 3;
void backward() {
  auto x = torch::ones({2}, torch::requires_grad());
  (x * 3).sum().backward();
}

class Stats : public testing::Test {
 protected:
  void SetUp() override { overdrive::reset_stats(); }
  overdrive::ScopedInstall scope_;
};

TEST_F(Stats, CountBackwardsAndNodesOfEveryThread) {
  backward();
  std::thread(backward).join();
  const overdrive::Stats stats = overdrive::stats();
  EXPECT_EQ(stats.backwards, 2);
  EXPECT_EQ(stats.nodes, 2 * kNodes);
  EXPECT_EQ(stats.nested, 0);
  EXPECT_TRUE(stats.forwarded.empty());
}

TEST_F(Stats, CountNestedBackwardsAmongTheOthers) {
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = x * 3;
  y.register_hook([](const torch::Tensor&) {
    const torch::AutoGradMode on(true);
    backward();
  });
  y.sum().backward();
  EXPECT_EQ(overdrive::stats().backwards, 2);
  EXPECT_EQ(overdrive::stats().nested, 1);
}

TEST_F(Stats, DoNotCountWhatStockRuns) {
  overdrive::uninstall();
  backward();
  EXPECT_EQ(overdrive::stats().backwards, 0);
}

TEST_F(Stats, StartFromZeroAfterAReset) {
  backward();
  overdrive::reset_stats();
  EXPECT_EQ(overdrive::stats().backwards, 0);
  backward();
  EXPECT_EQ(overdrive::stats().nodes, kNodes);
}

TEST_F(Stats, AreOneLineOfJsonWithEveryCounter) {
  backward();
  const std::string text = overdrive::engine::stats_json();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["backwards"], 1);
  EXPECT_EQ(json["nodes"], kNodes);
  for (const char* counter :
       {"frames_elided", "nested", "slow_validations", "slow_sums", "fresh_stacks", "threads", "checked",
        "check_skipped", "packed_later", "ahead_hits", "ahead_waits", "ahead_misses", "ahead_unused",
        "ahead_bytes", "waiting_bytes", "keep_memory_bytes", "compiled_autograd_unknown"}) {
    EXPECT_TRUE(json.contains(counter)) << counter;
  }
  EXPECT_EQ(json["forwarded"], nlohmann::json::object());
}

TEST_F(Stats, NameTheReasonsOfForwardedCalls) {
  const auto x = torch::ones({2}, torch::requires_grad());
  const auto loss = (x * 3).sum();
  // Neither accumulating nor asking for outputs: stock refuses that, so it is stock's to say.
  EXPECT_THROW(
      torch::autograd::Engine::get_default_engine().execute({torch::autograd::impl::gradient_edge(loss)},
                                                            {torch::ones_like(loss)}, false, false, false, {}),
      c10::Error);
  const auto json = nlohmann::json::parse(overdrive::engine::stats_json());
  ASSERT_EQ(json["forwarded"].size(), 1);
  EXPECT_EQ(*json["forwarded"].begin(), 1);
}

TEST_F(Stats, AreCutToTheCallersBufferInC) {
  const std::string whole = overdrive::engine::stats_json();
  const int length = overdrive_stats_json(nullptr, 0);
  ASSERT_EQ(length, static_cast<int>(whole.size()));
  std::string buffer(10, 'x');
  EXPECT_EQ(overdrive_stats_json(buffer.data(), buffer.size()), length);
  EXPECT_EQ(buffer, whole.substr(0, 9) + '\0');
  EXPECT_EQ(overdrive_backward_count(), overdrive::stats().backwards);
}

TEST(CApi, SwitchesOnAndOffFromC) { EXPECT_EQ(c_api_user_switches_on_and_off(), 1); }

TEST(CApi, RefusesToKeepMoreMemoryThanGlibcCanBeTold) {
  EXPECT_EQ(overdrive_keep_memory(SIZE_MAX), 0);
  EXPECT_THAT(overdrive_last_error(), HasSubstr("glibc takes at most 2147483647"));
}

TEST(CApi, SaysWhyInstallFailedAndForgetsItAfterwards) {
  setenv("OVERDRIVE_EXACT", "sideways", 1);
  EXPECT_EQ(overdrive_install(), 0);
  EXPECT_THAT(overdrive_last_error(), testing::AllOf(HasSubstr("OVERDRIVE_EXACT"), HasSubstr("\"sideways\"")));
  EXPECT_THAT(overdrive_last_error(), testing::Not(HasSubstr("frame #"))) << "a text for people, no backtrace";
  std::thread([] { EXPECT_STREQ(overdrive_last_error(), ""); }).join();
  unsetenv("OVERDRIVE_EXACT");
  EXPECT_EQ(overdrive_install(), 1);
  EXPECT_STREQ(overdrive_last_error(), "");
  EXPECT_EQ(overdrive_uninstall(), 1);
}

}  // namespace
