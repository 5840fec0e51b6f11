// Names for clang's thread-safety analysis, which checks at build time that a field
// is touched only under its lock. Other compilers see nothing.
#pragma once

#if defined(__clang__)
#define OVERDRIVE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define OVERDRIVE_THREAD_ANNOTATION(x)
#endif

// On a type: it is a lock, or it holds one for as long as it lives.
#define OVERDRIVE_CAPABILITY(name) OVERDRIVE_THREAD_ANNOTATION(capability(name))
#define OVERDRIVE_SCOPED_CAPABILITY OVERDRIVE_THREAD_ANNOTATION(scoped_lockable)

// On a field: the lock that guards it, or what it points to.
#define OVERDRIVE_GUARDED_BY(mutex) OVERDRIVE_THREAD_ANNOTATION(guarded_by(mutex))
#define OVERDRIVE_PT_GUARDED_BY(mutex) OVERDRIVE_THREAD_ANNOTATION(pt_guarded_by(mutex))

// On a function: locks its caller must hold, or must not hold, or that it takes or drops.
#define OVERDRIVE_REQUIRES(...) OVERDRIVE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define OVERDRIVE_EXCLUDES(...) OVERDRIVE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define OVERDRIVE_ACQUIRE(...) OVERDRIVE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define OVERDRIVE_RELEASE(...) OVERDRIVE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define OVERDRIVE_TRY_ACQUIRE(...) OVERDRIVE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))

// On a function whose locking the analysis cannot follow; say why beside it.
#define OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS OVERDRIVE_THREAD_ANNOTATION(no_thread_safety_analysis)
