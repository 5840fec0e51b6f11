// The preload library, in programs that know nothing of it (programs/autoload_*.cpp).
#include "engine/options.h"

#include "test/support/child_process.h"
#include "test/support/pch.h"

#include <sys/resource.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace {

namespace fs = std::filesystem;
using namespace overdrive::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kAutoload = OVERDRIVE_AUTOLOAD_LIBRARY;
const std::string kProgram = OVERDRIVE_AUTOLOAD_PROGRAM;
const std::string kLateProgram = OVERDRIVE_AUTOLOAD_LATE_PROGRAM;
const std::string kPlugin = OVERDRIVE_AUTOLOAD_PLUGIN;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Environment preload(Environment more = {}, const std::string& library = kAutoload) {
  const auto variables = overdrive::bench::preloading(library);
  more.insert(more.end(), variables.begin(), variables.end());
  return more;
}

// The report at exit, which is the last line on stderr.
nlohmann::json report(const ChildResult& child) {
  const std::string prefix = "overdrive: ";
  const std::vector<std::string> lines = lines_of(child.err);
  if (lines.empty() || !lines.back().starts_with(prefix)) return nullptr;
  return nlohmann::json::parse(lines.back().substr(prefix.size()), nullptr, /*allow_exceptions=*/false);
}

constexpr const char* kOurs = "OverdriveEngine";

void expect_stock_and_one_warning(const ChildResult& child, const std::vector<std::string>& facts) {
  EXPECT_EQ(child.exit_status, 0);
  EXPECT_THAT(child.out, AllOf(HasSubstr("main: "), Not(HasSubstr(kOurs)), Not(HasSubstr("WRONG"))));
  EXPECT_THAT(lines_of(child.err),
              testing::ElementsAre(StartsWith("overdrive: not installed, the stock engine stays")));
  for (const std::string& fact : facts) EXPECT_THAT(child.err, HasSubstr(fact));
}

TEST(Autoload, InstallsInALinkedProgramBeforeItsStaticConstructors) {
  const ChildResult child = run_child({kProgram}, preload({{"OVERDRIVE_VERBOSE", "2"}}));
  EXPECT_EQ(child.exit_status, 0);
  EXPECT_THAT(lines_of(child.out),
              testing::ElementsAre(AllOf(StartsWith("static constructor: "), HasSubstr(kOurs)),
                                   AllOf(StartsWith("main: "), HasSubstr(kOurs))));
  ASSERT_EQ(lines_of(child.err).size(), 3) << child.err;
  EXPECT_THAT(child.err, StartsWith("overdrive: installed, "));
  EXPECT_THAT(lines_of(child.err)[1], StartsWith("overdrive: 2 backwards on Overdrive, 0 on stock; "));
  const nlohmann::json stats = report(child);
  EXPECT_EQ(stats["backwards"], 2);
  EXPECT_GE(stats["nodes"], 2);
  EXPECT_TRUE(stats.contains("threads"));
  EXPECT_EQ(stats["forwarded"], nlohmann::json::object());
}

TEST(Autoload, SaysInOneSentenceAtExitWhatItDid) {
  const ChildResult child = run_child({kProgram}, preload({{"OVERDRIVE_VERBOSE", "1"}}));
  EXPECT_THAT(
      lines_of(child.err),
      testing::ElementsAre(StartsWith("overdrive: installed, "),
                           testing::MatchesRegex("overdrive: 2 backwards on Overdrive, 0 on stock; [0-9]+ "
                                                 "nodes, [0-9]+ of them run by Overdrive itself")));
}

TEST(Autoload, NamesAVariableThatItDoesNotKnowWithTheNearestOne) {
  const ChildResult child = run_child({kProgram}, preload({{"OVERDRIVE_THREDS", "caller"}}));
  EXPECT_EQ(child.exit_status, 0);
  EXPECT_THAT(child.out, HasSubstr(kOurs));
  EXPECT_THAT(child.err, AllOf(HasSubstr("OVERDRIVE_THREDS"), HasSubstr("Did you mean OVERDRIVE_THREADS?")));
}

TEST(Autoload, SaysNothingUnlessAskedTo) {
  const ChildResult child = run_child({kProgram}, preload());
  EXPECT_THAT(child.out, HasSubstr(kOurs));
  EXPECT_EQ(child.err, "");
}

