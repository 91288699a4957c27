// Package diskfull explains errors of full disks: what is full, where, what to do, and when to try again.
package diskfull

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
)

// RetryAfter is the time after which a request that failed because of a full disk may be sent again.
const RetryAfter = 30 * time.Second

// Is reports whether err says that a disk is full, a quota is used up or a file exceeds the limit of the process.
func Is(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// Explain returns err, unless it says that a disk is full, a quota is used up or a file exceeds the limit of the process. Then it returns an
// Unavailable error with the file system of path, its free space, and what to do: remedy says what else than to free space. For example,
// "set TMPDIR to a folder of another disk". An error that Explain returned, or that wraps one, is returned as it is.
func Explain(err error, path, remedy string) error {
	if _, done := errors.AsType[explained](err); done {
		return err
	}
	var what, do string
	switch {
	case errors.Is(err, syscall.ENOSPC):
		what, do = "the disk of '"+path+"' is full"+left(path), "free space there"
	case errors.Is(err, syscall.EDQUOT):
		what, do = "the quota of the server's user at the disk of '"+path+"' is used up", "free space there or raise the quota"
	case errors.Is(err, syscall.EFBIG):
		what, do = "a file in '"+path+"' would exceed the limit on the size of the server's files", "raise the limit (ulimit -f, LimitFSIZE of systemd)"
	default:
		return err
	}
	if remedy != "" {
		do += ", or " + remedy
	}
	return &status.Error{
		Code: status.Unavailable, Reason: status.DiskFull, Err: explained{err}, RetryAfter: RetryAfter,
		Msg: fmt.Sprintf("%s: %s, and try again (%v)", what, do, err),
	}
}

// low is the free space below which Low reports a disk as full. A database may need some pages for one change.
const low = 256 << 10

// Low returns what Explain returns of a full disk, if the file system of path has less than 256 KiB free; else, and when that is not known, nil.
// It is for folders that other programs write.
func Low(path, remedy string) error {
	var s unix.Statfs_t
	known := unix.Statfs(path, &s) == nil
	if known && s.Bavail*uint64(s.Bsize) < low { //nolint:gosec // a size of blocks is positive
		return Explain(syscall.ENOSPC, path, remedy)
	}
	return nil
}

// mostReserve bounds what Reserve keeps free.
const mostReserve = 1 << 30

// Reserve returns what Explain returns of a full disk, if n more bytes in the file system of path leave less than a twentieth of it free, or less
// than 1 GiB of a large one; else, and when that is not known, nil. It is for what clients have a server store: they cannot fill the disk, which
// other programs and the server itself need.
func Reserve(path string, n int64, remedy string) error {
	var s unix.Statfs_t
	known := unix.Statfs(path, &s) == nil
	reserve := min(int64(s.Blocks)*s.Bsize/20, mostReserve)             //nolint:gosec // a size of blocks is positive
	if free := int64(s.Bavail) * s.Bsize; !known || free-n >= reserve { //nolint:gosec // likewise
		return nil
	}
	do := "free space there"
	if remedy != "" {
		do += ", or " + remedy
	}
	return &status.Error{
		Code: status.Unavailable, Reason: status.DiskFull, Err: explained{syscall.ENOSPC}, RetryAfter: RetryAfter,
		Msg: fmt.Sprintf("the disk of '%s' is full%s for %d more bytes, since %d bytes stay free: %s, and try again", path, left(path), n, reserve, do),
	}
}

// explained marks the cause of an error that Explain returned.
type explained struct{ error }

// Unwrap returns the cause.
func (e explained) Unwrap() error { return e.error }

// left returns the free space and the free files of the file system of path, or of the closest folder above that exists.
func left(path string) string {
	for {
		if _, err := os.Lstat(path); err == nil || filepath.Dir(path) == path {
			break
		}
		path = filepath.Dir(path)
	}
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return ""
	}
	text := fmt.Sprintf(" (%d of %d bytes are free", s.Bavail*uint64(s.Bsize), s.Blocks*uint64(s.Bsize)) //nolint:gosec // a size of blocks is positive
	if s.Files > 0 && s.Ffree == 0 {
		text += "; it can have no more files"
	}
	return text + ")"
}
