package wasm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	w "github.com/tutti-server/tutti/backends/wasm/wasmtest"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// good is the response with the output of onePort.
func good(at uint32) []byte {
	return w.Response(at, []w.Tensor{{Name: "OUT", Type: 8, Dims: []int64{1, 2}, Data: []byte{1, 0, 0, 0, 2, 0, 0, 0}}}, nil)
}

// data places the good response where tutti_execute returns it.
func data() []w.Data { return []w.Data{{At: w.ResponseAt, Bytes: good(w.ResponseAt)}} }

// forever is a loop without an end.
var forever = w.Join([]byte{w.Loop, w.Empty}, w.Op(w.Br, 0), []byte{w.End, w.Unreachable})

// second runs code in the second call of a module instance, and in later ones. The module needs a global.
func second(code []byte) []byte {
	count := w.Join(w.Op(w.GlobalGet, 0), w.I32(1), []byte{w.I32Add}, w.Op(w.GlobalSet, 0))
	return w.Join(count, w.Op(w.GlobalGet, 0), w.I32(2), []byte{w.I32Eq, w.If, w.Empty}, code, []byte{w.End}, w.I32(w.ResponseAt))
}

// grow allocates memory without an end: it traps when it gets no more.
var grow = w.Join([]byte{w.Loop, w.Empty}, w.I32(16), w.Op(w.MemoryGrow, 0), w.I32(-1), []byte{w.I32Eq, w.If, w.Empty, w.Unreachable, w.End}, w.Op(w.Br, 0), []byte{w.End})

// TestModuleFails checks that an execution that fails costs its own batch only: the second call of each module fails, the third is of
// a new module instance.
func TestModuleFails(t *testing.T) {
	t.Parallel()
	wasi := []w.Import{{Module: "wasi_snapshot_preview1", Name: "proc_exit", Params: 1}}
	store := func(at, value uint32) []byte {
		return w.Join(w.I32(int32(at)), w.I32(int32(value)), w.Op(w.I32Store, 2, 0))
	}
	tests := map[string]struct {
		code    []byte
		imports []w.Import
		params  string
		want    string
	}{
		"trap":             {code: []byte{w.Unreachable}, want: "model 'm': the module trapped: unreachable"},
		"division":         {code: w.Join(w.I32(1), w.I32(0), []byte{w.I32DivS, w.Drop}), want: "the module trapped: integer divide by zero"},
		"outside":          {code: w.Join(w.I32(-4), w.Op(w.I32Load, 2, 0), []byte{w.Drop}), want: "the module trapped: out of bounds memory access"},
		"loop":             {code: forever, params: parameter("time_limit", "50ms"), want: "the module ran for more than 50ms, expected at most that (parameter time_limit)"},
		"fuel":             {code: forever, params: parameter("fuel_limit", "3000000"), want: "the module executed more than 3000000 instructions, expected at most that (parameter fuel_limit)"},
		"less fuel":        {code: forever, params: parameter("fuel_limit", "100"), want: "the module executed more than 100 instructions"},
		"recursion":        {code: w.Join(w.Op(w.Call, 4), []byte{w.Drop}), want: "the module trapped: stack overflow"},
		"memory":           {code: grow, params: parameter("memory_limit", "8MiB"), want: "the module trapped: unreachable; it uses 8192 KiB of memory, the limit is 8192 KiB (parameter memory_limit)"},
		"exit":             {code: w.Join(w.I32(3), w.Op(w.Call, 0)), imports: wasi, want: "the module exited with code 3"},
		"exit with 0":      {code: w.Join(w.I32(0), w.Op(w.Call, 0)), imports: wasi, want: "the module exited with code 0"},
		"a lie":            {code: store(w.ResponseAt, 1<<31), want: "the module returned outputs of 32 bytes at address 2147483648, expected it in its memory of 1048576 bytes"},
		"a bulk operation": {code: w.Join([]byte{w.Loop, w.Empty}, w.I32(0), w.I32(0), w.I32(1<<20), []byte{w.Misc, 11, 0}, w.Op(w.Br, 0), []byte{w.End}), params: parameter("fuel_limit", "100000000"), want: "the module executed more than 100000000 instructions"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := w.Module{Globals: 1, Execute: second(tt.code), Imports: tt.imports, Data: data()}
			if name == "recursion" { // the last function calls itself
				m.Imports = wasi
				m.Initialize = w.Join(w.I32(0), w.I32(0), w.Op(w.Call, 4), w.Op(w.LocalSet, 0), w.I32(0))
				m.Execute = second(w.Join(w.I32(0), w.I32(0), w.Op(w.Call, 4), []byte{w.Drop}))
				m.Without = []string{"tutti_initialize"}
			}
			x := instanceOf(t, settings(t, written(t, m.Bytes()), onePort+tt.params))
			for call := range 4 {
				got, err := once(t, t.Context(), x, numbers(7))
				switch {
				case call%2 == 1 && (err == nil || !strings.Contains(err.Error(), tt.want) || status.CodeOf(err) != status.Internal):
					t.Errorf("call %d: %v, want %s", call, err, tt.want)
				case call%2 == 0 && (err != nil || !slices.Equal(got, []int32{1, 2})):
					t.Errorf("call %d: %v, %v", call, got, err)
				}
			}
		})
	}
}

