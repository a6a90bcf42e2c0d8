/* Conformance: files, directories and their attributes. */
#include "common.h"
#include <linux/fs.h>
#include <linux/fiemap.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <utime.h>

static int file = -1, other = -1, directory = -1;

static void make(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    need(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0, path);
}

static void open_files(void)
{
    static char text[10000];
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = 'a' + i % 23;
    make("file", text);
    make("other", "");
    mkdir("directory", 0755);
    make("directory/one", "1");
    make("directory/two", "22");
    mkdir("directory/three", 0755);
    close(file), close(other), close(directory);
    file = open("file", O_RDWR);
    other = open("other", O_RDWR);
    directory = open("directory", O_RDONLY | O_DIRECTORY);
    need(file >= 0 && other >= 0 && directory >= 0, "open");
}

static void rewind_all(void)
{
    lseek(file, 0, SEEK_SET);
    lseek(other, 0, SEEK_SET);
    lseek(directory, 0, SEEK_SET);
}

static void near_end(void) { lseek(file, 9990, SEEK_SET); }
static void fresh(void)
{
    unlink("new");
    rmdir("new");
}
static void make_new(void) { fresh(), make("new", "new"); }
static void make_pair(void) { make_new(), unlink("newer"), rmdir("newer"); }
static void make_new_directory(void) { fresh(), mkdir("new", 0700); }

static void tell_file(long result)
{
    char bytes[512];
    long count = RAW(pread64, other, bytes, sizeof bytes, 0, 0, 0);
    uint64_t hash = 5381;
    for (long i = 0; i < count; i++)
        hash = hash * 33 + (unsigned char)bytes[i];
    struct stat about;
    fstat(other, &about);
    tell("  holds %ld %lx of %ld at %ld\n", count, hash, (long)about.st_size,
         (long)lseek(other, 0, SEEK_CUR));
    need(ftruncate(other, 0) == 0, "ftruncate");
    (void)result;
}

CASE(read_write, "read write pread64 pwrite64 lseek", open_files)
{
    TRY(read, .b = {V(file), O(100), V(100)}, .before = rewind_all);
    TRY(read, .note = "large", .b = {V(file), O(9000), V(9000)}, .before = rewind_all);
    TRY(read, .note = "end", .b = {V(file), O(100), V(100)}, .before = near_end);
    TRY(read, .note = "nothing", .b = {V(file), O(1), V(0)});
    TRY(read, .note = "directory", .b = {V(directory), O(100), V(100)});
    TRY(read, .note = "closed", .b = {V(999), O(100), V(100)});
    TRY(read, .note = "negative", .b = {V(-1), O(100), V(100)});
    TRY(read, .note = "huge", .b = {V(file), O(100), V(-1)}, .before = near_end);
    TRY(read, .note = "too_long", .b = {V(file), O(100), V(0x7ffff000)}, .before = near_end);
    TRY(write, .b = {V(other), I("0123456789", 10), V(10)}, .before = rewind_all, .after = tell_file);
    static char large[9000] = "large";
    TRY(write, .note = "large", .b = {V(other), I(large, 9000), V(9000)}, .before = rewind_all,
        .after = tell_file);
    TRY(write, .note = "closed", .b = {V(999), I("x", 1), V(1)});
    TRY(write, .note = "directory", .b = {V(directory), I("x", 1), V(1)});
    TRY(pread64, .b = {V(file), O(100), V(100), V(5000)});
    TRY(pread64, .note = "beyond", .b = {V(file), O(100), V(100), V(50000)});
    TRY(pread64, .note = "negative", .b = {V(file), O(100), V(100), V(-1)});
    TRY(pwrite64, .b = {V(other), I("abcdefgh", 8), V(8), V(100)}, .after = tell_file);
    TRY(pwrite64, .note = "negative", .b = {V(other), I("abcdefgh", 8), V(8), V(-5)});
    for (int whence = -1; whence < 6; whence++)
        TRY(lseek, .b = {V(file), V(10), V(whence)});
    TRY(lseek, .note = "hole", .b = {V(file), V(20000), V(SEEK_DATA)});
    TRY(lseek, .note = "negative", .b = {V(file), V(-1), V(SEEK_SET)});
}

#define PIECES .r = {{1, 0, 6}, {1, 16, 7}, {1, 32, 8}}, .before = rewind_all
#define VECTOR IL(0, a, 0, b, 0, c)

