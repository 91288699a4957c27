package async

import (
	"os"
	"syscall"
)

// lock waits until no other process has locked a file. Closing the file unlocks it.
func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
