package preparedtest_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// outcome records how a test ended.
type outcome struct {
	testing.TB
	skipped, failed bool
}

func (*outcome) Helper()                 {}
func (o *outcome) Skip(...any)           { o.skipped = true; panic(o) }
func (o *outcome) Skipf(string, ...any)  { o.skipped = true; panic(o) }
func (o *outcome) Fatalf(string, ...any) { o.failed = true; panic(o) }

// ended runs f as a test and returns its outcome.
func ended(f func(tb testing.TB)) *outcome {
	o := &outcome{}
	func() {
		defer func() { _ = recover() }()
		f(o)
	}()
	return o
}

// TestPath checks that only a prerequisite without a variable is skipped.
func TestPath(t *testing.T) {
	dir := t.TempDir()
	found := func() (string, error) { return "found", nil }
	missing := func() (string, error) { return "", errors.New("none") }
	if got := preparedtest.Path(t, "a-need", found); got != "found" {
		t.Errorf("without the variable: %s", got)
	}
	if o := ended(func(tb testing.TB) { tb.Helper(); preparedtest.Path(tb, "a-need", missing) }); !o.skipped || o.failed {
		t.Errorf("without anything: %+v, want it skipped", o)
	}
	if o := ended(func(tb testing.TB) { tb.Helper(); preparedtest.Skip(tb, "a-need", "why") }); !o.skipped || o.failed {
		t.Errorf("of no use: %+v, want it skipped", o)
	}
	t.Setenv("TUTTI_TEST_A_NEED", dir)
	if got := preparedtest.Path(t, "a-need", missing); got != dir {
		t.Errorf("with the variable: %s", got)
	}
	if o := ended(func(tb testing.TB) { tb.Helper(); preparedtest.Skip(tb, "a-need", "why") }); o.skipped || !o.failed {
		t.Errorf("prepared, of no use: %+v, want it failed", o)
	}
	t.Setenv("TUTTI_TEST_A_NEED", filepath.Join(dir, "none"))
	if o := ended(func(tb testing.TB) { tb.Helper(); preparedtest.Path(tb, "a-need", found) }); o.skipped || !o.failed {
		t.Errorf("prepared, and gone: %+v, want it failed", o)
	}
}
