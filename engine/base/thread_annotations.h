// Names for clang's thread-safety analysis, which checks at build time that code touches a field under the
// field's lock only. For other compilers the names are empty.
#pragma once

#if defined(__clang__)
#define OVERDRIVE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define OVERDRIVE_THREAD_ANNOTATION(x)
#endif

// On a type: a lock, or an object that holds a lock during its life.
#define OVERDRIVE_CAPABILITY(name) OVERDRIVE_THREAD_ANNOTATION(capability(name))
#define OVERDRIVE_SCOPED_CAPABILITY OVERDRIVE_THREAD_ANNOTATION(scoped_lockable)

// On a field: the lock of the field, or the lock of the object behind a pointer.
#define OVERDRIVE_GUARDED_BY(mutex) OVERDRIVE_THREAD_ANNOTATION(guarded_by(mutex))
#define OVERDRIVE_PT_GUARDED_BY(mutex) OVERDRIVE_THREAD_ANNOTATION(pt_guarded_by(mutex))

// On a function: locks that its caller must hold, must not hold, and locks that the function takes or releases.
#define OVERDRIVE_REQUIRES(...) OVERDRIVE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define OVERDRIVE_EXCLUDES(...) OVERDRIVE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define OVERDRIVE_ACQUIRE(...) OVERDRIVE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define OVERDRIVE_RELEASE(...) OVERDRIVE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define OVERDRIVE_TRY_ACQUIRE(...) OVERDRIVE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))

// On a function whose locking the analysis cannot follow. Give the reason beside the function.
#define OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS OVERDRIVE_THREAD_ANNOTATION(no_thread_safety_analysis)