CASE(vectors, "readv writev preadv pwritev preadv2 pwritev2", open_files)
{
    enum { a = 10, b = 5000, c = 3 };
    static char text[b] = "pieces";
    const long bad[] = {0, -1, 0, 5}, none[] = {0, 0};
    TRY(readv, .b = {V(file), VECTOR, V(3), [6] = O(a), O(b), O(c)}, PIECES);
    TRY(readv, .note = "two", .b = {V(file), VECTOR, V(2), [6] = O(a), O(b), O(c)}, PIECES);
    TRY(readv, .note = "none", .b = {V(file), VECTOR, V(0), [6] = O(a), O(b), O(c)}, PIECES);
    TRY(readv, .note = "too_many", .b = {V(file), VECTOR, V(1025)}, .before = rewind_all);
    TRY(readv, .note = "bad_length", .b = {V(file), I(bad, 32), V(2), [6] = O(8), O(5)},
        .r = {{1, 0, 6}, {1, 16, 7}}, .before = rewind_all);
    TRY(readv, .note = "empty", .b = {V(file), I(none, 16), V(1)}, .before = rewind_all);
    TRY(writev, .b = {V(other), VECTOR, V(3), [6] = I(text, a), I(text, b), I(text, c)},
        PIECES, .after = tell_file);
    TRY(preadv, .b = {V(file), VECTOR, V(3), V(77), V(0), [6] = O(a), O(b), O(c)}, PIECES);
    TRY(preadv, .note = "negative", .b = {V(file), VECTOR, V(3), V(-1), V(-1), [6] = O(a), O(b), O(c)},
        PIECES, .flags = ONCE);
    TRY(pwritev, .b = {V(other), VECTOR, V(3), V(50), V(0), [6] = I(text, a), I(text, b), I(text, c)},
        PIECES, .after = tell_file);
    TRY(preadv2, .b = {V(file), VECTOR, V(3), V(-1), V(-1), V(0), [6] = O(a), O(b), O(c)},
        PIECES);
    TRY(preadv2, .note = "flag", .b = {V(file), VECTOR, V(3), V(0), V(0), V(0x8000), [6] = O(a), O(b), O(c)},
        PIECES, .flags = ONCE);
    TRY(pwritev2, .b = {V(other), VECTOR, V(3), V(5), V(0), V(RWF_APPEND), [6] = I(text, a), I(text, b), I(text, c)},
        PIECES, .after = tell_file);
}

/* Inode numbers and times of struct stat and statx differ by nature; the device does not. */
#define STAT OH(144, "8+8,72+48")
#define STATX OH(256, "32+8,64+64,144+8")

CASE(status, "stat lstat fstat newfstatat statx access faccessat faccessat2", open_files)
{
    unlink("link"), symlink("file", "link");
    TRY(stat, .b = {S("link"), STAT});
    TRY(lstat, .b = {S("link"), STAT});
    TRY(fstat, .b = {V(file), STAT});
    TRY(fstat, .note = "closed", .b = {V(999), STAT});
    TRY(newfstatat, .b = {V(AT_FDCWD), S("link"), STAT, V(AT_SYMLINK_NOFOLLOW)});
    TRY(newfstatat, .note = "empty", .b = {V(file), S(""), STAT, V(AT_EMPTY_PATH)});
    TRY(newfstatat, .note = "in", .b = {V(directory), S("two"), STAT, V(0)});
    TRY(newfstatat, .note = "flags", .b = {V(AT_FDCWD), S("link"), STAT, V(-1)});
    TRY(statx, .b = {V(AT_FDCWD), S("file"), V(0), V(0xfff), STATX});
    TRY(statx, .note = "empty", .b = {V(file), S(""), V(AT_EMPTY_PATH), V(0x7ff), STATX});
    TRY(statx, .note = "mask", .b = {V(AT_FDCWD), S("file"), V(0), V(-1), STATX});
    TRY(stat, .note = "missing", .b = {S("missing"), STAT});
    TRY(stat, .note = "not_directory", .b = {S("file/x"), STAT});
    TRY(stat, .note = "empty", .b = {S(""), STAT});
    static char name[5000];
    memset(name, 'n', 300);
    TRY(stat, .note = "long_name", .b = {S(name), STAT});
    memset(name, '/', 4095);
    TRY(stat, .note = "longest", .b = {S(name), STAT});
    memset(name, '/', 4999);
    TRY(stat, .note = "too_long", .b = {S(name), STAT});
    for (int mode = 0; mode < 9; mode++)
        TRY(access, .b = {S("file"), V(mode)}, .flags = mode == 4 ? 0 : ONCE);
    TRY(faccessat, .b = {V(directory), S("one"), V(R_OK)});
    TRY(faccessat2, .b = {V(directory), S("one"), V(X_OK), V(AT_EACCESS)});
    TRY(faccessat2, .note = "empty", .b = {V(file), S(""), V(W_OK), V(AT_EMPTY_PATH)});
    TRY(faccessat2, .note = "flags", .b = {V(file), S("one"), V(W_OK), V(0x40000000)});
}

