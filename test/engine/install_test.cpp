#include "engine/engine.h"
#include "engine/host/host_version.h"

#include "test/support/pch.h"

#include <torch/version.h>

#include <thread>

namespace {

using overdrive::engine::default_engine_owner;
using overdrive::engine::HostVersion;
using overdrive::engine::runs_in;
using overdrive::engine::version_from_abi;
using overdrive::engine::version_from_text;
using testing::HasSubstr;
using torch::autograd::Engine;
using torch::autograd::set_default_engine_stub;

// Somebody else's engine. With `below` set it gives every call to that engine, as we do.
class ForeignEngine final : public Engine {
 public:
  static ForeignEngine& get() {
    static auto* engine = new ForeignEngine;  // LibTorch's stubs may point to it until the end
    return *engine;
  }
  static Engine& stub() { return get(); }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    ++asked_for_hooks;
    return below ? below->get_default_saved_variable_hooks() : nullptr;
  }

  Engine* below = nullptr;
  int asked_for_hooks = 0;

 private:
  ~ForeignEngine() override { stop(); }
};

class CollectWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

class Install : public testing::Test {
 protected:
  Install() { set_default_engine_stub(&Engine::get_base_engine); }
  ~Install() override {
    set_default_engine_stub(&Engine::get_base_engine);
    c10::WarningUtils::WarningHandlerGuard quiet(&warnings_);
    overdrive::uninstall();
    ForeignEngine::get().below = nullptr;
    ForeignEngine::get().asked_for_hooks = 0;
  }
  static Engine& now() { return Engine::get_default_engine(); }
  static void expect_backward_is_right() {
    auto x = torch::ones({2}, torch::requires_grad());
    (x * 3).sum().backward();
    EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 3.0)));
  }
  CollectWarnings warnings_;
};

TEST_F(Install, MakesOverdriveTheDefaultEngineAndPutsTheBaseEngineBack) {
  EXPECT_FALSE(overdrive::installed());
  overdrive::install();
  EXPECT_TRUE(overdrive::installed());
  expect_backward_is_right();
  EXPECT_TRUE(overdrive::uninstall());
  EXPECT_FALSE(overdrive::installed());
  EXPECT_EQ(&now(), &Engine::get_base_engine());
}

TEST_F(Install, TwiceIsOneInstall) {
  overdrive::install();
  overdrive::install(overdrive::Options{.check_every = 7});
  EXPECT_TRUE(overdrive::uninstall());
  EXPECT_EQ(&now(), &Engine::get_base_engine());
  EXPECT_TRUE(overdrive::uninstall()) << "there is nothing to take off, which is no failure";
}

TEST_F(Install, PutsBackAnEngineThatIsNotTheBaseEngine) {
  set_default_engine_stub(&ForeignEngine::stub);
  for (int round = 0; round < 3; ++round) {
    overdrive::install();
    expect_backward_is_right();
    EXPECT_TRUE(overdrive::uninstall());
    EXPECT_EQ(&now(), &ForeignEngine::get());
  }
}

TEST_F(Install, AsksThePreviousEngineForSavedTensorHooks) {
  set_default_engine_stub(&ForeignEngine::stub);
  overdrive::install();
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = x * x;
  EXPECT_GE(ForeignEngine::get().asked_for_hooks, 2);
}

TEST_F(Install, IsNotUndoneUnderAnEngineThatCameOnTop) {
  overdrive::install();
  set_default_engine_stub(&ForeignEngine::stub);
  c10::WarningUtils::WarningHandlerGuard collect(&warnings_);
  EXPECT_FALSE(overdrive::uninstall());
  EXPECT_EQ(&now(), &ForeignEngine::get());
  EXPECT_THAT(warnings_.texts, testing::ElementsAre(HasSubstr("ForeignEngine")));
}

TEST_F(Install, MayHappenAgainOverAnEngineThatCallsOurs) {
  // ours over foreign over ours: a call that both pass on would go round for ever.
  overdrive::install();
  ForeignEngine::get().below = &now();
  set_default_engine_stub(&ForeignEngine::stub);
  overdrive::install();
  expect_backward_is_right();
  EXPECT_TRUE(overdrive::uninstall());
  EXPECT_EQ(&now(), &ForeignEngine::get());
}

TEST_F(Install, IsUndoneAlsoAfterSomebodyPutOursBack) {
  overdrive::install();
  static Engine* recorded;  // what an engine on top of ours would have kept, to put it back
  recorded = &now();
  set_default_engine_stub(&Engine::get_base_engine);
  EXPECT_TRUE(overdrive::uninstall());
  set_default_engine_stub([]() -> Engine& { return *recorded; });
  EXPECT_TRUE(overdrive::installed());
  EXPECT_TRUE(overdrive::uninstall());
  EXPECT_EQ(&now(), &Engine::get_base_engine());
}

