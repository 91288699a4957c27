package python

import (
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
)

// SetLoadTime changes how long commands of a load may take, while no model is being loaded.
func SetLoadTime(b backends.Backend, d time.Duration) {
	b.(*backend).set.load = d //nolint:forcetypeassert // of this package
}

// Interpreter returns the interpreter that the backend finds.
func Interpreter(tb testing.TB) string {
	tb.Helper()
	return findInterpreter(tb.Context())
}

// MallocEnv returns the variables of the C allocator that workers have.
func MallocEnv() []string { return mallocEnv[:] }