CASE(opening, "open openat openat2 creat close", open_files)
{
    TRY(open, .b = {S("file"), V(O_RDONLY), V(0)}, .flags = CLOSES);
    TRY(open, .note = "new", .b = {S("new"), V(O_CREAT | O_EXCL | O_WRONLY), V(0777)},
        .before = fresh, .flags = CLOSES);
    TRY(open, .note = "exists", .b = {S("file"), V(O_CREAT | O_EXCL | O_WRONLY), V(0777)});
    TRY(open, .note = "directory", .b = {S("directory"), V(O_WRONLY)});
    TRY(open, .note = "flags", .b = {S("file"), V(-1)}, .flags = CLOSES);
    TRY(open, .note = "temporary", .b = {S("."), V(O_TMPFILE | O_RDWR), V(0600)}, .flags = CLOSES);
    TRY(open, .note = "path", .b = {S("directory"), V(O_PATH)}, .flags = CLOSES);
    TRY(creat, .b = {S("new"), V(0640)}, .before = fresh, .flags = CLOSES);
    TRY(openat, .b = {V(directory), S("one"), V(O_RDONLY)}, .flags = CLOSES);
    TRY(openat, .note = "closed", .b = {V(999), S("one"), V(O_RDONLY)}, .flags = CLOSES);
    TRY(openat, .note = "file", .b = {V(file), S("one"), V(O_RDONLY)}, .flags = CLOSES);
    struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_BENEATH};
    TRY(openat2, .b = {V(directory), S("one"), I(&how, sizeof how), V(sizeof how)}, .flags = CLOSES);
    TRY(openat2, .note = "above", .b = {V(directory), S("../file"), I(&how, sizeof how), V(sizeof how)},
        .flags = CLOSES);
    char larger[64] = {0};
    memcpy(larger, &how, sizeof how);
    TRY(openat2, .note = "larger", .b = {V(directory), S("one"), I(larger, 64), V(64)}, .flags = CLOSES);
    larger[60] = 1;
    TRY(openat2, .note = "unknown", .b = {V(directory), S("one"), I(larger, 64), V(64)}, .flags = CLOSES);
    TRY(openat2, .note = "short", .b = {V(directory), S("one"), I(larger, 8), V(8)}, .flags = CLOSES);
    TRY(openat2, .note = "huge", .b = {V(directory), S("one"), I(larger, 64), V(5000)}, .flags = CLOSES);
    struct rlimit limit, small = {8, 8};
    getrlimit(RLIMIT_NOFILE, &limit);
    small.rlim_max = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &small);
    int fds[8], count = 0;
    while (count < 8 && (fds[count] = open("file", O_RDONLY)) >= 0)
        count++;
    tell("%d descriptors\n", count);
    TRY(openat, .note = "limit", .b = {V(AT_FDCWD), S("file"), V(O_RDONLY)});
    TRY(dup, .note = "limit", .b = {V(file)});
    setrlimit(RLIMIT_NOFILE, &limit);
    while (count > 0)
        TRY(close, .b = {V(fds[--count])});
    TRY(close, .note = "again", .b = {V(fds[0])});
    TRY(close, .note = "negative", .b = {V(-1)});
}

