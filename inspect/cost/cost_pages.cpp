// The results of profile() and memory_timeline() as JSON and as pages.
#include "engine/base/json_text.h"
#include "inspect/cost/memory_timeline.h"
#include "inspect/cost/profile.h"
#include "inspect/page/page.h"

namespace overdrive::inspect {
namespace {

std::string json_of(const MemoryTimeline::Point& point) {
  return std::string("[") + base::json_number(point.seconds) + "," +
         base::json_list(point.bytes, [](int64_t bytes) { return std::to_string(bytes); }).substr(1);
}

std::string json_of(const MemoryTimeline::Owner& owner) {
  return std::string("{\"kind\": ") + base::json_quoted(name_of(owner.kind)) +
         ", \"name\": " + base::json_quoted(owner.name) + ", \"bytes\": " + std::to_string(owner.bytes) +
         ", \"tensors\": " + std::to_string(owner.tensors) + "}";
}

std::string json_of(const Profile::Type& type) {
  return std::string("{\"name\": ") + base::json_quoted(type.name) +
         ", \"count\": " + std::to_string(type.count) + ", \"own_nodes\": " + std::to_string(type.own_nodes) +
         ", \"total_seconds\": " + base::json_number(type.total_seconds) +
         ", \"own_seconds\": " + base::json_number(type.own_seconds) +
         ", \"bytes\": " + std::to_string(type.bytes) +
         ", \"peak_share\": " + base::json_number(type.peak_share) + "}";
}

std::string json_of(const Profile::Node& node) {
  const bool leaf = node.sequence_nr == UINT64_MAX;
  return std::string("{\"name\": ") + base::json_quoted(node.name) +
         ", \"sequence_nr\": " + (leaf ? "null" : std::to_string(node.sequence_nr)) +
         ", \"own_seconds\": " + base::json_number(node.own_seconds) +
         ", \"bytes\": " + std::to_string(node.bytes) + "}";
}

}  // namespace

std::string to_json(const Profile& profile) {
  const auto element = [](const auto& one) { return json_of(one); };
  return std::string("{\"seconds\": ") + base::json_number(profile.seconds) +
         ", \"backward_seconds\": " + base::json_number(profile.backward_seconds) +
         ", \"engine_seconds\": " + base::json_number(profile.engine_seconds) +
         ", \"backwards\": " + std::to_string(profile.backwards) +
         ", \"nodes\": " + std::to_string(profile.nodes) +
         ", \"peak_bytes\": " + std::to_string(profile.peak_bytes) +
         ",\n\"types\": " + base::json_list(profile.types, element, ",\n") +
         ",\n\"dearest\": " + base::json_list(profile.dearest, element, ",\n") + "}";
}

std::string to_json(const MemoryTimeline& timeline) {
  const auto element = [](const auto& one) { return json_of(one); };
  return std::string("{\"seconds\": ") + base::json_number(timeline.seconds) +
         ",\n\"peak_bytes\": " + std::to_string(timeline.peak_bytes) +
         ",\n\"peak_seconds\": " + base::json_number(timeline.peak_seconds) +
         ",\n\"peak_at\": " + base::json_quoted(timeline.peak_at) +
         ",\n\"kinds\": [\"other\", \"activations\", \"saved copies\", \"gradients\"]" +
         ",\n\"owners\": " + base::json_list(timeline.owners, element, ",\n") +
         ",\n\"points\": " + base::json_list(timeline.points, element, ",\n") + "}";
}

std::string to_html(const MemoryTimeline& timeline, const std::string& title) {
  const std::string json =
      "{\"title\": " + base::json_quoted(title) + ", \"memory\": " + to_json(timeline) + "}";
  return page_of("Overdrive: memory of " + title, std::string(kNumbersStyle) + kMemoryStyle,
                 std::string(kNumbersScript) + kMemoryScript, json);
}

std::string to_html(const Profile& profile, const std::string& title) {
  const std::string json =
      "{\"title\": " + base::json_quoted(title) + ", \"profile\": " + to_json(profile) + "}";
  return page_of("Overdrive: time of " + title, std::string(kNumbersStyle) + kProfileStyle,
                 std::string(kNumbersScript) + kProfileScript, json);
}

}  // namespace overdrive::inspect
