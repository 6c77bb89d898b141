/* A layer below Python, loaded with LD_PRELOAD: it sees what a process does to the files under one
 * folder, writes it into a journal, and lets the n-th operation fail or kill the process.
 *
 * Nothing happens until layer_begin() is called, and then only in the process that called it. Paths
 * are made absolute as the kernel would: relative ones, those beside an open folder (openat and the
 * like) and those that lead through /proc/self/fd. What a descriptor is, its inode says; so one that
 * was closed and is used for something else is not mistaken, and a duplicate is known.
 *
 * A record of the journal is a struct record, then path, other path and data, without padding.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind {
    CREATE, OPEN_WRITE, OPEN_READ, WRITE, TRUNCATE, SYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR,
    SYMLINK, META, CLOSE, READ, MAP
};
enum mode { WATCH, FAIL_ONCE, FAIL_ON, KILL_BEFORE, KILL_WITHIN };

struct record {
    uint32_t kind, handle;
    int32_t error, flags;
    int64_t offset, length;
    uint32_t path, other, data, zero;
};

struct told {  /* shared with the parent, which reads it when the process has ended */
    uint64_t seen, hits;
    uint32_t kind, zero;
    char path[1024];
};

struct file {
    dev_t dev;
    ino_t ino;
    uint32_t handle;
    int writable;
    char *path;
};

enum { FILES = 4096 };
static struct file files[FILES];
static uint32_t handles;
static pthread_mutex_t gate = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char root[PATH_MAX];
static size_t root_length;
static pid_t owner;
static int journal = -1, mode, failure;
static int64_t fatal;
static uint32_t mask;
static struct told *told;

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define WATCHED (owner && getpid() == owner)

/* --- what is concerned --- */

static int inside(const char *path) {
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* The absolute path of what `path` beside `folder` names, without links but for the last part. */
static int resolve(int folder, const char *path, char *out) {
    char whole[2 * PATH_MAX], parent[PATH_MAX];
    int kept = errno;
    if (!path || strlen(path) >= PATH_MAX) return 0;
    if (*path == '/') snprintf(whole, sizeof whole, "%s", path);
    else if (folder == AT_FDCWD) snprintf(whole, sizeof whole, "/proc/self/cwd/%s", path);
    else snprintf(whole, sizeof whole, "/proc/self/fd/%d/%s", folder, path);
    size_t length = strlen(whole);
    while (length > 1 && whole[length - 1] == '/') whole[--length] = 0;
    char *last = strrchr(whole, '/') + 1;
    int special = !strcmp(last, ".") || !strcmp(last, "..") || !*last;
    int opened = !strncmp(whole, "/proc/self/fd/", 14) && last == whole + 14;
    int found;
    if (special || opened) {
        found = realpath(whole, out) != NULL;
    } else {
        last[-1] = 0;
        found = realpath(*whole ? whole : "/", parent) != NULL;
        found = found && strlen(parent) + strlen(last) + 2 <= PATH_MAX;
        if (found) sprintf(out, "%s/%s", strcmp(parent, "/") ? parent : "", last);
    }
    errno = kept;
    return found && inside(out);
}

static void note_file(int fd, int writable, const char *path) {
    struct stat status;
    if (fd < 0 || fd >= FILES || fstat(fd, &status)) return;
    free(files[fd].path);
    files[fd] = (struct file){status.st_dev, status.st_ino, ++handles, writable, strdup(path)};
}

/* What is open keeps its place when it, or a folder around it, gets another name. */
static void note_rename(const char *old, const char *new) {
    size_t length = strlen(old);
    for (int fd = 0; fd < FILES; fd++) {
        char *path = files[fd].path, moved[2 * PATH_MAX];
        if (!path || strncmp(path, old, length) || (path[length] && path[length] != '/')) continue;
        snprintf(moved, sizeof moved, "%s%s", new, path + length);
        files[fd].path = strdup(moved);
        free(path);
    }
}

static void put(enum kind kind, uint32_t handle, int error, int flags, int64_t offset,
                int64_t length, const char *path, const char *other, const void *data, size_t size);

/* The handle of a descriptor of a file or folder inside; 0: it is of something else. */
static uint32_t handle_of(int fd, char *path) {
    struct stat status;
    char link[64];
    int kept = errno;
    uint32_t handle = 0;
    pthread_mutex_lock(&gate);
    if (fd < 0 || fd >= FILES || fstat(fd, &status)) goto out;
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) goto out;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) goto out;
    path[length] = 0;
    if (!inside(path)) goto out;
    struct file *file = &files[fd];
    if (!file->handle || file->dev != status.st_dev || file->ino != status.st_ino) {
        int flags = fcntl(fd, F_GETFL);
        note_file(fd, (flags & O_ACCMODE) != O_RDONLY, path);
        put(OPEN_READ, files[fd].handle, 0, 0, 0, 0, path, "", "", 0);  /* a duplicate */
    }
    handle = file->handle;
    size_t known = strlen(file->path);
    int gone = !strncmp(path, file->path, known) && !strcmp(path + known, " (deleted)");
    if (strcmp(path, file->path) && !gone && file->writable && S_ISREG(status.st_mode)) {
        /* Renamed by a system call that no library made: so does what safetensors is written in. */
        char old[PATH_MAX];
        strcpy(old, file->path);
        note_rename(old, path);
        put(RENAME, handle, 0, 0, 0, 0, old, path, "", 0);
    }
