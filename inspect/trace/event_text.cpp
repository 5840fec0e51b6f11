#include "inspect/trace/event_text.h"

#include <c10/core/Device.h>
#include <c10/util/ApproximateClock.h>

#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

namespace overdrive::inspect {
namespace {

// Appends to a buffer that is known to be long enough.
class Cursor {
 public:
  explicit Cursor(char* at) : at_(at) {}
  char* at() const { return at_; }

  template <size_t n>
  Cursor& operator<<(const char (&literal)[n]) {
    std::memcpy(at_, literal, n - 1);
    at_ += n - 1;
    return *this;
  }
  Cursor& operator<<(std::string_view text) {
    std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
    return *this;
  }
  Cursor& number(int64_t value) {
    at_ = std::to_chars(at_, at_ + 20, value).ptr;
    return *this;
  }
  Cursor& hex(uint64_t value) {
    at_ = std::to_chars(at_, at_ + 16, value, 16).ptr;
    return *this;
  }
  // Nanoseconds as microseconds.
  Cursor& micros(int64_t nanoseconds) {
    if (nanoseconds < 0) nanoseconds = 0;
    number(nanoseconds / 1000);
    const auto rest = static_cast<int>(nanoseconds % 1000);
    if (rest == 0) return *this;
    at_[0] = '.';
    at_[1] = static_cast<char>('0' + rest / 100);
    at_[2] = static_cast<char>('0' + rest / 10 % 10);
    at_[3] = static_cast<char>('0' + rest % 10);
    at_ += 4;
    return *this;
  }

 private:
  char* at_;
};

// Category and figures of work that is no node.
void auxiliary_span(Cursor& to, const TraceRecord& record) {
  using Kind = TraceRecord::Kind;
  constexpr std::string_view kCategories[] = {"pack",      "unpack",      "fetch",
                                              "recompute", "micro-batch", "stream wait"};
  const bool waits = record.kind == Kind::kStreamWait;
  to << ",\"cat\":\"" << kCategories[static_cast<size_t>(record.kind) - static_cast<size_t>(Kind::kPack)]
     << "\",\"args\":{";
  bool first = true;
  const auto figure = [&](std::string_view name, int64_t value) {
    if (value < 0) return;
    if (!first) to << ",";
    first = false;
    to << "\"" << name << "\":";
    to.number(value);
  };
  if (record.device != 0) {
    to << "\"dev\":\"" << c10::DeviceTypeName(static_cast<c10::DeviceType>(record.device), true) << ":";
    to.number(record.device_index) << "\"";
    first = false;
  }
  figure(waits ? "stream" : "number", record.live);
  figure("bytes", record.bytes_in);
  figure(waits ? "for" : "packed", record.bytes_out);
  if (record.failed) figure("error", 1);
  to << "}";
}

constexpr size_t kMostOfOne = 512;  // of an event without its name

template <typename Write>
void append(std::string& out, size_t most, Write&& write) {
  const size_t before = out.size();
  out.resize(before + most);
  Cursor cursor(out.data() + before);
  write(cursor);
  out.resize(static_cast<size_t>(cursor.at() - out.data()));
}

int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Sequences::add(uint64_t number) {
  auto after = last_of_.upper_bound(number);
  if (after != last_of_.begin()) {
    const auto before = std::prev(after);
    if (number <= before->second) return;
    if (number == before->second + 1) {
      before->second = number;
      return;
    }
  }
  last_of_.emplace_hint(after, number, number);
}

bool Sequences::has(uint64_t number) const {
  const auto after = last_of_.upper_bound(number);
  return after != last_of_.begin() && number <= std::prev(after)->second;
}

TickScale::TickScale()
    : ticks_(static_cast<uint64_t>(c10::getApproximateTime())),
      steady_(steady_now()),
      unix_(std::chrono::duration_cast<std::chrono::nanoseconds>(
                std::chrono::system_clock::now().time_since_epoch())
                .count()) {}

void TickScale::settle() {
  constexpr int64_t kLongEnough = 2'000'000;
  if (per_tick_ != 0) return;
  while (steady_now() - steady_ < kLongEnough) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto ticks = static_cast<uint64_t>(c10::getApproximateTime());
  per_tick_ = static_cast<double>(steady_now() - steady_) / static_cast<double>(ticks - ticks_);
}

void EventText::thread_name(std::string& out, int64_t thread, std::string_view name) const {
  append(out, kMostOfOne + name.size(), [&](Cursor& to) {
    to << ",\n{\"ph\":\"M\",\"pid\":";
    to.number(process_) << ",\"tid\":";
    to.number(thread) << ",\"name\":\"thread_name\",\"args\":{\"name\":\"" << name << "\"}}";
  });
}

void EventText::event(std::string& out, const TraceRecord& record, std::string_view name, int64_t thread,
                      bool has_arrow) const {
  using Kind = TraceRecord::Kind;
  append(out, kMostOfOne + name.size(), [&](Cursor& to) {
    const int64_t begin = scale.nanoseconds(record.begin);
    to << ",\n{\"ph\":\"X\",\"pid\":";
    to.number(process_) << ",\"tid\":";
    to.number(thread) << ",\"ts\":";
    to.micros(begin) << ",\"dur\":";
    to.micros(scale.nanoseconds(record.end) - begin) << ",\"name\":\"" << name << "\"";
    if (has_arrow) {
      to << ",\"bind_id\":\"";
      to.hex(record.forward_thread) << ".";
      to.hex(record.sequence);
      if (record.kind == Kind::kForward || record.kind == Kind::kFetch) {
        to << "\",\"flow_out\":true";
      } else {
        to << "\",\"flow_in\":true";
      }
    }
    if (record.kind >= Kind::kPack) {
      auxiliary_span(to, record);
    } else if (record.kind == Kind::kForward) {
      to << ",\"cat\":\"forward\"";
      if (record.sequence != kNoSequence)
        to << ",\"args\":{\"seq\":", to.number(static_cast<int64_t>(record.sequence)) << "}";
    } else if (record.kind == Kind::kBackward) {
      to << ",\"cat\":\"backward\",\"args\":{\"nodes\":";
      to.number(record.bytes_in) << ",\"number\":";
      to.number(record.bytes_out);
      if (record.failed) to << ",\"error\":1";
      to << "}";
    } else {
      if (record.native) {
        to << ",\"cat\":\"own\",\"args\":{";
      } else {
        to << ",\"cat\":\"host\",\"args\":{";
      }
      if (record.device != 0) {
        to << "\"dev\":\"" << c10::DeviceTypeName(static_cast<c10::DeviceType>(record.device), true) << ":";
        to.number(record.device_index) << "\",";
      }
      if (record.sequence != kNoSequence)
        to << "\"seq\":", to.number(static_cast<int64_t>(record.sequence)) << ",";
      to << "\"wait\":";
      to.micros(static_cast<int64_t>(static_cast<double>(record.wait) * scale.per_tick())) << ",\"in\":";
      to.number(record.bytes_in) << ",\"out\":";
      to.number(record.bytes_out);
      if (record.live >= 0) to << ",\"live\":", to.number(record.live);
      if (record.failed) to << ",\"error\":1";
      to << "}";
    }
    to << "}";
  });
}

}  // namespace overdrive::inspect
