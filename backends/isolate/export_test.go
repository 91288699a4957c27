package isolate

import "github.com/tutti-server/tutti/backends"

// Executing reports whether the process of an instance executes a batch.
func Executing(x backends.Instance) bool {
	p, alive := x.(*instance).Now() //nolint:forcetypeassert // of a test
	return alive && p.control.counter(atStarted).Load() != p.control.counter(atEnded).Load()
}