CASE(names, "rename renameat renameat2 link linkat unlink unlinkat symlink symlinkat readlink "
            "readlinkat mkdir mkdirat rmdir mknod mknodat", open_files)
{
    TRY(rename, .b = {S("new"), S("newer")}, .before = make_pair);
    TRY(rename, .note = "missing", .b = {S("missing"), S("newer")});
    TRY(rename, .note = "into_itself", .b = {S("directory"), S("directory/x")});
    TRY(renameat, .b = {V(AT_FDCWD), S("new"), V(AT_FDCWD), S("newer")}, .before = make_pair);
    TRY(renameat2, .b = {V(AT_FDCWD), S("new"), V(AT_FDCWD), S("file"), V(RENAME_NOREPLACE)},
        .before = make_pair);
    TRY(renameat2, .note = "flags", .b = {V(AT_FDCWD), S("new"), V(AT_FDCWD), S("newer"), V(0xff)},
        .before = make_pair);
    TRY(link, .b = {S("new"), S("newer")}, .before = make_pair);
    TRY(linkat, .b = {V(file), S(""), V(AT_FDCWD), S("newer"), V(AT_EMPTY_PATH)}, .before = make_pair);
    TRY(unlink, .b = {S("new")}, .before = make_new);
    TRY(unlink, .note = "directory", .b = {S("directory")});
    TRY(unlinkat, .b = {V(AT_FDCWD), S("new"), V(0)}, .before = make_new);
    TRY(unlinkat, .note = "directory", .b = {V(AT_FDCWD), S("new"), V(AT_REMOVEDIR)},
        .before = make_new_directory);
    TRY(symlink, .b = {S("where ever"), S("new")}, .before = fresh);
    TRY(readlink, .b = {S("new"), O(100), V(100)});
    symlink("target of this link", "new");
    TRY(readlink, .b = {S("new"), O(100), V(100)});
    TRY(readlink, .note = "short", .b = {S("new"), O(6), V(6)});
    TRY(readlink, .note = "none", .b = {S("new"), O(6), V(0)});
    TRY(readlink, .note = "negative", .b = {S("new"), O(6), V(-5)});
    TRY(readlink, .note = "file", .b = {S("file"), O(6), V(6)});
    TRY(readlinkat, .b = {V(AT_FDCWD), S("new"), O(100), V(100)});
    TRY(symlinkat, .b = {S("where"), V(AT_FDCWD), S("new")}, .before = fresh);
    TRY(mkdir, .b = {S("new"), V(0777)}, .before = fresh);
    TRY(mkdir, .note = "exists", .b = {S("file"), V(0777)});
    TRY(mkdirat, .b = {V(AT_FDCWD), S("new"), V(0777)}, .before = fresh);
    TRY(rmdir, .b = {S("new")}, .before = make_new_directory);
    TRY(rmdir, .note = "full", .b = {S("directory")});
    TRY(mknod, .b = {S("new"), V(S_IFIFO | 0600), V(0)}, .before = fresh);
    TRY(mknod, .note = "bad", .b = {S("new"), V(S_IFDIR | 0600), V(0)}, .before = fresh);
    TRY(mknodat, .b = {V(AT_FDCWD), S("new"), V(S_IFSOCK | 0600), V(0)}, .before = fresh);
    fresh();
}

CASE(attributes, "chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat utime utimes futimesat "
                 "utimensat truncate ftruncate umask", open_files)
{
    long times[] = {1000, 20, 3000, 40}, odd[] = {1000, 2000000000, 3000, 40};
    TRY(chmod, .b = {S("file"), V(0600)});
    TRY(fchmod, .b = {V(file), V(04711)});
    TRY(fchmodat, .b = {V(AT_FDCWD), S("file"), V(0604)});
    TRY(fchmodat2, .b = {V(file), S(""), V(0640), V(AT_EMPTY_PATH)});
    TRY(chown, .b = {S("file"), V(7), V(8)});
    TRY(lchown, .b = {S("file"), V(-1), V(9)});
    TRY(fchown, .b = {V(file), V(10), V(-1)});
    TRY(fchownat, .b = {V(AT_FDCWD), S("file"), V(0), V(0), V(AT_SYMLINK_NOFOLLOW)});
    TRY(stat, .note = "after", .b = {S("file"), STAT}, .flags = ONCE);
    TRY(utime, .b = {S("file"), I(times, 16)});
    TRY(utimes, .b = {S("file"), I(times, 32)});
    TRY(utimes, .note = "odd", .b = {S("file"), I(odd, 32)});
    TRY(futimesat, .b = {V(AT_FDCWD), S("file"), I(times, 32)});
    TRY(utimensat, .b = {V(AT_FDCWD), S("file"), I(times, 32), V(0)});
    TRY(utimensat, .note = "now", .b = {V(AT_FDCWD), S("file"), IL(0, UTIME_OMIT, 0, UTIME_OMIT), V(0)});
    TRY(utimensat, .note = "null_path", .b = {V(file), V(0), I(times, 32), V(0)});
    TRY(utimes, .note = "last", .b = {S("file"), I(times, 32)}, .flags = ONCE);
    struct stat about;
    stat("file", &about);
    tell("times %ld.%ld\n", (long)about.st_mtim.tv_sec, (long)about.st_mtim.tv_nsec);
    TRY(truncate, .b = {S("file"), V(5000)});
    TRY(truncate, .note = "negative", .b = {S("file"), V(-1)});
    TRY(ftruncate, .b = {V(file), V(6000)});
    TRY(ftruncate, .note = "directory", .b = {V(directory), V(6000)});
    TRY(umask, .b = {V(077)});
    TRY(umask, .b = {V(022)});
}

