/* Makes each flush of a file wait while the file named by HELD_FLUSH exists, and makes the file named by FLUSH_WAITS
   meanwhile. The program under test loads it first. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wait_while_held(void) {
    const char *held = getenv("HELD_FLUSH");
    const char *waits = getenv("FLUSH_WAITS");
    if (held != NULL && waits != NULL && access(held, F_OK) == 0) {
        int marker = open(waits, O_CREAT | O_WRONLY, 0600);
        if (marker >= 0) {
            close(marker);
        }
    }
    while (held != NULL && access(held, F_OK) == 0) {
        usleep(5000);
    }
}

int fdatasync(int file) {
    wait_while_held();
    return (int)syscall(SYS_fdatasync, file);
}

int fsync(int file) {
    wait_while_held();
    return (int)syscall(SYS_fsync, file);
}
