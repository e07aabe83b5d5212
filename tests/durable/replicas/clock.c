// Stands before the C library (LD_PRELOAD): the time of day is ahead by the number of seconds in the file that CLOCK_AHEAD names, eight
// bytes in the order of the machine. All other clocks are those of the kernel.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *ahead;

__attribute__((constructor)) static void open_file(void) {
  const char *name = getenv("CLOCK_AHEAD");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) {
    abort();
  }
  void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) {
    abort();
  }
  ahead = page;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME && ahead) {
    now->tv_sec += *ahead;
  }
  return result;
}
