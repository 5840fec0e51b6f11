// State files that somebody has damaged: each is an error of LibTorch's kind, or a state of other values. The
// archive around a damaged pickle is whole, so that the reader of pickles sees the damage.
#include "test/replay/step_file_fixture.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/serialize.h>

#include <random>

namespace overdrive::test {
namespace {

using namespace torch::nn;

std::string text_of(const std::tuple<at::DataPtr, size_t>& record) {
  return {static_cast<const char*>(std::get<0>(record).get()), std::get<1>(record)};
}

class StateFiles : public testing::Test {
 protected:
  StateFiles() : training_([] { return small_mlp(adam()); }), step_(training_.save_and_load()) {
    Training other = small_mlp(adam());
    torch::save(other.model, state_);
    values_ = other.model->named_parameters();
  }

  // The file with another pickle in it.
  std::string with(const std::string& pickle) const {
    caffe2::serialize::PyTorchStreamReader reader(state_);
    std::string file;
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, size_t size) {
      file.append(static_cast<const char*>(bytes), size);
      return size;
    });
    for (const std::string& name : reader.getAllRecords()) {
      if (name.starts_with(".data") || name == "version") continue;  // the writer's own
      const std::string record = name == "data.pkl" ? pickle : text_of(reader.getRecord(name));
      writer.writeRecord(name, record.data(), record.size());
    }
    writer.writeEndOfFile();
    return file;
  }
  std::string pickle() const {
    caffe2::serialize::PyTorchStreamReader reader(state_);
    return text_of(reader.getRecord("data.pkl"));
  }

  std::string error_of_file(const std::string& bytes) {
    write_file(state_, bytes);
    return error_of([&] { step_.load_state(state_); });
  }

  FromFile training_;
  Step step_;
  const FilePath state_{"state.pt"};
  torch::OrderedDict<std::string, at::Tensor> values_;
};

TEST_F(StateFiles, AModuleThatTorchSaveWroteIsTaken) {
  const LoadedState outcome = step_.load_state(state_);
  EXPECT_THAT(outcome.unexpected, testing::IsEmpty());
  for (const auto& [name, tensor] : step_.named_tensors()) {
    if (!values_.contains(name)) continue;
    EXPECT_TRUE(same_bits(tensor, values_[name])) << name;
    EXPECT_THAT(outcome.missing, testing::Not(testing::Contains(name)));
  }
  EXPECT_EQ(values_.size(), step_.parameters().size());
}

TEST_F(StateFiles, ADamagedOneIsAnErrorOrAnotherState) {
  const std::string good = read_file(state_), inside = pickle();
  std::mt19937_64 random(1);
  size_t errors = 0;
  constexpr size_t kTries = 500;
  for (size_t i = 0; i < kTries; ++i) {
    std::string bytes = inside;
    for (size_t times = 1 + random() % 3; times > 0; --times) {
      const size_t at = random() % bytes.size(), length = std::min(bytes.size() - at, 1 + random() % 8);
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.insert(at, bytes.substr(at, length));
          break;
        case 2:
          bytes.erase(at, length);
          break;
        default:
          bytes.replace(at, length, std::string(length, '\xff'));
      }
      if (bytes.size() < 16) break;
    }
    write_file(state_, good);
    errors += error_of_file(with(bytes)) == "(no error)" ? 0 : 1;
    write_file(state_, good);
  }
  EXPECT_GT(errors, kTries / 2);
  EXPECT_LT(errors, kTries);
}

TEST_F(StateFiles, ADictInItselfIsAnError) {
  // d = {}; d["a"] = d
  EXPECT_THAT(error_of_file(with(std::string("\x80\x02}q\x00X\x01\x00\x00\x00"
                                             "ah\x00s.",
                                             15))),
              testing::HasSubstr("its dicts lie too deep in each other"));
}

TEST_F(StateFiles, ATensorLiesInItsMemory) {
  std::string bytes = pickle();
  // The offset of the first tensor stands behind its storage, Q, which is remembered, q and a number.
  const size_t at = bytes.find("Qq") + 3;
  ASSERT_EQ(bytes[at], 'K');
  bytes[at + 1] = '\x7f';
  EXPECT_THAT(error_of_file(with(bytes)), testing::HasSubstr("a tensor ends behind its memory."));
}

TEST_F(StateFiles, WhatIsNoStateIsAnError) {
  EXPECT_THAT(error_of_file(with("")), testing::HasSubstr("the file ends in the middle"));
  EXPECT_THAT(error_of_file("something else"), testing::HasSubstr("this is no step file"));
  EXPECT_THAT(error_of_file("PK, and nothing of an archive"), testing::HasSubstr("state.pt: "));
}

}  // namespace
}  // namespace overdrive::test
