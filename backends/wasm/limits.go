package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// slice is the number of instructions between two checks of the limits: about a millisecond.
const slice = 1 << 20

// longestSleep is how long a module sleeps between two checks.
const longestSleep = 10 * time.Millisecond

// execution is a call of a module. It ends early when its requests are cancelled, or a limit is reached.
type execution struct {
	ctx      context.Context //nolint:containedctx // of the current call
	reqs     []backends.Request
	deadline int64 // by telemetry.Now; 0 for none
	bounded  bool  // by fuel
	fuel     int64 // what is left
	limits   *limits
}

// begin begins a call with a limit of fuel, or 0 for none.
func (e *execution) begin(ctx context.Context, reqs []backends.Request, fuel int64) {
	e.ctx, e.reqs, e.deadline, e.bounded, e.fuel = ctx, reqs, 0, fuel > 0, fuel
	if e.limits.time > 0 {
		e.deadline = telemetry.Now() + int64(e.limits.time)
	}
}

// end ends a call.
func (e *execution) end() { e.ctx, e.reqs = nil, nil }

// grant takes the next fuel from the limit. It returns 0 when none is left.
func (e *execution) grant() int64 {
	if !e.bounded {
		return slice
	}
	n := min(slice, e.fuel)
	e.fuel -= n
	return n
}

// check returns the reason why the call must end, or nil.
func (e *execution) check() error {
	switch {
	case e.ctx.Err() != nil || e.gone():
		return status.ErrCancelled
	case e.deadline != 0 && telemetry.Now() > e.deadline:
		return status.Errorf(status.Internal, "the module ran for more than %s, expected at most that (parameter %s)", e.limits.time, keyTime)
	}
	return nil
}

// gone reports whether the clients of all requests have cancelled them.
func (e *execution) gone() bool {
	for i := range e.reqs {
		if e.reqs[i].Ctx == nil || e.reqs[i].Ctx.Err() == nil {
			return false
		}
	}
	return len(e.reqs) > 0
}

// stop is the panic with which a host function ends a call. wazero returns it as the error of the call.
type stop struct{ why error }

// Error returns the reason.
func (s *stop) Error() string { return s.why.Error() }

// callKey is the key of the instance in the context of its calls.
type callKey struct{}

// refuel is the function that metered modules call when their fuel is used up. It ends calls that must end.
func refuel(ctx context.Context, _ api.Module, stack []uint64) {
	x, ok := ctx.Value(callKey{}).(*instance)
	if !ok {
		panic("wasm: a call without its instance")
	}
	e := &x.execution
	if err := e.check(); err != nil {
		panic(&stop{err})
	}
	n := e.grant()
	if n == 0 {
		panic(&stop{status.Errorf(status.Internal, "the module executed more than %d instructions, expected at most that (parameter %s)", e.limits.fuel, keyFuel)})
	}
	stack[0] = api.EncodeI64(n)
}

// sleep is the sleep of WASI. It ends when the call must end.
func (e *execution) sleep(ns int64) {
	if ns <= 0 {
		return
	}
	for end := telemetry.Now() + ns; ; {
		if err := e.check(); err != nil {
			panic(&stop{err})
		}
		left := time.Duration(end - telemetry.Now())
		if left <= 0 {
			return
		}
		<-time.After(min(left, longestSleep))
	}
}

// failed returns the error of a call that wazero ended with err, and logs its stack trace.
func (x *instance) failed(err error) error {
	var s *stop
	var exit *sys.ExitError
	if errors.As(err, &s) && status.CodeOf(s.why) == status.Cancelled {
		return status.ErrCancelled
	}
	full, hint := err.Error(), x.memoryHint()
	switch {
	case s != nil:
		err = s.why
	case errors.As(err, &exit):
		err = status.Errorf(status.Internal, "the module exited with code %d%s", exit.ExitCode(), hint)
	default:
		first, _, _ := strings.Cut(full, "\n")
		err = status.Errorf(status.Internal, "the module trapped: %s%s", strings.TrimPrefix(first, "wasm error: "), hint)
	}
	x.m.settings.Log.Warn("a WebAssembly module failed", slog.String("model", x.m.Sig.Model), slog.String("error", err.Error()), slog.String("trace", cut(full, maxTrace)))
	return x.errorf(err)
}

// maxTrace is the longest stack trace that is logged, in bytes.
const maxTrace = 4 << 10

// cut returns at most n bytes of a text.
func cut(text string, n int) string {
	if len(text) > n {
		return strings.ToValidUTF8(text[:n], "") + "..."
	}
	return text
}

// memoryHint returns a text for errors of a module that uses most of the memory that it may have: it cannot say so itself.
func (x *instance) memoryHint() string {
	if x.mod == nil || x.mod.Memory() == nil {
		return ""
	}
	if used := x.mod.Memory().Size() / pageSize; used >= x.m.limits.pages/8*7 {
		return fmt.Sprintf("; it uses %d KiB of memory, the limit is %s", used*(pageSize/1024), x.m.limits.memory())
	}
	return ""
}

// errorf names the model in an error.
func (x *instance) errorf(err error) error { return status.Prefixf(err, "model '%s': ", x.m.Sig.Model) }