// TestLies checks what a module may not return.
func TestLies(t *testing.T) {
	t.Parallel()
	const at = w.ResponseAt
	out := func(change func(*w.Tensor)) []byte {
		o := w.Tensor{Name: "OUT", Type: 8, Dims: []int64{1, 2}, Data: make([]byte, 8)}
		change(&o)
		return w.Response(at, []w.Tensor{o}, nil)
	}
	patched := func(word int, value uint32) []byte {
		b := good(at)
		copy(b[4*word:], []byte{byte(value), byte(value >> 8), byte(value >> 16), byte(value >> 24)})
		return b
	}
	fail := func(list ...w.Failure) []byte { return w.Response(at, nil, list) }
	tests := map[string]struct {
		response []byte
		want     string
	}{
		"no outputs":       {w.Response(at, nil, nil), "the module returned 0 outputs, expected 1"},
		"outputs outside":  {patched(0, math.MaxUint32), "the module returned outputs of 32 bytes at address 4294967295, expected it in its memory of 1048576 bytes"},
		"too many outputs": {patched(1, math.MaxUint32), "the module returned outputs of 137438953440 bytes"},
		"failures outside": {patched(3, 1<<30), "the module returned failures of 17179869184 bytes"},
		"name outside":     {patched(4, 1<<20), "the module returned the name of an output of 3 bytes at address 1048576"},
		"long name":        {patched(5, 1<<20), "the module returned the name of an output of 1048576 bytes"},
		"many dimensions":  {patched(7, 17), "the module returned output 'OUT' of 17 dimensions, expected at most 16"},
		"more dimensions":  {patched(7, math.MaxUint32), "the module returned output 'OUT' of 4294967295 dimensions, expected at most 16"},
		"dims outside":     {patched(8, math.MaxUint32-15), "the module returned the dimensions of output 'OUT' of 16 bytes at address 4294967280"},
		"data outside":     {patched(9, 1<<20-7), "the module returned the data of output 'OUT' of 8 bytes at address 1048569"},
		"long data":        {patched(10, math.MaxUint32), "the module returned the data of output 'OUT' of 4294967295 bytes"},
		"another name":     {out(func(o *w.Tensor) { o.Name = "\xffIN" }), "the module returned output '\uFFFDIN', expected one of the configuration"},
		"another type":     {out(func(o *w.Tensor) { o.Type = 11 }), "the module returned output 'OUT' of data type 11 and shape [1,2], expected 8 (INT32) and [-1,2] with 1 rows"},
		"no type":          {out(func(o *w.Tensor) { o.Type = 8 + 256 }), "data type 264 and shape [1,2]"},
		"more rows":        {out(func(o *w.Tensor) { o.Dims, o.Data = []int64{2, 2}, make([]byte, 16) }), "shape [2,2], expected 8 (INT32) and [-1,2] with 1 rows"},
		"other dims":       {out(func(o *w.Tensor) { o.Dims = []int64{1, 3} }), "shape [1,3]"},
		"negative dims":    {out(func(o *w.Tensor) { o.Dims = []int64{-1, -2} }), "shape [-1,-2]"},
		"too few bytes":    {out(func(o *w.Tensor) { o.Data = make([]byte, 7) }), "the module returned output 'OUT' of shape [1,2]: expected 2 elements of 4 bytes, found 7 bytes"},
		"too many bytes":   {out(func(o *w.Tensor) { o.Data = make([]byte, 12) }), "expected 2 elements of 4 bytes, found 12 bytes"},
		"row of another":   {fail(w.Failure{Row: 1, Text: "x"}), "the module returned a failure of row 1, expected a row from 0 to 0, or -1 for all"},
		"negative row":     {fail(w.Failure{Row: -2, Text: "x"}), "the module returned a failure of row -2"},
		"many failures":    {fail(w.Failure{}, w.Failure{}, w.Failure{}), "the module returned 3 failures for 1 rows, expected at most one for each"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := w.Module{Data: []w.Data{{At: at, Bytes: tt.response}}}
			x := instanceOf(t, settings(t, written(t, m.Bytes()), onePort))
			for range 2 {
				if _, err := once(t, t.Context(), x, numbers(7)); err == nil || !strings.Contains(err.Error(), tt.want) || status.CodeOf(err) != status.Internal {
					t.Errorf("%v, want %s", err, tt.want)
				}
			}
		})
	}
}

