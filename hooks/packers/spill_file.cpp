#include "hooks/packers/spill_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace overdrive::hooks {

namespace {
// Advice to the program about an error of the system.
const char* advice_for(int error) {
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) return "";
  return " Free some room there, give SpillOptions::folder (or TMPDIR) a folder with more, or spill less: a "
         "larger "
         "min_bytes, or in_turn({quantise(), spill_to_disk()}).";
}

}  // namespace

SpillFile::SpillFile(const std::string& folder, bool drop_cached)
    : drop_cached_(drop_cached), path_(folder + "/overdrive-spill-XXXXXX") {
  constexpr mode_t kOwnersAlone = 0600;
  descriptor_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, kOwnersAlone);
  if (descriptor_ >= 0) {
    path_ = folder;
    return;
  }
  // A file system that knows no files without a name. mkostemp() follows no link and gives the mode 0600.
  descriptor_ = ::mkostemp(path_.data(), O_CLOEXEC);
  TORCH_CHECK(descriptor_ >= 0, "spill_to_disk cannot make a file in \"", folder, "\": ", std::strerror(errno),
              ". Give it a folder that exists and may be written to.");
  ::unlink(path_.c_str());
}

SpillFile::~SpillFile() { ::close(descriptor_); }

void SpillFile::write(const void* from, int64_t bytes, int64_t at) const {
  const char* next = static_cast<const char*>(from);
  const int64_t all = bytes, begin = at;
  while (bytes > 0) {
    const ssize_t done = ::pwrite(descriptor_, next, static_cast<size_t>(bytes), at);
    if (done < 0 && errno == EINTR) continue;
    TORCH_CHECK(done > 0, "spill_to_disk cannot write ", bytes, " bytes at ", at, " of \"", path_,
                "\": ", done < 0 ? std::strerror(errno) : "nothing was written", ".",
                advice_for(done < 0 ? errno : ENOSPC));
    next += done;
    at += done;
    bytes -= done;
  }
  if (!drop_cached_) return;
  flush(all, begin);
  drop(all, begin);
}

void SpillFile::read(void* to, int64_t bytes, int64_t at) const {
  char* next = static_cast<char*>(to);
  const int64_t all = bytes, begin = at;
  while (bytes > 0) {
    const ssize_t done = ::pread(descriptor_, next, static_cast<size_t>(bytes), at);
    if (done < 0 && errno == EINTR) continue;
    TORCH_CHECK(done > 0, "spill_to_disk cannot read ", bytes, " bytes at ", at, " of \"", path_,
                "\": ", done < 0 ? std::strerror(errno) : "the file is shorter than what was written to it",
                ".");
    next += done;
    at += done;
    bytes -= done;
  }
  if (drop_cached_) drop(all, begin);
}

void SpillFile::expect(int64_t bytes, int64_t at) const {
  ::posix_fadvise(descriptor_, at, bytes, POSIX_FADV_WILLNEED);
}

// The system drops only pages that are on the disk. Nothing happens for a file that lies in memory.
void SpillFile::flush(int64_t bytes, int64_t at) const {
  constexpr unsigned kAndWait =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  int failed = 0;
  do {
    failed = ::sync_file_range(descriptor_, at, bytes, kAndWait);
  } while (failed != 0 && errno == EINTR);
  TORCH_CHECK(failed == 0 || errno == ENOSYS, "spill_to_disk cannot write ", bytes, " bytes at ", at, " of \"",
              path_, "\": ", std::strerror(errno), ".", advice_for(errno));
}

void SpillFile::drop(int64_t bytes, int64_t at) const {
  ::posix_fadvise(descriptor_, at, whole_pages(bytes), POSIX_FADV_DONTNEED);  // a wish
}

}  // namespace overdrive::hooks
