/* Journal what a process writes and syncs below a folder, for tests/faults/power_loss.py.
 *
 * Preloaded with LD_PRELOAD. POWER_ROOT is the folder, POWER_LOG the journal. Each line is one
 * operation in the order in which they happened:
 *
 *   O ino path      a file was created          D ino path      a folder was created
 *   W ino at hex    bytes were written          T ino size      a file was cut
 *   R old<TAB>new   a name was changed          U path          a name was removed
 *   B n ino         sync n of an inode began    E n             sync n ended
 *
 * A sync is not done, it takes POWER_SYNC_US microseconds: what counts is what was asked for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char tracked[MOST];
static const char *root;
static size_t root_length;
static int journal = -1;
static long syncs;
static useconds_t sync_time;
static ssize_t (*real_write)(int, const void *, size_t);

__attribute__((constructor)) static void begin(void) {
    root = getenv("POWER_ROOT");
    root_length = root ? strlen(root) : 0;
    real_write = dlsym(RTLD_NEXT, "write");
    const char *path = getenv("POWER_LOG"), *pause = getenv("POWER_SYNC_US");
    if (path) journal = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    sync_time = pause ? (useconds_t)atoi(pause) : 0;
    syncs = (long)getpid() * 1000000L;
}

static void enter(void) { pthread_mutex_lock(&lock); flock(journal, LOCK_EX); }
static void leave(void) { flock(journal, LOCK_UN); pthread_mutex_unlock(&lock); }

static void note(const char *format, ...) {
    char line[2 * 4096 + 64];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    real_write(journal, line, (size_t)length);
}

/* The index is derived and has its own journal: it may be lost. */
static const char *inside(const char *path) {
    if (journal < 0 || !root || strncmp(path, root, root_length) || strstr(path, "index.sqlite3"))
        return NULL;
    return path[root_length] == '/' ? path + root_length + 1 : NULL;
}

static int open_through(const char *name, const char *path, int flags, mode_t mode) {
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
    const char *relative = inside(path);
    if (!relative) return real(path, flags, mode);
    enter();
    struct stat status;
    int was = lstat(path, &status) == 0;
    int fd = real(path, flags, mode);
    if (fd >= 0 && fd < MOST && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        tracked[fd] = 1;
        if (!was) note("O %lu %s\n", (unsigned long)status.st_ino, relative);
        else if (flags & O_TRUNC) note("T %lu 0\n", (unsigned long)status.st_ino);
    }
    leave();
    return fd;
}

#define OPEN(NAME) \
    int NAME(const char *path, int flags, ...) { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments); \
        return open_through(#NAME, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "close");
    if (fd >= 0 && fd < MOST) tracked[fd] = 0;
    return real(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
    if (!real_write) real_write = dlsym(RTLD_NEXT, "write");
    if (fd < 0 || fd >= MOST || !tracked[fd]) return real_write(fd, data, size);
    enter();
    ssize_t written = real_write(fd, data, size);
    struct stat status;
    if (written > 0 && fstat(fd, &status) == 0) {
        off_t at = lseek(fd, 0, SEEK_CUR) - written;
        char *hex = malloc((size_t)written * 2 + 64);
        int length = sprintf(hex, "W %lu %ld ", (unsigned long)status.st_ino, (long)at);
        for (ssize_t n = 0; n < written; n++)
            length += sprintf(hex + length, "%02x", ((const unsigned char *)data)[n]);
        hex[length++] = '\n';
        real_write(journal, hex, (size_t)length);
        free(hex);
    }
    leave();
    return written;
}

static int cut_through(const char *name, int fd, off_t size) {
    int (*real)(int, off_t) = dlsym(RTLD_NEXT, name);
    if (fd < 0 || fd >= MOST || !tracked[fd]) return real(fd, size);
    enter();
    int result = real(fd, size);
    struct stat status;
    if (!result && fstat(fd, &status) == 0)
        note("T %lu %ld\n", (unsigned long)status.st_ino, (long)size);
    leave();
    return result;
}
int ftruncate(int fd, off_t size) { return cut_through("ftruncate", fd, size); }
int ftruncate64(int fd, off64_t size) { return cut_through("ftruncate64", fd, size); }

static int sync_through(int fd) {
    struct stat status;
    if (journal < 0 || fstat(fd, &status)) return -1;
    enter();
    long number = syncs++;
    note("B %ld %lu\n", number, (unsigned long)status.st_ino);
    leave();
    usleep(sync_time);
    enter();
    note("E %ld\n", number);
    leave();
    return 0;
}
int fsync(int fd) { return sync_through(fd); }
int fdatasync(int fd) { return sync_through(fd); }

int mkdir(const char *path, mode_t mode) {
    int (*real)(const char *, mode_t) = dlsym(RTLD_NEXT, "mkdir");
    const char *relative = inside(path);
    if (!relative) return real(path, mode);
    enter();
    int result = real(path, mode);
    struct stat status;
    if (!result && !lstat(path, &status))
        note("D %lu %s\n", (unsigned long)status.st_ino, relative);
    leave();
    return result;
}

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    const char *old = inside(from), *new = inside(to);
    if (!old || !new) return real(from, to);
    enter();
    int result = real(from, to);
    if (!result) note("R %s\t%s\n", old, new);
    leave();
    return result;
}

int unlink(const char *path) {
    int (*real)(const char *) = dlsym(RTLD_NEXT, "unlink");
    const char *relative = inside(path);
    if (!relative) return real(path);
    enter();
    int result = real(path);
    if (!result) note("U %s\n", relative);
    leave();
    return result;
}