// TestTwice checks that an output cannot be returned twice in place of another.
func TestTwice(t *testing.T) {
	t.Parallel()
	o := w.Tensor{Name: "A", Type: 8, Dims: []int64{1}, Data: make([]byte, 4)}
	m := w.Module{Data: []w.Data{{At: w.ResponseAt, Bytes: w.Response(w.ResponseAt, []w.Tensor{o, o}, nil)}}}
	x := instanceOf(t, settings(t, written(t, m.Bytes()), `output { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "B" data_type: TYPE_INT32 dims: [ 1 ] }`))
	const want = "model 'm': the module returned output 'A' twice"
	if err := x.Execute(t.Context(), newBatch(t, 2, []int{1})); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestBuffer checks that a buffer must be in the memory.
func TestBuffer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		at   int32
		want string
	}{
		"none":    {0, "the module has no memory for 80 bytes of inputs"},
		"outside": {1<<20 - 16, "the module returned a buffer of 65536 bytes at address 1048560, expected it in its memory of 1048576 bytes"},
		"far":     {-16, "the module returned a buffer of 65536 bytes at address 4294967280"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := w.Module{Buffer: w.I32(tt.at), Data: data()}
			x := instanceOf(t, settings(t, written(t, m.Bytes()), onePort))
			if _, err := once(t, t.Context(), x, numbers()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// TestFailure checks the texts and the codes of a module's own errors.
func TestFailure(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failure w.Failure
		want    string
		code    status.Code
	}{
		"invalid":     {w.Failure{Row: -1, Code: 3, Text: "no such word"}, "model 'm': no such word", status.InvalidArg},
		"of the row":  {w.Failure{Row: 0, Code: 5, Text: "not here"}, "model 'm': not here", status.NotFound},
		"unavailable": {w.Failure{Row: -1, Code: 14, Text: "later"}, "model 'm': later", status.Unavailable},
		"no code":     {w.Failure{Row: -1}, "model 'm': the module failed without a text", status.Internal},
		"not text":    {w.Failure{Row: -1, Code: 99, Text: "a\xff%s"}, "model 'm': a\uFFFD%s", status.Internal},
		"long":        {w.Failure{Row: -1, Text: strings.Repeat("ż", 5000)}, "model 'm': " + strings.Repeat("ż", 2048) + "...", status.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := w.Module{Data: []w.Data{{At: w.ResponseAt, Bytes: w.Response(w.ResponseAt, nil, []w.Failure{tt.failure})}}}
			x := instanceOf(t, settings(t, written(t, m.Bytes()), onePort))
			if _, err := once(t, t.Context(), x, numbers(7)); err == nil || err.Error() != tt.want || status.CodeOf(err) != tt.code {
				t.Errorf("%s error %q, want %s %q", status.CodeOf(err), err, tt.code, tt.want)
			}
		})
	}
}

// started is a log that calls a function at the first line of a module.
type started struct {
	slog.Handler
	f func()
}

func (*started) Enabled(context.Context, slog.Level) bool { return true }

func (s *started) Handle(ctx context.Context, r slog.Record) error {
	s.f()
	return s.Handler.Handle(ctx, r)
}

// printed is the import that prints.
var printed = []w.Import{{Module: "wasi_snapshot_preview1", Name: "fd_write", Params: 4, Results: 1}}

// print prints n bytes at an address, with a vector at address 16.
func print(at, n uint32) []byte { //nolint:predeclared // in tests only
	return w.Join(w.I32(16), w.I32(int32(at)), w.Op(w.I32Store, 2, 0), w.I32(20), w.I32(int32(n)), w.Op(w.I32Store, 2, 0),
		w.I32(1), w.I32(16), w.I32(1), w.I32(24), w.Op(w.Call, 0), []byte{w.Drop})
}

// TestCancel checks that an execution without a limit ends when its requests are cancelled, while it runs.
func TestCancel(t *testing.T) {
	t.Parallel()
	m := w.Module{Globals: 1, Imports: printed, Data: append(data(), w.Data{At: 512, Bytes: []byte("begun\n")}), Execute: second(w.Join(print(512, 6), forever))}
	for name, of := range map[string]func(b *backends.Batch, ctx context.Context) context.Context{
		"batch": func(_ *backends.Batch, ctx context.Context) context.Context { return ctx },
		"requests": func(b *backends.Batch, ctx context.Context) context.Context {
			b.Requests[0].Ctx = ctx //nolint:fatcontext // of another request in each case
			return context.Background()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := settings(t, written(t, m.Bytes()), onePort+parameter("time_limit", "0"))
			s.Log = slog.New(&started{slog.DiscardHandler, cancel})
			x := instanceOf(t, s)
			if _, err := once(t, t.Context(), x, numbers(7)); err != nil {
				t.Fatal(err)
			}
			b := newBatch(t, 1, []int{1}, numbers(7))
			if err := x.Execute(of(b, ctx), b); status.CodeOf(err) != status.Cancelled {
				t.Errorf("Execute: %v", err)
			}
			if _, err := once(t, t.Context(), x, numbers(7)); err != nil {
				t.Errorf("after it: %v", err)
			}
		})
	}
}