CASE(limits, "", open_files)
{
    struct rlimit limit, small;
    getrlimit(RLIMIT_FSIZE, &limit);
    small = (struct rlimit){100, limit.rlim_max};
    need(setrlimit(RLIMIT_FSIZE, &small) == 0, "setrlimit");
    TRY(pwrite64, .note = "limit", .b = {V(other), I("0123456789", 10), V(10), V(95)}, .after = tell_file);
    TRY(pwrite64, .note = "beyond", .b = {V(other), I("0123456789", 10), V(10), V(100)});
    TRY(ftruncate, .note = "beyond", .b = {V(other), V(101)});
    TRY(fallocate, .note = "beyond", .b = {V(other), V(0), V(0), V(101)});
    need(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
}

CASE(directories, "getdents getdents64 getcwd chdir fchdir chroot", open_files)
{
    /* Sorted names through a plain read: the order is the file system's own. */
    char bytes[4096], names[8][32];
    int count = 0;
    long length = RAW(getdents64, directory, bytes, sizeof bytes, 0, 0, 0);
    for (long at = 0; at < length && count < 8; at += *(unsigned short *)(bytes + at + 16))
        snprintf(names[count++], sizeof names[0], "%s %d", bytes + at + 19, bytes[at + 18]);
    qsort(names, count, sizeof names[0], (int (*)(const void *, const void *))strcmp);
    for (int i = 0; i < count; i++)
        tell("entry %s\n", names[i]);
    TRY(getdents64, .b = {V(directory), OH(400, "0+400"), V(400)}, .before = rewind_all);
    TRY(getdents64, .note = "large", .b = {V(directory), OH(32768, "0+400"), V(32768)},
        .before = rewind_all);
    TRY(getdents64, .note = "short", .b = {V(directory), O(10), V(10)}, .before = rewind_all);
    TRY(getdents64, .note = "file", .b = {V(file), O(100), V(100)});
    TRY(getdents, .b = {V(directory), OH(400, "0+400"), V(400)}, .before = rewind_all);
    TRY(getcwd, .b = {O(4096), V(4096)});
    TRY(getcwd, .note = "large", .b = {O(4096), V(50000)});
    TRY(getcwd, .note = "short", .b = {O(5), V(5)});
    TRY(chdir, .b = {S("directory")}, .before = NULL);
    TRY(fchdir, .b = {V(directory)});
    TRY(getcwd, .note = "within", .b = {O(4096), V(4096)}, .flags = ONCE);
    TRY(chdir, .note = "above", .b = {S("..")}, .flags = ONCE);
    TRY(chdir, .note = "file", .b = {S("file")});
    TRY(fchdir, .note = "file", .b = {V(file)});
    TRY(chroot, .b = {S("/")});
    TRY(chroot, .note = "file", .b = {S("file")});
}

CASE(file_systems, "statfs fstatfs ustat sync syncfs fsync fdatasync sync_file_range fallocate "
                   "fadvise64 readahead cachestat name_to_handle_at open_by_handle_at", open_files)
{
    /* Free blocks and files change meanwhile. */
    TRY(statfs, .b = {S("file"), OH(120, "16+32,48+8")});
    TRY(fstatfs, .b = {V(file), OH(120, "16+32,48+8")});
    struct stat about;
    fstat(file, &about);
    TRY(ustat, .b = {V(about.st_dev), OH(32, "0+16")});
    TRY(fsync, .b = {V(other)});
    TRY(fdatasync, .b = {V(other)});
    TRY(syncfs, .b = {V(other)});
    TRY(fsync, .note = "closed", .b = {V(999)});
    TRY(sync, .b = {V(0)});
    TRY(sync_file_range, .b = {V(file), V(0), V(100), V(7)});
    TRY(sync_file_range, .note = "flags", .b = {V(file), V(0), V(100), V(70)});
    TRY(fallocate, .b = {V(other), V(0), V(0), V(3000)}, .after = tell_file);
    TRY(fallocate, .note = "punch", .b = {V(file), V(3), V(0), V(4096)});
    TRY(fallocate, .note = "bad", .b = {V(file), V(0), V(0), V(0)});
    TRY(fadvise64, .b = {V(file), V(0), V(0), V(4)});
    TRY(fadvise64, .note = "bad", .b = {V(file), V(0), V(0), V(99)});
    TRY(readahead, .b = {V(file), V(0), V(4096)});
    TRY(readahead, .note = "directory", .b = {V(directory), V(0), V(4096)});
    TRY(cachestat, .b = {V(file), IL(0, 4096), OH(40, "8+32"), V(0)});
    TRY(cachestat, .note = "flags", .b = {V(file), IL(0, 4096), O(40), V(1)});
    unsigned handle[34] = {128}, small[34] = {1};
    TRY(name_to_handle_at, .b = {V(AT_FDCWD), S("file"), CH(handle, 136, "8+128"), OH(4, "0+4"), V(0)});
    TRY(name_to_handle_at, .note = "small", .b = {V(AT_FDCWD), S("file"), CH(small, 12, "8+128"), OH(4, "0+4"), V(0)});
    int id;
    if (RAW(name_to_handle_at, AT_FDCWD, "file", handle, &id, 0, 0) == 0)
        TRY(open_by_handle_at, .b = {V(directory), I(handle, 8 + handle[0]), V(O_RDONLY)},
            .flags = CLOSES);
    handle[0] = 200;
    TRY(open_by_handle_at, .note = "long", .b = {V(directory), I(handle, 136), V(O_RDONLY)},
        .flags = CLOSES);
}

static void set_value(void) { RAW(setxattr, "file", "user.one", "value", 5, 0, 0); }

CASE(extended, "setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr "
               "flistxattr removexattr lremovexattr fremovexattr setxattrat getxattrat listxattrat "
               "removexattrat", open_files)
{
    TRY(setxattr, .b = {S("file"), S("user.two"), I("12", 2), V(2), V(0)});
    TRY(setxattr, .note = "exists", .b = {S("file"), S("user.two"), I("12", 2), V(2), V(1)});
    TRY(setxattr, .note = "unknown", .b = {S("file"), S("unknown.two"), I("12", 2), V(2), V(0)});
    TRY(setxattr, .note = "large", .b = {S("file"), S("user.two"), I("12", 2), V(70000), V(0)});
    TRY(lsetxattr, .b = {S("file"), S("user.three"), I("123", 3), V(3), V(0)});
    TRY(fsetxattr, .b = {V(file), S("user.four"), I("1234", 4), V(4), V(0)});
    set_value();
    TRY(getxattr, .b = {S("file"), S("user.one"), O(100), V(100)});
    TRY(getxattr, .note = "short", .b = {S("file"), S("user.one"), O(3), V(3)});
    TRY(getxattr, .note = "size", .b = {S("file"), S("user.one"), V(0), V(0)});
    TRY(getxattr, .note = "missing", .b = {S("file"), S("user.none"), O(3), V(3)});
    TRY(lgetxattr, .b = {S("file"), S("user.one"), O(100), V(100)});
    TRY(fgetxattr, .b = {V(file), S("user.one"), O(100), V(100)});
    TRY(listxattr, .b = {S("file"), O(200), V(200)});
    TRY(listxattr, .note = "short", .b = {S("file"), O(4), V(4)});
    TRY(llistxattr, .b = {S("file"), O(200), V(200)});
    TRY(flistxattr, .b = {V(file), O(200), V(200)});
    struct { uint64_t value; uint32_t size, flags; } how = {0, 5, 0}, room = {0, 50, 0};
    TRY(setxattrat, .b = {V(AT_FDCWD), S("file"), V(0), S("user.at"), I(&how, 16), V(16), [6] = I("sixth", 5)},
        .r = {{4, 0, 6}});
    TRY(getxattrat, .b = {V(AT_FDCWD), S("file"), V(0), S("user.at"), I(&room, 16), V(16), [6] = O(50)},
        .r = {{4, 0, 6}});
    TRY(listxattrat, .b = {V(AT_FDCWD), S("file"), V(0), O(200), V(200)});
    TRY(removexattrat, .b = {V(AT_FDCWD), S("file"), V(0), S("user.at")});
    TRY(removexattr, .b = {S("file"), S("user.one")}, .before = set_value);
    TRY(lremovexattr, .b = {S("file"), S("user.one")}, .before = set_value);
    TRY(fremovexattr, .b = {V(file), S("user.one")}, .before = set_value);
}

static void move_offsets(void)
{
    rewind_all();
    if (ftruncate(other, 0) < 0)
        tell("fault\n");
}

CASE(copying, "sendfile copy_file_range", open_files)
{
    TRY(sendfile, .b = {V(other), V(file), CI(100, 0), V(50)}, .before = move_offsets, .after = tell_file);
    TRY(sendfile, .note = "current", .b = {V(other), V(file), V(0), V(50)}, .before = move_offsets,
        .after = tell_file);
    TRY(sendfile, .note = "negative", .b = {V(other), V(file), CI(-1, -1), V(50)}, .before = move_offsets);
    TRY(copy_file_range, .b = {V(file), CI(10, 0), V(other), CI(3, 0), V(60), V(0)},
        .before = move_offsets, .after = tell_file);
    TRY(copy_file_range, .note = "flags", .b = {V(file), CI(10, 0), V(other), CI(3, 0), V(60), V(5)},
        .before = move_offsets, .after = tell_file);
}

#define FILE_IOCTL(request, ...)                                                         \
    TRY(ioctl, .note = #request, .b = {V(file), V(request), __VA_ARGS__})

CASE(file_controls, "ioctl file_getattr file_setattr", open_files)
{
    FILE_IOCTL(FIGETBSZ, O(4));
    FILE_IOCTL(FIONREAD, O(4));
    FILE_IOCTL(FIOQSIZE, O(8));
    FILE_IOCTL(FIONBIO, II(0));
    FILE_IOCTL(FIOASYNC, II(0));
    FILE_IOCTL(FIOCLEX, V(0));
    FILE_IOCTL(FIONCLEX, V(0));
    FILE_IOCTL(FIBMAP, CH("\0\0\0\0", 4, "0+4"));
    FILE_IOCTL(FS_IOC_GETFLAGS, O(4));
    FILE_IOCTL(FS_IOC_SETFLAGS, II(FS_NODUMP_FL));
    FILE_IOCTL(FS_IOC_GETVERSION, OH(4, "0+4"));
    FILE_IOCTL(FS_IOC_FSGETXATTR, O(28));
    FILE_IOCTL(FS_IOC_GETFSLABEL, O(256));
    FILE_IOCTL(FICLONE, V(other));
    struct file_clone_range range = {.src_fd = other, .src_length = 10};
    FILE_IOCTL(FICLONERANGE, I(&range, sizeof range));
    struct { struct fiemap head; struct fiemap_extent extents[2]; } map = {0};
    map.head.fm_length = 10000;
    map.head.fm_extent_count = 2;
    FILE_IOCTL(FS_IOC_FIEMAP, CH(&map, sizeof map, "20+4,32+112"));
    struct { struct file_dedupe_range head; struct file_dedupe_range_info info; } same = {0};
    same.head.src_length = 10;
    same.head.dest_count = 1;
    same.info.dest_fd = other;
    FILE_IOCTL(FIDEDUPERANGE, C(&same, sizeof same));
    FILE_IOCTL(TCGETS, O(36));
    FILE_IOCTL(TIOCGWINSZ, O(8));
    FILE_IOCTL(0x12345678, V(0));
    unsigned char attributes[24] = {0};
    TRY(file_getattr, .b = {V(AT_FDCWD), S("file"), O(24), V(24), V(0)});
    TRY(file_getattr, .note = "large", .b = {V(AT_FDCWD), S("file"), O(100), V(100), V(0)});
    TRY(file_setattr, .b = {V(AT_FDCWD), S("file"), I(attributes, 24), V(24), V(0)});
}

CASE(locks, "flock fcntl", open_files)
{
    int again = open("file", O_RDWR);
    TRY(flock, .b = {V(file), V(LOCK_EX)});
    TRY(flock, .note = "held", .b = {V(again), V(LOCK_EX | LOCK_NB)});
    alarm_in(30);
    TRY(flock, .note = "waits", .b = {V(again), V(LOCK_EX)});
    TRY(flock, .note = "bad", .b = {V(file), V(99)});
    TRY(flock, .note = "gives", .b = {V(file), V(LOCK_UN)});
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 10};
    struct flock ours = lock;
    TRY(fcntl, .note = "SETLK", .b = {V(file), V(F_SETLK), I(&lock, sizeof lock)});
    TRY(fcntl, .note = "SETLKW", .b = {V(file), V(F_SETLKW), I(&lock, sizeof lock)});
    TRY(fcntl, .note = "GETLK", .b = {V(again), V(F_GETLK), C(&lock, sizeof lock)});
    TRY(fcntl, .note = "OFD_SETLK", .b = {V(again), V(F_OFD_SETLK), I(&lock, sizeof lock)});
    TRY(fcntl, .note = "OFD_GETLK", .b = {V(again), V(F_OFD_GETLK), CH(&lock, sizeof lock, "24+4")});
    alarm_in(30);
    TRY(fcntl, .note = "OFD_SETLKW", .b = {V(again), V(F_OFD_SETLKW), I(&lock, sizeof lock)}, .flags = ONCE);
    ours.l_type = 77;
    TRY(fcntl, .note = "bad_lock", .b = {V(file), V(F_SETLK), I(&ours, sizeof ours)});
    for (int command = 0; command < 5; command++)
        TRY(fcntl, .note = "plain", .b = {V(again), V(command), V(command == F_SETFL ? O_APPEND : 0)},
            .flags = command == F_DUPFD ? CLOSES : 0);
    TRY(fcntl, .note = "DUPFD_CLOEXEC", .b = {V(again), V(F_DUPFD_CLOEXEC), V(50)}, .flags = CLOSES);
    TRY(fcntl, .note = "DUPFD_limit", .b = {V(again), V(F_DUPFD), V(-1)}, .flags = CLOSES);
    TRY(fcntl, .note = "SETOWN", .b = {V(again), V(F_SETOWN), V(getpid())});
    TRY(fcntl, .note = "GETOWN", .b = {V(again), V(F_GETOWN)}, .flags = IDENTITY);
    TRY(fcntl, .note = "SETOWN_EX", .b = {V(again), V(F_SETOWN_EX), II(1, getpid())});
    TRY(fcntl, .note = "GETOWN_EX", .b = {V(again), V(F_GETOWN_EX), OH(8, "4+4")});
    TRY(fcntl, .note = "SETSIG", .b = {V(again), V(F_SETSIG), V(34)});
    TRY(fcntl, .note = "GETSIG", .b = {V(again), V(F_GETSIG)});
    TRY(fcntl, .note = "GETLEASE", .b = {V(again), V(F_GETLEASE)});
    TRY(fcntl, .note = "SETLEASE", .b = {V(again), V(F_SETLEASE), V(F_WRLCK)});
    TRY(fcntl, .note = "GET_RW_HINT", .b = {V(again), V(F_GET_RW_HINT), O(8)});
    TRY(fcntl, .note = "SET_RW_HINT", .b = {V(again), V(F_SET_RW_HINT), IL(2)});
    TRY(fcntl, .note = "ADD_SEALS", .b = {V(again), V(F_ADD_SEALS), V(1)});
    TRY(fcntl, .note = "NOTIFY", .b = {V(directory), V(F_NOTIFY), V(0)});
    TRY(fcntl, .note = "GETPIPE_SZ", .b = {V(again), V(F_GETPIPE_SZ)});
    TRY(fcntl, .note = "unknown", .b = {V(again), V(4321), V(0)});
    TRY(fcntl, .note = "closed", .b = {V(999), V(F_GETFD)});
    close(again);
}
