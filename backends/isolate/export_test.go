package isolate

import "github.com/tutti-server/tutti/backends"

// Executing reports whether the process of an instance executes a batch.
func Executing(x backends.Instance) bool {
	p := x.(*instance).now.Load() //nolint:forcetypeassert // of a test
	return p != nil && p.Alive() && p.control.counter(atStarted).Load() != p.control.counter(atEnded).Load()
}
