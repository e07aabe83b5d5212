// Package fileutil, in place of etcd's file of the same functions: the log of a member is flushed as slowly as the file that DISK_FAULTS names
// says ("slow 50": 50 ms more), or not at all ("full"). Without that variable or that file, the member flushes as etcd does.
package fileutil

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

var diskFile = os.Getenv("DISK_FAULTS")

// Fsync flushes a file and what is known of it.
func Fsync(f *os.File) error {
	return f.Sync()
}

// Fdatasync flushes what a file contains.
func Fdatasync(f *os.File) error {
	if err := diskProblem(); err != nil {
		return err
	}
	return syscall.Fdatasync(int(f.Fd()))
}

func diskProblem() error {
	if diskFile == "" {
		return nil
	}
	text, err := os.ReadFile(diskFile)
	if err != nil {
		return nil
	}
	if string(text) == "full" {
		return syscall.ENOSPC
	}
	var millis int
	if read, _ := fmt.Sscanf(string(text), "slow %d", &millis); read == 1 {
		time.Sleep(time.Duration(millis) * time.Millisecond)
	}
	return nil
}
