#include "examples/trainers/archive_file.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace overdrive::trainers {
namespace {

constexpr uint64_t kIn64 = 0xFFFFFFFF;    // a field of 32 bits whose value stands elsewhere, in 64
constexpr uint64_t kMostDeflated = 1032;  // bytes that one compressed byte can become

// The numbers of a zip archive: little endian, at any place.
class Bytes {
 public:
  // `complaint`: the beginning of every error.
  Bytes(std::string complaint, std::string bytes)
      : complaint_(std::move(complaint)), bytes_(std::move(bytes)) {}

  size_t size() const { return bytes_.size(); }
  template <typename T>
  T at(uint64_t place) const {
    if (bytes_.size() < sizeof(T) || place > bytes_.size() - sizeof(T)) fail(place);
    T value;
    std::memcpy(&value, bytes_.data() + place, sizeof(T));
    return value;
  }
  // The last place of four bytes that begin a record, or npos.
  size_t last(uint32_t signature) const {
    return bytes_.rfind(std::string(reinterpret_cast<const char*>(&signature), sizeof signature));
  }
  [[noreturn]] void fail(uint64_t place) const {
    TORCH_CHECK(false, complaint_, " (its directory is wrong at byte ", place, ").");
  }

 private:
  const std::string complaint_;
  const std::string bytes_;
};

struct Part {
  uint64_t packed = 0, unpacked = 0;
};

// The sizes of one part. Sizes that do not fit 32 bits stand in the extra field 1.
Part part_at(const Bytes& file, uint64_t place) {
  if (file.at<uint32_t>(place) != 0x02014b50) file.fail(place);
  Part part{file.at<uint32_t>(place + 20), file.at<uint32_t>(place + 24)};
  uint64_t extra = place + 46 + file.at<uint16_t>(place + 28);
  const uint64_t end = extra + file.at<uint16_t>(place + 30);
  while (extra + 4 <= end) {
    uint64_t field = extra + 4;
    if (file.at<uint16_t>(extra) == 1) {
      for (uint64_t* size : {&part.unpacked, &part.packed}) {
        if (*size != kIn64) continue;
        *size = file.at<uint64_t>(field);
        field += 8;
      }
    }
    extra += 4 + file.at<uint16_t>(extra + 2);
  }
  const bool stored = file.at<uint16_t>(place + 10) == 0;
  if (part.packed > file.size()) file.fail(place + 20);
  if (stored ? part.unpacked != part.packed : part.unpacked / kMostDeflated > part.packed)
    file.fail(place + 24);
  return part;
}

void check_directory(const Bytes& file) {
  const size_t end = file.last(0x06054b50);
  if (end == std::string::npos) file.fail(file.size());
  uint64_t parts = file.at<uint16_t>(end + 10), place = file.at<uint32_t>(end + 16);
  if (const size_t end64 = file.last(0x06064b50); end64 != std::string::npos && end64 < end) {
    parts = file.at<uint64_t>(end64 + 32);
    place = file.at<uint64_t>(end64 + 48);
  }
  for (; parts > 0; --parts) {
    if (place >= file.size()) file.fail(place);
    part_at(file, place);
    place += 46 + uint64_t{file.at<uint16_t>(place + 28)} + file.at<uint16_t>(place + 30) +
             file.at<uint16_t>(place + 32);
  }
}

}  // namespace

void check_archive(const std::string& path, const std::string& what) {
  std::error_code unknown;
  TORCH_CHECK(std::filesystem::is_regular_file(path, unknown), "there is no file ", path, ".");
  std::ifstream stream(path, std::ios::binary);
  std::string bytes(std::filesystem::file_size(path, unknown), '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  TORCH_CHECK(stream, "cannot read ", path, ".");
  check_directory(Bytes(path + " is not " + what, std::move(bytes)));
}

}  // namespace overdrive::trainers