TEST(Autoload, ReportsAlsoAtQuickExit) {
  const ChildResult child = run_child({kProgram, "quick_exit"}, preload({{"OVERDRIVE_VERBOSE", "2"}}));
  EXPECT_EQ(child.exit_status, 0);
  EXPECT_EQ(report(child)["backwards"], 2);
}

TEST(Autoload, InstallsAtOnceWhenItIsOpenedInARunningProgramAndStaysWhenItIsClosed) {
  const ChildResult child = run_child({kProgram, "dlopen", kAutoload}, {{"OVERDRIVE_VERBOSE", "2"}});
  EXPECT_EQ(child.exit_status, 0) << child.err;
  const std::vector<std::string> lines = lines_of(child.out);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_THAT(lines[1], AllOf(StartsWith("main: "), Not(HasSubstr(kOurs))));
  EXPECT_THAT(lines[2], AllOf(StartsWith("after dlopen: "), HasSubstr(kOurs)));
  EXPECT_THAT(lines[3], AllOf(StartsWith("after dlclose: "), HasSubstr(kOurs)));
  EXPECT_EQ(report(child)["backwards"], 2);
}

TEST(Autoload, MakesTheCFunctionsKnownWhereLibTorchIsKnownToAll) {
  const ChildResult child = run_child({kProgram, "count"}, preload());
  EXPECT_EQ(child.exit_status, 0) << child.err;
  EXPECT_THAT(child.out, testing::EndsWith("count: 2\n"));
}

struct Late {
  const char* name;
  std::string plugin;
  const char* mode;
};

class AutoloadLate : public testing::TestWithParam<Late> {};

TEST_P(AutoloadLate, InstallsIntoALibTorchThatAPluginBrings) {
  const ChildResult child =
      run_child({kLateProgram, GetParam().plugin, GetParam().mode}, preload({{"OVERDRIVE_VERBOSE", "2"}}));
  EXPECT_EQ(child.exit_status, 0) << child.err;
  EXPECT_THAT(child.out, AllOf(StartsWith("plugin: "), HasSubstr(kOurs)));
  EXPECT_EQ(report(child)["backwards"], 1);
}

// By name alone the plugin is found through the program's own RUNPATH.
INSTANTIATE_TEST_SUITE_P(Plugin, AutoloadLate,
                         testing::Values(Late{"Local", kPlugin, "local"}, Late{"Global", kPlugin, "global"},
                                         Late{"ByName", fs::path(kPlugin).filename(), "local"}),
                         [](const auto& row) { return row.param.name; });

TEST(Autoload, IsTurnedOffByOverdriveZero) {
  const ChildResult child = run_child({kProgram}, preload({{"OVERDRIVE", "0"}, {"OVERDRIVE_VERBOSE", "1"}}));
  EXPECT_EQ(child.exit_status, 0);
  EXPECT_THAT(child.out, AllOf(HasSubstr("main: "), Not(HasSubstr(kOurs))));
  EXPECT_THAT(lines_of(child.err),
              testing::ElementsAre(
                  AllOf(StartsWith("overdrive: off, the stock engine stays"), HasSubstr("OVERDRIVE is 0"))));
  const ChildResult late = run_child({kLateProgram, kPlugin, "local"}, preload({{"OVERDRIVE", "0"}}));
  EXPECT_EQ(late.exit_status, 0);
  EXPECT_THAT(late.out, Not(HasSubstr(kOurs)));
}

void expect_stock_for_bad_value(const std::string& name, const ChildResult& child) {
  EXPECT_EQ(child.exit_status, 0);
  EXPECT_THAT(child.out, AllOf(HasSubstr("main: "), Not(HasSubstr(kOurs))));
  EXPECT_THAT(lines_of(child.err), testing::ElementsAre(AllOf(
                                       StartsWith("overdrive: not installed, the stock engine stays: " + name),
                                       HasSubstr("no such thing\""), HasSubstr("must be"))));
}

// A program must not die for an engine.
TEST(Autoload, LeavesStockInPlaceAndSaysWhyWhenAVariableIsBad) {
  for (const auto& row : overdrive::engine::environment_variables()) {
    SCOPED_TRACE(row.name);
    const std::string bad = row.allowed == std::string("FILE") ? "/nowhere/no such thing" : "no such thing";
    expect_stock_for_bad_value(row.name, run_child({kProgram}, preload({{row.name, bad}})));
    // Also when it is off; then nobody writes a trace.
    if (row.name == std::string("OVERDRIVE") || row.allowed == std::string("FILE")) continue;
    expect_stock_for_bad_value(row.name, run_child({kProgram}, preload({{"OVERDRIVE", "0"}, {row.name, bad}})));
  }
}