out:
    pthread_mutex_unlock(&gate);
    errno = kept;
    return handle;
}

/* --- the journal, and what is to happen --- */

static void put_all(const void *data, size_t size) {
    while (size) {
        ssize_t done = syscall(SYS_write, journal, data, size);
        if (done <= 0) abort();
        data = (const char *)data + done;
        size -= done;
    }
}

static void put(enum kind kind, uint32_t handle, int error, int flags, int64_t offset,
                int64_t length, const char *path, const char *other, const void *data, size_t size) {
    if (journal < 0) return;
    int kept = errno;
    struct record record = {kind, handle, error, flags, offset, length,
                            strlen(path), strlen(other), size, 0};
    put_all(&record, sizeof record);
    put_all(path, record.path);
    put_all(other, record.other);
    put_all(data, size);
    errno = kept;
}

static void die(void) {
    kill(owner, SIGKILL);
    for (;;) pause();
}

/* Counts an operation. 1: it is to fail, errno says how; 2: the process is to die within it. */
static int due(enum kind kind, const char *path) {
    if (!(mask >> kind & 1)) return 0;
    int64_t number = told->seen++;
    int hit = mode == FAIL_ON ? number >= fatal : mode != WATCH && number == fatal;
    if (!hit) return 0;
    if (!told->hits++) {
        told->kind = kind;
        snprintf(told->path, sizeof told->path, "%s", path);
    }
    if (mode == KILL_BEFORE) die();
    if (mode == KILL_WITHIN) return 2;
    errno = failure;
    return 1;
}

/* Called through ctypes. `shared` is a file of sizeof(struct told) bytes for what is told. */
void layer_begin(const char *folder, const char *record, int shared, int what, long number,
                 unsigned kinds, int error) {
    if (!realpath(folder, root)) abort();
    root_length = strlen(root);
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    if (told == MAP_FAILED) abort();
    if (record) {
        journal = syscall(SYS_openat, AT_FDCWD, record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (journal < 0) abort();
    }
    mode = what, fatal = number, mask = kinds, failure = error;
    owner = getpid();
}

#define BEGIN(kind, path) \
    pthread_mutex_lock(&gate); \
    int hit = due(kind, path); \
    if (hit == 1) { \
        int why = errno; \
        put(kind, 0, why, 0, 0, 0, path, "", NULL, 0); \
        pthread_mutex_unlock(&gate); \
        errno = why; \
        return -1; \
    }
#define END \
    if (hit == 2) die(); \
    pthread_mutex_unlock(&gate);
#define FAILED(result) ((result) < 0 ? errno : 0)

/* --- opening and closing --- */

static int open_watched(int folder, const char *path, int flags, mode_t bits) {
    REAL(openat64);
    char whole[PATH_MAX];
    if (!WATCHED || !resolve(folder, path, whole)) return real(folder, path, flags, bits);
    struct stat status;
    int kept = errno;
    int there = !fstatat(AT_FDCWD, whole, &status, 0);
    errno = kept;
    int writes = (flags & O_ACCMODE) != O_RDONLY;
    int nameless = (flags & O_TMPFILE) == O_TMPFILE;
    enum kind kind = OPEN_READ;
    if (writes || flags & O_TRUNC) kind = OPEN_WRITE;
    if ((flags & O_CREAT && !there) || nameless) kind = CREATE;
    BEGIN(kind, whole)
    int fd = real(folder, path, flags, bits);
    if (fd >= 0) note_file(fd, writes, whole);
    uint32_t handle = fd >= 0 && fd < FILES ? files[fd].handle : 0;
    int64_t is_folder = there && S_ISDIR(status.st_mode);
    put(kind, handle, FAILED(fd), nameless ? 2 : flags & O_TRUNC ? 1 : 0, 0, is_folder, whole, "", NULL, 0);
    END
    return fd;
}

#define BITS(flags) \
    mode_t bits = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        bits = va_arg(rest, int); \
        va_end(rest); \
    }
