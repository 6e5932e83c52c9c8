/* A wall clock of its own for one process, which may jump while the process runs (LD_PRELOAD).
 *
 * Eight bytes of the file that CHAOS_CLOCK_FILE names say how far CLOCK_REALTIME is off, in nanoseconds. Whoever reads
 * the clock through libc reads it so: CPython, gRPC, the JVM. Monotonic clocks and the times of files are true.
 *
 * The kernel knows nothing of it. So waits until a moment of the wall clock are cut into slices here, and judged by the
 * clock as it is off then: as on a machine whose clock jumps, they end at once when it jumps over their moment, and
 * last longer when it jumps back. A slice of a condition variable ends as a spurious wakeup, which everybody must
 * expect: waiting on without a look at what is waited for could miss its signal.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define SLICE (SECOND / 20)

static const int64_t none;
static const volatile int64_t *offset = &none;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
static int (*real_sem_timedwait)(sem_t *, const struct timespec *);
static int (*real_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);
static long (*real_syscall)(long, ...);

__attribute__((constructor)) static void prepare(void)
{
    if (real_syscall)
        return;
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_clock_nanosleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    /* There is an older one of this name, for programs of before 2003. */
    real_cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_cond_timedwait)
        real_cond_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    real_cond_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    real_sem_timedwait = dlsym(RTLD_NEXT, "sem_timedwait");
    real_sem_clockwait = dlsym(RTLD_NEXT, "sem_clockwait");
    real_syscall = dlsym(RTLD_NEXT, "syscall");
    const char *path = getenv("CHAOS_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        offset = page;
}

static int64_t of(const struct timespec *t)
{
    return t->tv_sec * SECOND + t->tv_nsec;
}

static struct timespec to(int64_t ns)
{
    if (ns < 0)
        ns = 0;
    return (struct timespec){ns / SECOND, ns % SECOND};
}

static int64_t true_time(void)
{
    struct timespec now;
    real_clock_gettime(CLOCK_REALTIME, &now);
    return of(&now);
}

/* True time: the end of a wait until a moment of our clock, but at most a slice from now. */
static struct timespec slice(const struct timespec *until)
{
    int64_t end = of(until) - *offset, most = true_time() + SLICE;
    return to(end < most ? end : most);
}

static int is_over(const struct timespec *until)
{
    return true_time() + *offset >= of(until);
}

/* --- reading */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    prepare();
    int failed = real_clock_gettime(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        *now = to(of(now) + *offset);
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec t;
    int failed = clock_gettime(CLOCK_REALTIME, &t);
    if (!failed)
        *now = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *now)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (now)
        *now = t.tv_sec;
    return t.tv_sec;
}

/* --- waiting until a moment */

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    prepare();
    if (clock != CLOCK_REALTIME || !(flags & TIMER_ABSTIME))
        return real_clock_nanosleep(clock, flags, until, left);
    int failed = 0;
    while (!failed && !is_over(until)) {
        struct timespec end = slice(until);
        failed = real_clock_nanosleep(clock, flags, &end, left);
    }
    return failed;
}

static int waited(int result, const struct timespec *until)
{
    return result == ETIMEDOUT && !is_over(until) ? 0 : result;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    prepare();
    /* glibc keeps there which clock a condition variable was made for. */
    if (cond->__data.__wrefs & 2)
        return real_cond_timedwait(cond, mutex, until);
    struct timespec end = slice(until);
    return waited(real_cond_timedwait(cond, mutex, &end), until);
}

int pthread_cond_clockwait(
    pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
    prepare();
    if (clock != CLOCK_REALTIME)
        return real_cond_clockwait(cond, mutex, clock, until);
    struct timespec end = slice(until);
    return waited(real_cond_clockwait(cond, mutex, clock, &end), until);
}

int sem_timedwait(sem_t *sem, const struct timespec *until)
{
    prepare();
    for (;;) {
        struct timespec end = slice(until);
        int failed = real_sem_timedwait(sem, &end);
        if (!failed || errno != ETIMEDOUT || is_over(until))
            return failed;
    }
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until)
{
    prepare();
    return clock == CLOCK_REALTIME ? sem_timedwait(sem, until) : real_sem_clockwait(sem, clock, until);
}

/* Abseil, and with it gRPC, waits on futexes without libc's help. */
static long futex_wait(uint32_t *word, int op, uint32_t value, const struct timespec *until, uint32_t bits)
{
    for (;;) {
        struct timespec end = slice(until);
        long failed = real_syscall(SYS_futex, word, op, value, &end, NULL, bits);
        if (failed != -1 || errno != ETIMEDOUT || is_over(until))
            return failed;
    }
}

long syscall(long number, ...)
{
    prepare();
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    int absolute = FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME;
    if (number == SYS_futex && (b & ~FUTEX_PRIVATE_FLAG) == absolute && d)
        return futex_wait((uint32_t *)a, b, c, (const struct timespec *)d, f);
    if (number == SYS_clock_gettime)
        return clock_gettime(a, (struct timespec *)b);
    return real_syscall(number, a, b, c, d, e, f);
}
