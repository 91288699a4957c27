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

// SetSerialTime changes how long the requests of a serial call are executed, and returns the instance's model.
func SetSerialTime(inst backends.Instance, d time.Duration) backends.SerialModel {
	m := inst.(*instance).m //nolint:forcetypeassert // of this package
	m.serialTime = d
	return m
}

// Interpreter returns the interpreter that the backend finds.
func Interpreter(tb testing.TB) string {
	tb.Helper()
	return findInterpreter(tb.Context())
}

// MallocEnv returns the variables of the C allocator that workers have.
func MallocEnv() []string { return mallocEnv[:] }
