// The notes of the last errors of the process, by the address of the error. An error keeps its address on its
// way to the caller, from thread to thread. Any thread. Leaves the text to its users.
#pragma once

#include "engine/base/process_mutex.h"

#include <array>
#include <cstdint>
#include <exception>
#include <string>

namespace overdrive::inspect {

class NoteStore {
 public:
  static NoteStore& get();

  // Whether `error` came out of a backward nested deeper than `depth`, and has a note from there.
  bool is_nested(const std::exception& error, int32_t depth) OVERDRIVE_EXCLUDES(mutex_);
  // Adds a line to the note of a nested error, or makes a note. `of_worker`: the caller's thread is another.
  void add(const std::exception& error, const std::string& line, int32_t depth, bool of_worker)
      OVERDRIVE_EXCLUDES(mutex_);
  std::string find(const std::exception& error) OVERDRIVE_EXCLUDES(mutex_);
  // The last one of this thread or of a worker.
  std::string last() OVERDRIVE_EXCLUDES(mutex_);

 private:
  // An address may be used again, so the error's type and text have to be the same too.
  struct Note {
    const std::exception* error = nullptr;
    int32_t depth = 0;  // of the outermost backward so far
    std::string type;
    std::string said;
    std::string text;
    bool is_of(const std::exception& other) const;
  };
  struct Last {
    uint64_t number = 0;
    std::string text;
  };
  static Last& last_here();
  Note* find_note(const std::exception& error) OVERDRIVE_REQUIRES(mutex_);

  base::ProcessMutex mutex_{"notes of errors"};
  std::array<Note, 16> notes_ OVERDRIVE_GUARDED_BY(mutex_);
  size_t next_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  uint64_t count_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  Last last_of_workers_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::inspect