TEST(Autoload, SaysThatThereIsNoLibTorchToACallWithoutOne) {
  const ChildResult child = run_child({kLateProgram, "", "none"}, preload());
  EXPECT_EQ(child.exit_status, 0);
  EXPECT_EQ(child.out, "no engine\n");
  EXPECT_EQ(
      child.err,
      "overdrive: not installed, the stock engine stays: there is no LibTorch whose engine could be asked "
      "for.\n");
}

TEST(Autoload, LeavesStockInPlaceAndWarnsOnceInAnotherLibTorch) {
  expect_stock_and_one_warning(run_child({kProgram}, preload({}, OVERDRIVE_AUTOLOAD_OF_ANOTHER_VERSION)),
                               {"99.1.0", TORCH_VERSION});
}

// The loader takes a blank in LD_PRELOAD for the end of a name.
TEST(Autoload, IsFoundInAFolderWithBlanks) {
  const fs::path folder = fs::path(testing::TempDir()) / ("overdrive with blanks " + std::to_string(getpid()));
  fs::create_directories(folder);
  for (const char* name : {"liboverdrive_autoload.so", "liboverdrive.so"})
    fs::create_symlink(fs::path(kAutoload).parent_path() / name, folder / name);
  const ChildResult child =
      run_child({kProgram}, preload({{"OVERDRIVE_VERBOSE", "1"}}, folder / "liboverdrive_autoload.so"));
  EXPECT_THAT(child.out, HasSubstr(kOurs)) << child.err;
  fs::remove_all(folder);
}

TEST(Autoload, LeavesStockInPlaceAndWarnsOnceWhenTheLibraryIsNotBesideIt) {
  const fs::path folder = fs::path(testing::TempDir()) / ("overdrive_alone_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const fs::path alone = folder / fs::path(kAutoload).filename();
  fs::copy_file(kAutoload, alone, fs::copy_options::overwrite_existing);
  expect_stock_and_one_warning(run_child({kProgram}, preload({}, alone)), {folder / "liboverdrive.so"});
  fs::remove_all(folder);
}

// libdl is a part of the C library, of its own file in systems before glibc 2.34.
bool is_of_the_c_library(const std::string& path) { return path.find("/libdl.so.2") != path.npos; }

std::set<std::string> mapped_files(const Environment& environment) {
  std::set<std::string> files;
  for (const std::string& line : lines_of(run_child({"/bin/cat", "/proc/self/maps"}, environment).out)) {
    const size_t path = line.find('/');
    if (path != std::string::npos && !is_of_the_c_library(line.substr(path))) files.insert(line.substr(path));
  }
  return files;
}

TEST(Autoload, MapsNothingButItselfInAProcessWithoutLibTorch) {
  std::set<std::string> expected = mapped_files({});
  ASSERT_FALSE(expected.empty());
  expected.insert(fs::canonical(kAutoload));
  EXPECT_EQ(mapped_files(preload({{"OVERDRIVE_VERBOSE", "1"}})), expected);
}

// Of the children that ended; wall time would measure what else the machine does.
double cpu_milliseconds() {
  rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-3;
}

double cost_of_true(const Environment& environment) {
  const double before = cpu_milliseconds();
  const ChildResult child = run_child({"/bin/true"}, environment);
  EXPECT_EQ(child.exit_status, 0);
  EXPECT_EQ(child.out + child.err, "");
  return cpu_milliseconds() - before;
}

TEST(Autoload, DoesNothingInAHundredOtherProcesses) {
  std::vector<double> extra;
  for (int i = 0; i < 100; ++i) {
    const double without = cost_of_true({});
    extra.push_back(cost_of_true(preload()) - without);
  }
  // For people: on a busy machine a limit would fail for no fault of ours.
  std::nth_element(extra.begin(), extra.begin() + 50, extra.end());
  std::printf("the preload library adds %.3f ms to a process without LibTorch (median of 100 pairs)\n",
              extra[50]);
}

}  // namespace
