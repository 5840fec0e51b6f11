#include "bench/output_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace overdrive::bench {

namespace {

// A new file beside the one that is meant; gone at the end of the scope unless it was renamed.
class Draft {
 public:
  // Never a file that is there: in a folder that others may write, its name may be their link.
  explicit Draft(const std::string& path) : path_(path) {
    for (int attempt = 0; file_ < 0; ++attempt) {
      name_ = path + "." + std::to_string(getpid()) + "." + std::to_string(attempt) + ".tmp";
      file_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
      if (file_ < 0 && (errno != EEXIST || attempt == 100)) fail();
    }
  }
  ~Draft() {
    close_file();
    if (!kept_) std::remove(name_.c_str());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  void write(std::string_view content) {
    while (!content.empty()) {
      const ssize_t written = ::write(file_, content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      content.remove_prefix(static_cast<size_t>(written));
    }
  }

  // Some file systems tell of a full disk only here.
  void keep() {
    if (fsync(file_) != 0 && errno != EINVAL && errno != EROFS) fail();
    if (close_file() != 0 || std::rename(name_.c_str(), path_.c_str()) != 0) fail();
    kept_ = true;
  }

 private:
  int close_file() { return file_ < 0 ? 0 : close(std::exchange(file_, -1)); }
  [[noreturn]] void fail() const {
    const int why = errno;
    TORCH_CHECK(false, "cannot write \"", path_, "\": ", std::strerror(why), ".");
  }

  const std::string path_;
  std::string name_;
  int file_ = -1;
  bool kept_ = false;
};

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  struct stat there {};
  // A link is no file either: renaming would replace it, /dev/stdout for one.
  TORCH_CHECK(lstat(path_.c_str(), &there) != 0 || S_ISREG(there.st_mode), "cannot write \"", path_,
              "\": something that is not a file has that name.");
  const Draft trial(path_);
}

void OutputFile::write(std::string_view content) const {
  if (path_.empty()) return;
  Draft draft(path_);
  draft.write(content);
  draft.keep();
}

JsonFile::JsonFile(std::string path) : file_(std::move(path)) {}

void JsonFile::write(const nlohmann::json& content) const {
  if (!file_.path().empty()) file_.write(content.dump(1) + "\n");
}

}  // namespace overdrive::bench