// TestOutput checks that what a module prints is in the log, within limits.
func TestOutput(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3000) + "\n"
	m := w.Module{
		Imports: printed, Data: append(data(), w.Data{At: 2048, Bytes: []byte("one\ntwo \xff\nthree" + long)}),
		Execute: w.Join(print(2048, 15), print(2063, 3001), w.I32(0), w.Op(w.LocalSet, 2), []byte{w.Loop, w.Empty}, print(2063, 3001),
			w.Op(w.LocalGet, 2), w.I32(1), []byte{w.I32Add}, w.Op(w.LocalSet, 2), w.I32(100), w.Op(w.LocalGet, 2), []byte{w.I32Sub}, w.Op(w.BrIf, 0), []byte{w.End}, w.I32(w.ResponseAt)),
	}
	var text bytes.Buffer
	s := settings(t, written(t, m.Bytes()), onePort)
	s.Log = slog.New(slog.NewTextHandler(&text, nil))
	x := instanceOf(t, s)
	for range 2 {
		text.Reset()
		if _, err := once(t, t.Context(), x, numbers(7)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"text=one\n", "text=\"two \uFFFD\"\n", "text=threexxx", "bytes=286732 limit=16384"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the log has no %q: %.300s", want, text.String())
			}
		}
		if n := text.Len(); n > 20<<10 {
			t.Errorf("%d bytes in the log", n)
		}
	}
}

// TestSleep checks that a sleep ends with the time limit.
func TestSleep(t *testing.T) {
	t.Parallel()
	const subscription, events, hour = 4096, 8192, 3_600_000_000_000
	wait := make([]byte, 48) // of WASI: the relative time of a clock, in nanoseconds at byte 24
	binary.LittleEndian.PutUint64(wait[24:], hour)
	m := w.Module{
		Imports: []w.Import{{Module: "wasi_snapshot_preview1", Name: "poll_oneoff", Params: 4, Results: 1}},
		Data:    append(data(), w.Data{At: subscription, Bytes: wait}),
		Execute: w.Join(w.I32(subscription), w.I32(events), w.I32(1), w.I32(events+64), w.Op(w.Call, 0), []byte{w.Drop}, w.I32(w.ResponseAt)),
	}
	x := instanceOf(t, settings(t, written(t, m.Bytes()), onePort+parameter("time_limit", "50ms")))
	const want = "model 'm': the module ran for more than 50ms, expected at most that (parameter time_limit)"
	if _, err := once(t, t.Context(), x, numbers(7)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestLargeBatch checks the rows of several requests.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	m := w.Module{Data: []w.Data{{At: w.ResponseAt, Bytes: w.Response(w.ResponseAt, nil, []w.Failure{{Row: 2, Code: 3, Text: "c"}, {Row: 0, Code: 3, Text: "a"}, {Row: 1, Text: "b"}})}}}
	x := instanceOf(t, settings(t, written(t, m.Bytes()), onePort))
	b := newBatch(t, 1, []int{1, 2}, backendtest.Of(tensor.Int32, []int64{3, 1}, int32(1), 2, 3))
	if err := x.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if a, c := b.Requests[0].Err, b.Requests[1].Err; a == nil || c == nil || a.Error() != "model 'm': a" || c.Error() != "model 'm': c" {
		t.Errorf("%v and %v", a, c)
	}
}
