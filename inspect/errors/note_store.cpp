#include "inspect/errors/note_store.h"

#include "engine/base/no_destructor.h"
#include "engine/base/of_thread.h"
#include "inspect/errors/error_note.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <typeinfo>

namespace overdrive {
namespace inspect {
namespace {

// The part of an error's text that a note in its context does not change.
std::string own_words_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->msg() : error.what();
}

}  // namespace

bool NoteStore::Note::is_of(const std::exception& other) const {
  return error == &other && type == typeid(other).name() && said == own_words_of(other);
}

NoteStore& NoteStore::get() {
  static base::NoDestructor<NoteStore> instance;
  return *instance;
}

NoteStore::Last& NoteStore::last_here() { return base::OfThread<Last>::get(); }

NoteStore::Note* NoteStore::find_note(const std::exception& error) {
  const auto note =
      std::find_if(notes_.begin(), notes_.end(), [&](const Note& one) { return one.is_of(error); });
  return note == notes_.end() ? nullptr : &*note;
}

bool NoteStore::is_nested(const std::exception& error, int32_t depth) {
  const base::MutexLock lock(mutex_);
  const Note* note = find_note(error);
  return note != nullptr && note->depth > depth;
}

void NoteStore::add(const std::exception& error, const std::string& line, int32_t depth, bool of_worker) {
  const base::MutexLock lock(mutex_);
  Note* note = find_note(error);
  if (note == nullptr) {
    note = &notes_[next_];
    next_ = (next_ + 1) % notes_.size();
  }
  if (note->depth <= depth || !note->is_of(error))
    *note = {&error, depth, typeid(error).name(), own_words_of(error), ""};
  note->depth = depth;
  if (!note->text.empty()) note->text += '\n';
  note->text += line;
  Last& last = of_worker ? last_of_workers_ : last_here();
  last = {++count_, note->text};
}

std::string NoteStore::find(const std::exception& error) {
  const base::MutexLock lock(mutex_);
  const Note* note = find_note(error);
  return note == nullptr ? "" : note->text;
}

std::string NoteStore::last() {
  const base::MutexLock lock(mutex_);
  const Last& here = last_here();
  return here.number > last_of_workers_.number ? here.text : last_of_workers_.text;
}

}  // namespace inspect

std::string error_note(const std::exception& error) { return inspect::NoteStore::get().find(error); }

std::string last_error_note() { return inspect::NoteStore::get().last(); }

}  // namespace overdrive