TEST_F(Install, EndsItsScopeQuietlyWhenAnEngineCameOnTopAndWarningsAreErrors) {
  struct Throws final : c10::WarningHandler {
    void process(const c10::Warning&) override { throw std::runtime_error("a warning"); }
  } throws;
  c10::WarningUtils::WarningHandlerGuard guard(&throws);
  {
    overdrive::ScopedInstall scope;
    set_default_engine_stub(&ForeignEngine::stub);
  }
  EXPECT_EQ(&now(), &ForeignEngine::get());
  EXPECT_THROW(overdrive::uninstall(), std::runtime_error) << "a plain call passes it on";
}

TEST_F(Install, KnowsWhoseEngineIsTheDefault) {
  EXPECT_EQ(default_engine_owner(), "base");
  overdrive::install();
  EXPECT_EQ(default_engine_owner(), "overdrive");
  set_default_engine_stub(&ForeignEngine::stub);
  EXPECT_THAT(default_engine_owner(), testing::MatchesRegex("unknown \\(.*::ForeignEngine\\)"));
}

TEST_F(Install, LastsAsLongAsTheLongestOfScopesThatOverlap) {
  auto first = std::make_unique<overdrive::ScopedInstall>();
  std::unique_ptr<overdrive::ScopedInstall> second;
  std::thread([&] { second = std::make_unique<overdrive::ScopedInstall>(); }).join();
  first.reset();
  EXPECT_TRUE(overdrive::installed());
  second.reset();
  EXPECT_FALSE(overdrive::installed());
}

TEST_F(Install, HasTheOptionsOfTheYoungestOfScopesThatOverlap) {
  const auto checks = [] {
    overdrive::reset_stats();
    expect_backward_is_right();
    return overdrive::stats().checked == 1;
  };
  overdrive::install(overdrive::Options{});
  auto first = std::make_unique<overdrive::ScopedInstall>(overdrive::Options{.own_nodes = false});
  std::unique_ptr<overdrive::ScopedInstall> second;
  std::thread([&] {
    second = std::make_unique<overdrive::ScopedInstall>(overdrive::Options{.check_every = 1});
  }).join();
  EXPECT_TRUE(checks());
  first.reset();
  EXPECT_TRUE(checks()) << "the second is the younger one, and lives";
  first = std::make_unique<overdrive::ScopedInstall>(overdrive::Options{});
  EXPECT_FALSE(checks());
  second.reset();
  EXPECT_FALSE(checks());
  first.reset();
  EXPECT_FALSE(checks()) << "as before the scopes, not as the one had found it inside of the other";
}

TEST_F(Install, GivesTheYoungestScopeOtherOptions) {
  overdrive::install(overdrive::Options{});
  {
    overdrive::ScopedInstall outer(overdrive::Options{});
    {
      overdrive::ScopedInstall inner(overdrive::Options{});
      overdrive::install(overdrive::Options{.check_every = 1});
      overdrive::reset_stats();
      expect_backward_is_right();
    }
    expect_backward_is_right();
  }
  expect_backward_is_right();
  EXPECT_EQ(overdrive::stats().checked, 1);
}

TEST_F(Install, IsRefusedBesideALibraryThatHasADispatchKeyOfOurs) {
  {
    torch::Library theirs(torch::Library::IMPL, "_", c10::DispatchKey::DeferredInit, __FILE__, __LINE__);
    theirs.fallback(torch::CppFunction::makeFallthrough());
    try {
      overdrive::install();
      ADD_FAILURE() << "no error";
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.msg(),
                  testing::AllOf(HasSubstr("dispatch key DeferredInit"), HasSubstr("borrows for checkpoints")));
    }
    EXPECT_FALSE(overdrive::installed());
  }
  overdrive::install();
  EXPECT_TRUE(overdrive::installed());
}

TEST_F(Install, OutlastsAScopeThatFoundItInstalled) {
  overdrive::install();
  { overdrive::ScopedInstall scope; }
  EXPECT_TRUE(overdrive::installed());
}

TEST(HostVersion, IsReadFromTextAndFromTheNumberThatLibTorchReports) {
  static_assert(version_from_text("2.13.0+cpu") == HostVersion{2, 13, 0});
  static_assert(version_from_text("2.14.1a0+git1234") == HostVersion{2, 14, 1});
  static_assert(version_from_text("2.13") == HostVersion{2, 13, 0});
  static_assert(version_from_text("") == HostVersion{});
  static_assert(version_from_abi(0x020d'0100'0000'0000) == HostVersion{2, 13, 1});
  EXPECT_EQ(overdrive::engine::running_torch(), TORCH_VERSION) << "tests run in what they were built with";
}

TEST(HostVersion, FitsWithinAMinorVersion) {
  static_assert(runs_in({2, 13, 0}, {2, 13, 2}));
  static_assert(!runs_in({2, 13, 0}, {2, 14, 0}));
  static_assert(!runs_in({2, 13, 0}, {2, 12, 0}));
  static_assert(!runs_in({2, 13, 0}, {3, 13, 0}));
  static_assert(!runs_in({2, 13, 0}, {}), "a LibTorch that does not say is too old");
}

}  // namespace
