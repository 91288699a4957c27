package recovery_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
)

var errBefore = errors.New("before")

// operation defers Error and returns the result of f.
func operation(log *slog.Logger, f func() error) (err error) {
	defer recovery.Error(&err, log, "loading model 'm'", slog.String("model", "m"))
	return f()
}

// TestError checks that a panic becomes an error with a log entry, and that other results pass unchanged.
func TestError(t *testing.T) {
	t.Parallel()
	if err := operation(nil, func() error { return nil }); err != nil {
		t.Errorf("no panic gave %v", err)
	}
	if err := operation(nil, func() error { return errBefore }); !errors.Is(err, errBefore) {
		t.Errorf("an error became %v", err)
	}
	var out bytes.Buffer
	err := operation(slog.New(slog.NewTextHandler(&out, nil)), func() error { return boom(nil) })
	if err == nil || status.CodeOf(err) != status.Internal || !strings.HasPrefix(err.Error(), "loading model 'm' failed: panic: ") {
		t.Errorf("a panic gave %v", err)
	}
	for _, want := range []string{"level=ERROR", "loading model 'm' panicked", "model=m", "recovery_test.boom"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &out)
		}
	}
}

// boom reads through a nil pointer.
//
//go:noinline
func boom(p *[1]error) error { return p[0] }

// TestGroup checks that Wait panics with the panic of a goroutine and its stack.
func TestGroup(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	done := make([]bool, 4)
	err := operation(slog.New(slog.NewTextHandler(&out, nil)), func() error {
		var g recovery.Group
		for i := range done {
			g.Go(func() {
				done[i] = true
				if i == 2 {
					_ = boom(nil)
				}
			})
		}
		g.Wait()
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("a panic of a goroutine gave %v", err)
	}
	if !strings.Contains(out.String(), "recovery_test.boom") {
		t.Errorf("the log lacks the stack of the goroutine:\n%s", &out)
	}
	for i, ok := range done {
		if !ok {
			t.Errorf("function %d did not run", i)
		}
	}
	var none recovery.Group
	none.Go(func() {})
	none.Wait()
}

// TestFault checks that a read behind the end of a mapped file is reported, and that errors and other panics pass.
func TestFault(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	want := errors.New("read")
	sum := byte(0)
	read := func() error {
		sum += data[1<<15]
		return want
	}
	if fault, err := recovery.Fault(read); fault || !errors.Is(err, want) {
		t.Errorf("a whole file: %t, %v", fault, err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if fault, err := recovery.Fault(read); !fault || err != nil {
		t.Errorf("a file that became shorter: %t, %v", fault, err)
	}
	defer func() {
		if p := recover(); p != "another" {
			t.Errorf("panic %v, want another", p)
		}
	}()
	_, _ = recovery.Fault(func() error { panic("another") })
}