int open(const char *path, int flags, ...) { BITS(flags) return open_watched(AT_FDCWD, path, flags, bits); }
int open64(const char *path, int flags, ...) { BITS(flags) return open_watched(AT_FDCWD, path, flags, bits); }
int openat(int folder, const char *path, int flags, ...) { BITS(flags) return open_watched(folder, path, flags, bits); }
int openat64(int folder, const char *path, int flags, ...) { BITS(flags) return open_watched(folder, path, flags, bits); }
int __open_2(const char *path, int flags) { return open_watched(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_watched(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return open_watched(folder, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return open_watched(folder, path, flags, 0); }
int creat(const char *path, mode_t bits) { return open_watched(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, bits); }
int creat64(const char *path, mode_t bits) { return open_watched(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, bits); }

int close(int fd) {
    REAL(close);
    char path[PATH_MAX];
    if (!WATCHED || fd < 0 || fd >= FILES || !files[fd].writable) return real(fd);
    uint32_t handle = handle_of(fd, path);
    if (!handle) return real(fd);
    pthread_mutex_lock(&gate);
    int hit = due(CLOSE, path), why = errno;
    int result = real(fd);  /* a close that fails has closed */
    files[fd].handle = 0, files[fd].writable = 0;
    put(CLOSE, handle, hit == 1 ? why : FAILED(result), 0, 0, 0, path, "", NULL, 0);
    if (hit == 2) die();
    pthread_mutex_unlock(&gate);
    if (hit == 1) errno = why;
    return hit == 1 ? -1 : result;
}

/* --- data --- */

#define OF_FILE(call) \
    char path[PATH_MAX]; \
    uint32_t handle = WATCHED ? handle_of(fd, path) : 0; \
    if (!handle) return call;

static ssize_t write_watched(int fd, const void *data, size_t size, off_t offset) {
    static ssize_t (*plain)(int, const void *, size_t);
    static ssize_t (*at)(int, const void *, size_t, off_t);
    if (!plain) plain = dlsym(RTLD_NEXT, "write"), at = dlsym(RTLD_NEXT, "pwrite64");
    OF_FILE(offset < 0 ? plain(fd, data, size) : at(fd, data, size, offset))
    BEGIN(WRITE, path)
    if (hit == 2) size /= 2;
    ssize_t done = offset < 0 ? plain(fd, data, size) : at(fd, data, size, offset);
    int64_t start = offset < 0 ? lseek(fd, 0, SEEK_CUR) - (done > 0 ? done : 0) : offset;
    put(WRITE, handle, FAILED(done), 0, start, done, path, "", data, done > 0 ? done : 0);
    END
    return done;
}

ssize_t write(int fd, const void *data, size_t size) { return write_watched(fd, data, size, -1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return write_watched(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) { return write_watched(fd, data, size, at); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    OF_FILE(real(fd, parts, count))
    ssize_t done = 0;  /* one after another; a short write ends it, as it may */
    for (int i = 0; i < count; i++) {
        if (!parts[i].iov_len) continue;
        ssize_t now = write_watched(fd, parts[i].iov_base, parts[i].iov_len, -1);
        if (now < 0) return done ? done : now;
        done += now;
        if ((size_t)now < parts[i].iov_len) break;
    }
    return done;
}

/* Between two files, through a buffer: so that the data is seen. */
static ssize_t pass_on(int from, off_t *start, int to, off_t *end, size_t size) {
    static char buffer[1 << 16];
    static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&alone);
    if (size > sizeof buffer) size = sizeof buffer;
    ssize_t got = start ? pread(from, buffer, size, *start) : read(from, buffer, size);
    if (got > 0) got = write_watched(to, buffer, got, end ? *end : -1);
    if (got > 0 && start) *start += got;
    if (got > 0 && end) *end += got;
    pthread_mutex_unlock(&alone);
    return got;
}

#include <sys/sendfile.h>
ssize_t sendfile(int fd, int from, off_t *offset, size_t size) {
    REAL(sendfile);
    OF_FILE(real(fd, from, offset, size))
    return pass_on(from, offset, fd, NULL, size);
}
ssize_t sendfile64(int fd, int from, off_t *offset, size_t size) { return sendfile(fd, from, offset, size); }
ssize_t copy_file_range(int from, off_t *start, int fd, off_t *end, size_t size, unsigned flags) {
    REAL(copy_file_range);
    OF_FILE(real(from, start, fd, end, size, flags))
    return pass_on(from, start, fd, end, size);
}

static int truncate_watched(int fd, off_t size, int (*call)(int, off_t)) {
    OF_FILE(call(fd, size))
    BEGIN(TRUNCATE, path)
    int result = call(fd, size);
    put(TRUNCATE, handle, FAILED(result), 0, 0, size, path, "", NULL, 0);
    END
    return result;
}
int ftruncate(int fd, off_t size) { REAL(ftruncate); return truncate_watched(fd, size, real); }
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int posix_fallocate(int fd, off_t offset, off_t size) {
    REAL(posix_fallocate);
    OF_FILE(real(fd, offset, size))
    struct stat status;
    if (fstat(fd, &status)) return errno;
    if (offset + size <= status.st_size) return 0;
    return ftruncate(fd, offset + size) ? errno : 0;
}
int posix_fallocate64(int fd, off_t offset, off_t size) { return posix_fallocate(fd, offset, size); }

static int sync_watched(int fd, const char *name) {
    int (*real)(int) = dlsym(RTLD_NEXT, name);
    OF_FILE(real(fd))
    BEGIN(SYNC, path)
    int result = real(fd);
    put(SYNC, handle, FAILED(result), 0, 0, 0, path, "", NULL, 0);
    END
    return result;
}
int fsync(int fd) { return sync_watched(fd, "fsync"); }
int fdatasync(int fd) { return sync_watched(fd, "fdatasync"); }

/* A shared mapping that can be written is not followed: the journal says that there was one. */
void *mmap(void *at, size_t size, int bits, int flags, int fd, off_t offset) {
    REAL(mmap);
    char path[PATH_MAX];
    void *result = real(at, size, bits, flags, fd, offset);
    if (fd >= 0 && bits & PROT_WRITE && flags & MAP_SHARED && WATCHED && handle_of(fd, path))
        put(MAP, handle_of(fd, path), 0, 0, offset, size, path, "", NULL, 0);
    return result;
}
void *mmap64(void *at, size_t size, int bits, int flags, int fd, off_t offset) {
    return mmap(at, size, bits, flags, fd, offset);
}

#define READING(call) \
    OF_FILE(call) \
    if (!(mask >> READ & 1)) return call; \
    BEGIN(READ, path) \
    ssize_t done = call; \
    END \
    return done;
ssize_t read(int fd, void *data, size_t size) { REAL(read); if (!(mask >> READ & 1)) return real(fd, data, size); READING(real(fd, data, size)) }
ssize_t pread(int fd, void *data, size_t size, off_t at) { REAL(pread); if (!(mask >> READ & 1)) return real(fd, data, size, at); READING(real(fd, data, size, at)) }
ssize_t pread64(int fd, void *data, size_t size, off_t at) { return pread(fd, data, size, at); }

/* --- names --- */

#define OF_PATH(folder, path, call) \
    char whole[PATH_MAX]; \
    if (!WATCHED || !resolve(folder, path, whole)) return call;
#define ONE(kind, folder, path, call) \
    OF_PATH(folder, path, call) \
    BEGIN(kind, whole) \
    int result = call; \
    put(kind, 0, FAILED(result), 0, 0, 0, whole, "", NULL, 0); \
    END \
    return result;

int mkdirat(int folder, const char *path, mode_t bits) {
    REAL(mkdirat);
    struct stat status;
    int kept = errno;
    if (!fstatat(folder, path, &status, AT_SYMLINK_NOFOLLOW)) return real(folder, path, bits);  /* it is there */
    errno = kept;
    ONE(MKDIR, folder, path, real(folder, path, bits))
}
int mkdir(const char *path, mode_t bits) { return mkdirat(AT_FDCWD, path, bits); }
int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    ONE(flags & AT_REMOVEDIR ? RMDIR : UNLINK, folder, path, real(folder, path, flags))
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat status;
    int folder = !lstat(path, &status) && S_ISDIR(status.st_mode);
    return unlinkat(AT_FDCWD, path, folder ? AT_REMOVEDIR : 0);
}
int symlinkat(const char *target, int folder, const char *path) {
    REAL(symlinkat);
    OF_PATH(folder, path, real(target, folder, path))
    BEGIN(SYMLINK, whole)
    int result = real(target, folder, path);
    put(SYMLINK, 0, FAILED(result), 0, 0, 0, whole, target, NULL, 0);
    END
    return result;
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

static int two(enum kind kind, int from, const char *old, int to, const char *new, unsigned flags,
               int (*call)(int, const char *, int, const char *, unsigned)) {
    char whole[PATH_MAX], other[PATH_MAX];
    if (!WATCHED) return call(from, old, to, new, flags);
    int first = resolve(from, old, whole), second = resolve(to, new, other), fd = -1;
    if (kind == LINK) sscanf(old, "/proc/self/fd/%d", &fd);  /* a file that has no name yet */
    uint32_t handle = fd >= 0 && fd < FILES && !strchr(old + 14, '/') ? files[fd].handle : 0;
    if (!first && !second) return call(from, old, to, new, flags);
    BEGIN(kind, second ? other : whole)
    int result = call(from, old, to, new, flags);
    if (kind == RENAME && !result && first && second) note_rename(whole, other);
    put(kind, handle, FAILED(result), kind == RENAME ? (int)flags : 0, 0, 0, first ? whole : "",
        second ? other : "", NULL, 0);
    END
    return result;
}
static int call_rename(int from, const char *old, int to, const char *new, unsigned flags) {
    return syscall(SYS_renameat2, from, old, to, new, flags);
}
static int call_link(int from, const char *old, int to, const char *new, unsigned flags) {
    return syscall(SYS_linkat, from, old, to, new, flags);
}
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) { return two(RENAME, from, old, to, new, flags, call_rename); }
int renameat(int from, const char *old, int to, const char *new) { return two(RENAME, from, old, to, new, 0, call_rename); }
int rename(const char *old, const char *new) { return two(RENAME, AT_FDCWD, old, AT_FDCWD, new, 0, call_rename); }
int linkat(int from, const char *old, int to, const char *new, int flags) { return two(LINK, from, old, to, new, flags, call_link); }
int link(const char *old, const char *new) { return two(LINK, AT_FDCWD, old, AT_FDCWD, new, 0, call_link); }

/* --- modes and times: no state of the disk depends on them here, but they can fail --- */

#define OF_FD(call) \
    OF_FILE(call) \
    BEGIN(META, path) \
    int result = call; \
    put(META, handle, FAILED(result), 0, 0, 0, path, "", NULL, 0); \
    END \
    return result;
int fchmod(int fd, mode_t bits) { REAL(fchmod); OF_FD(real(fd, bits)) }
int fchmodat(int folder, const char *path, mode_t bits, int flags) { REAL(fchmodat); ONE(META, folder, path, real(folder, path, bits, flags)) }
int chmod(const char *path, mode_t bits) { return fchmodat(AT_FDCWD, path, bits, 0); }
int futimens(int fd, const struct timespec times[2]) { REAL(futimens); OF_FD(real(fd, times)) }
int utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
    REAL(utimensat);
    ONE(META, folder, path, real(folder, path, times, flags))
}
