#include "engine/options.h"

#include "engine/options_in_use.h"

#include "test/support/pch.h"

#include <cstdlib>
#include <set>

namespace {

using namespace overdrive::engine;
using testing::AllOf;
using testing::HasSubstr;

// Clears every OVERDRIVE_* variable for the test and puts the values back afterwards.
class OptionsFromEnvironment : public testing::Test {
 protected:
  OptionsFromEnvironment() {
    for (const Variable& row : environment_variables()) {
      if (const char* value = std::getenv(row.name)) saved_.emplace_back(row.name, value);
      unsetenv(row.name);
    }
  }
  ~OptionsFromEnvironment() override {
    for (const Variable& row : environment_variables()) unsetenv(row.name);
    for (const auto& [name, value] : saved_) setenv(name.c_str(), value.c_str(), 1);
  }
  static Options with(const char* name, const char* value) {
    setenv(name, value, 1);
    Options options = Options::from_environment();
    unsetenv(name);
    return options;
  }
  static std::string error_with(const char* name, const char* value) try {
    with(name, value);
    return "no error";
  } catch (const c10::Error& error) {
    unsetenv(name);
    return error.what_without_backtrace();
  }

 private:
  std::vector<std::pair<std::string, std::string>> saved_;
};

TEST_F(OptionsFromEnvironment, AreTheDefaultsWhenNothingIsSetOrSetToNothing) {
  setenv("OVERDRIVE_THREADS", "", 1);
  setenv("OVERDRIVE_CHECK", "", 1);
  const Options options = Options::from_environment();
  EXPECT_EQ(options.threads, Threads::kAuto);
  EXPECT_EQ(options.exact, Exact::kAuto);
  EXPECT_EQ(options.check_every, 0);
  EXPECT_EQ(options.keep_memory_mib, -1);
  EXPECT_FALSE(options.verbose);
}

TEST_F(OptionsFromEnvironment, TakeEveryAllowedValue) {
  EXPECT_EQ(with("OVERDRIVE_THREADS", "auto").threads, Threads::kAuto);
  EXPECT_EQ(with("OVERDRIVE_THREADS", "caller").threads, Threads::kCaller);
  EXPECT_EQ(with("OVERDRIVE_THREADS", "device").threads, Threads::kDevice);
  EXPECT_EQ(with("OVERDRIVE_EXACT", "auto").exact, Exact::kAuto);
  EXPECT_EQ(with("OVERDRIVE_EXACT", "always").exact, Exact::kAlways);
  EXPECT_FALSE(with("OVERDRIVE_NATIVE_NODES", "0").own_nodes);
  EXPECT_TRUE(with("OVERDRIVE_NATIVE_NODES", "1").own_nodes);
  EXPECT_EQ(with("OVERDRIVE_CHECK", "2147483647").check_every, 2147483647);
  EXPECT_EQ(with("OVERDRIVE_KEEP_MEMORY", "0").keep_memory_mib, 0);
  EXPECT_EQ(with("OVERDRIVE_KEEP_MEMORY", "2047").keep_memory_mib, 2047);
  EXPECT_EQ(with("OVERDRIVE_ERRORS", "plain").errors, Errors::kPlain);
  EXPECT_EQ(with("OVERDRIVE_ERRORS", "note").errors, Errors::kNote);
  EXPECT_EQ(with("OVERDRIVE_ERRORS", "full").errors, Errors::kFull);
  EXPECT_EQ(with("OVERDRIVE_NAN", "off").nan, Nan::kOff);
  EXPECT_EQ(with("OVERDRIVE_NAN", "first").nan, Nan::kFirst);
  EXPECT_TRUE(with("OVERDRIVE_VERBOSE", "1").verbose);
  EXPECT_TRUE(with("OVERDRIVE_VERBOSE", "2").verbose);
}

TEST_F(OptionsFromEnvironment, NameTheVariableTheValueAndWhatIsAllowedInAnError) {
  for (const Variable& row : environment_variables()) {
    if (row.name == std::string("OVERDRIVE")) continue;  // read by the preload library alone
    if (row.allowed == std::string("FILE")) continue;    // any text may be one
    const bool is_number = row.allowed == std::string("n") || row.allowed == std::string("MiB|0");
    const std::string allowed = is_number ? "whole number" : row.allowed;
    EXPECT_THAT(error_with(row.name, "no such thing"),
                AllOf(HasSubstr(row.name), HasSubstr("\"no such thing\""), HasSubstr(allowed)));
  }
}

TEST_F(OptionsFromEnvironment, RefuseAFileThatCannotBeWritten) {
  EXPECT_THAT(error_with("OVERDRIVE_RECORDINGS", "/nowhere/file"),
              AllOf(HasSubstr("\"/nowhere/file\""), HasSubstr("must be a file")));
}

TEST_F(OptionsFromEnvironment, ReadTheOlderNameOfNativeNodesWhereTheNewOneIsNotSet) {
  EXPECT_FALSE(with("OVERDRIVE_OWN_NODES", "0").own_nodes);
  setenv("OVERDRIVE_NATIVE_NODES", "1", 1);
  EXPECT_TRUE(with("OVERDRIVE_OWN_NODES", "0").own_nodes);
  unsetenv("OVERDRIVE_NATIVE_NODES");
}

TEST_F(OptionsFromEnvironment, RefuseNumbersThatAreNotWholeOrDoNotFit) {
  for (const char* value : {"-1", "1.5", "1e3", " 2", "2 ", "+2", "0x10", "2147483648"}) {
    EXPECT_THAT(error_with("OVERDRIVE_CHECK", value), HasSubstr("OVERDRIVE_CHECK")) << value;
  }
  EXPECT_THAT(error_with("OVERDRIVE_KEEP_MEMORY", "2048"), HasSubstr("from 0 to 2047"));
}

TEST(OptionsInUse, KeepEachDifferentSetOnce) {
  OptionsInUse in_use;
  const Options* const first = &in_use.now();
  in_use.set({.check_every = 7});
  const Options* const second = &in_use.now();
  EXPECT_EQ(second->check_every, 7);
  EXPECT_EQ(first->check_every, 0) << "a backward that is under way may still be reading it";
  for (int i = 0; i < 3; ++i) {
    in_use.set({});
    EXPECT_EQ(&in_use.now(), first);
    in_use.set({.check_every = 7});
    EXPECT_EQ(&in_use.now(), second);
  }
}

TEST_F(OptionsFromEnvironment, HaveARowOfTheirOwnForEveryVariable) {
  std::set<std::string> names;
  for (const Variable& row : environment_variables()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_STRNE(row.meaning, "");
  }
  EXPECT_EQ(names.size(), 17);
}

}  // namespace
