package diskfull_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/diskfull/disktest"
)

func TestMain(m *testing.M) { os.Exit(disktest.Main(m)) } //nolint:forbidigo // a main function

// TestExplain checks the text, the code and the time to retry of the error of each kind.
func TestExplain(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "a", "b")
	for errno, want := range map[syscall.Errno]string{
		syscall.ENOSPC: "' is full (", syscall.EDQUOT: "the quota of the server's user", syscall.EFBIG: "raise the limit (ulimit -f",
	} {
		err := diskfull.Explain(&os.PathError{Op: "write", Path: missing, Err: errno}, missing, "use another disk")
		text := err.Error()
		if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) != diskfull.RetryAfter || !errors.Is(err, errno) || !diskfull.Is(err) {
			t.Errorf("%v: code %v, retry after %v", err, status.CodeOf(err), status.RetryAfter(err))
		}
		if again := diskfull.Explain(errors.Join(io.EOF, err), "elsewhere", "twice"); strings.Contains(again.Error(), "twice") {
			t.Errorf("explained twice: %v", again)
		}
		for _, want := range []string{want, missing, ", or use another disk, and try again", errno.Error()} {
			if !strings.Contains(text, want) {
				t.Errorf("%q, want %q", text, want)
			}
		}
	}
	other := &status.Error{Code: status.Unavailable, Msg: "busy", RetryAfter: diskfull.RetryAfter, Err: syscall.ENOSPC}
	if err := diskfull.Explain(other, missing, ""); !strings.Contains(err.Error(), "' is full") {
		t.Errorf("an error with the same time to retry is not explained: %v", err)
	}
	for _, err := range []error{nil, io.EOF, syscall.EACCES} {
		if got := diskfull.Explain(err, missing, ""); !errors.Is(got, err) || got != err { //nolint:errorlint // the same error
			t.Errorf("%v became %v", err, got)
		}
	}
}

// TestSmallDisk fills a small disk.
func TestSmallDisk(t *testing.T) {
	t.Parallel()
	disktest.Run(t, func(dir string) {
		name := filepath.Join(dir, "file")
		err := diskfull.Explain(os.WriteFile(name, make([]byte, 2*disktest.Size), 0o600), name, "")
		if err == nil || !strings.Contains(err.Error(), "the disk of '"+name+"' is full (0 of 131072 bytes are free): free space there, and try again") {
			t.Errorf("got %v", err)
		}
	})
}

// TestReserve checks that a small disk keeps a twentieth free.
func TestReserve(t *testing.T) {
	t.Parallel()
	disktest.Run(t, func(dir string) {
		const reserve = disktest.Size / 20
		for n, full := range map[int64]bool{0: false, disktest.Size - reserve: false, disktest.Size - reserve + 1: true, disktest.Size: true, 1 << 40: true} {
			err := diskfull.Reserve(dir, n, "use another disk")
			if (err != nil) != full {
				t.Errorf("%d bytes: %v", n, err)
			}
			if full && (status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) != diskfull.RetryAfter || !strings.Contains(err.Error(), "6553 bytes stay free: free space there, or use another disk, and try again")) {
				t.Errorf("%d bytes: %v, retry after %v", n, err, status.RetryAfter(err))
			}
		}
	})
	if err := diskfull.Reserve(filepath.Join(t.TempDir(), "missing"), 1<<60, ""); err != nil {
		t.Errorf("of a missing folder: %v", err)
	}
}
