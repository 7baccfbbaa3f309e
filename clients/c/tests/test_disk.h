/* A disk that a test provides, in the place of the one of the system. */

int (*test_open)(const char *path, int flags);
ssize_t (*test_write)(int file, const void *bytes, size_t count);
ssize_t (*test_read)(int file, void *bytes, size_t count);
int (*test_fsync)(int file);
int (*test_close)(int file);
int (*test_rename)(const char *from, const char *to);

#define open(path, flags, mode) test_open(path, flags)
#define write test_write
#define read test_read
#define fsync test_fsync
#define close test_close
#define rename test_rename
