// Package recovery turns panics into errors. A defect costs the request or the model that met it, never the process.
//
// A goroutine that processes the input of a client or a folder must defer Error, or run in a Group. Error must be
// deferred directly: a function that calls it cannot recover.
//
//	func (r *Repository) open(dir string) (m *model, err error) {
//		defer recovery.Error(&err, r.log, "loading model 'm'", slog.String("model", "m"))
//		...
//	}
package recovery

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
)

// Error must be deferred. It turns a panic into *err, whose text names the operation. log, which may be nil, receives the
// panic with its stack at level ERROR. Without a panic *err does not change.
func Error(err *error, log *slog.Logger, doing string, attrs ...slog.Attr) {
	if p := recover(); p != nil {
		*err = Report(p, log, doing, attrs...)
	}
}

// Report logs a recovered panic and returns the error that replaces it. It is for hot callers that recover
// themselves, because evaluating the arguments of Error would cost too much when nothing panics.
func Report(p any, logger *slog.Logger, doing string, attrs ...slog.Attr) error {
	stack := debug.Stack()
	if r, ok := p.(*raised); ok {
		p, stack = r.value, r.stack
	}
	if logger != nil {
		args := []any{slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(stack))}
		for _, a := range attrs {
			args = append(args, a)
		}
		logger.Error(doing+" panicked", args...) //nolint:sloglint // the message names what panicked
	}
	return status.Errorf(status.Internal, "%s failed: panic: %v", doing, p)
}

// Fault calls use, which reads a file that is mapped. It reports whether use read a page behind the end of the file, which became shorter:
// without Fault the process would end. Other panics pass.
func Fault(use func() error) (fault bool, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if _, fault = p.(interface{ Addr() uintptr }); !fault && p != nil {
			panic(p)
		}
	}()
	return false, use()
}

// raised is a panic passed from one goroutine to another.
type raised struct {
	value any
	stack []byte
}

// String returns the panic's value.
func (r *raised) String() string { return fmt.Sprint(r.value) }

// Group runs functions in goroutines. Wait panics with the first panic among them. The zero Group is ready to use.
type Group struct {
	wg    sync.WaitGroup
	first atomic.Pointer[raised]
}

// Go runs f in a new goroutine.
func (g *Group) Go(f func()) {
	g.wg.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				g.first.CompareAndSwap(nil, &raised{p, debug.Stack()})
			}
		}()
		f()
	})
}

// Wait waits for all functions. It panics when one of them panicked.
func (g *Group) Wait() {
	g.wg.Wait()
	if r := g.first.Load(); r != nil {
		panic(r)
	}
}
