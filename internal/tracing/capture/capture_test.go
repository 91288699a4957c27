package capture_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// bytesOf returns a BYTES tensor with these elements.
func bytesOf(tb testing.TB, a tensor.Allocator, list ...string) tensor.Tensor {
	tb.Helper()
	var b []byte
	for _, s := range list {
		b = tensor.AppendBytes(b, s)
	}
	return raw(tb, a, tensor.Bytes, tensor.Of(int64(len(list))), b)
}

func raw(tb testing.TB, a tensor.Allocator, d tensor.DType, s tensor.Shape, b []byte) tensor.Tensor {
	tb.Helper()
	t, err := tensor.NewBytes(a, s, len(b))
	if err != nil {
		tb.Fatal(err)
	}
	t.DType = d
	copy(t.Bytes(), b)
	return t
}

// shoot shows a film one tensor, which it releases.
func shoot(f tracing.Snapshot, e tracing.TensorEdge, t tensor.Tensor) bool {
	defer t.Release()
	n, ok := f.Add(&e, &t)
	if ok {
		f.Put(n, t.Retain(), nil)
	}
	return ok
}

func edge(step, name string) tracing.TensorEdge {
	return tracing.TensorEdge{Step: step, Tensor: name, Names: []string{name}, Models: []string{step}}
}

func start(t *testing.T, s *capture.Store, rule inspect.CaptureRule) *inspect.CaptureView {
	t.Helper()
	v, err := s.StartCapture(rule)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func id(n int) tracing.TraceID { return tracing.TraceID{0xab, byte(n >> 8), byte(n)} }

func TestRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule inspect.CaptureRule
		want string // of the requests 0 to 9, those that are kept
	}{
		{inspect.CaptureRule{}, "0123456789"},
		{inspect.CaptureRule{Model: "m*"}, "0123456789"},
		{inspect.CaptureRule{Model: "n"}, ""},
		{inspect.CaptureRule{Request: "r-3"}, "3"},
		{inspect.CaptureRule{Request: "?-[3]"}, ""},
		{inspect.CaptureRule{Request: "*-*", Every: 4}, "048"},
		{inspect.CaptureRule{Trace: "ab0007*"}, "7"},
		{inspect.CaptureRule{Count: 3}, "012"},
		{inspect.CaptureRule{Every: 3, Count: 2}, "03"},
		{inspect.CaptureRule{Seconds: 5}, "01234"},
	} {
		clock := int64(0)
		s := capture.New(capture.Settings{Bytes: 1 << 20, RequestBytes: 1 << 20, Now: func() int64 { return clock }})
		if s.Active() {
			t.Error("it is on before anybody asked")
		}
		v, got := start(t, s, c.rule), []byte{}
		for i := range 10 {
			clock = int64(i) * 1_000_000_000
			if f := s.Select("model", fmt.Sprint("r-", i), id(i)); f != nil {
				got = append(got, byte('0'+i))
				f.Finish(&tracing.Record{ID: id(i)})
			}
		}
		clock += 1_000_000_000_000
		now, err := s.FindCapture(v.ID)
		if err != nil || string(got) != c.want || now.Active || int(now.Taken) != len(c.want) || now.Pending != 0 || len(now.Snapshots) != len(c.want) || s.Active() {
			t.Errorf("%+v: %q, want %q; %+v, %v", c.rule, got, c.want, now, err)
		}
	}
}

func TestBadRules(t *testing.T) {
	t.Parallel()
	s := capture.New(capture.Settings{Bytes: 1 << 20, RequestBytes: 1 << 10})
	for _, rule := range []inspect.CaptureRule{
		{Every: -1}, {Count: -1}, {Seconds: 1 << 40}, {RequestBytes: 1 << 11}, {Model: strings.Repeat("*", 1000)}, {RedactModels: make([]string, 100)},
	} {
		if _, err := s.StartCapture(rule); err == nil {
			t.Errorf("%+v is taken", rule)
		}
	}
	for range 16 {
		start(t, s, inspect.CaptureRule{})
	}
	if _, err := s.StartCapture(inspect.CaptureRule{}); err == nil {
		t.Error("there is no bound of captures")
	}
	for i := range uint64(16) {
		if err := s.StopCapture(i + 1); err != nil {
			t.Error(err)
		}
	}
	if s.Active() || s.StopCapture(99) == nil {
		t.Error("stopped captures go on")
	}
	for _, trace := range []string{"", "x", id(1).String(), id(1).String() + "-0"} {
		if _, err := s.Tensors(trace, true); err == nil {
			t.Errorf("there are tensors of %q", trace)
		}
	}
}

// TestBound checks that concurrent requests never exceed the memory of the store and that the newest are retained.
func TestBound(t *testing.T) {
	t.Parallel()
	alloc := tensortest.NewChecked(t, nil)
	const bound = 64 << 10
	s := capture.New(capture.Settings{Bytes: bound, RequestBytes: 8 << 10})
	start(t, s, inspect.CaptureRule{})
	var wg sync.WaitGroup
	var large atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				n := g*100 + i
				f := s.Select("m", "", id(n))
				if f == nil {
					continue
				}
				for k := range 4 {
					shoot(f, edge("step", strconv.Itoa(k)), raw(t, alloc, tensor.Uint8, tensor.Of(3000), make([]byte, 3000)))
				}
				f.Finish(&tracing.Record{ID: id(n), Model: "m"})
				if list := s.Captures(); list.Used > bound {
					large.Add(1)
				}
			}
		})
	}
	wg.Wait()
	list := s.Captures()
	v := &list.Captures[0]
	if large.Load() > 0 || list.Used > bound || list.Used == 0 || v.Taken+v.Missed != 800 || v.Dropped != v.Taken-uint64(len(v.Snapshots)) || len(v.Snapshots) < 3 {
		t.Errorf("%d bytes, %d times too many; %d taken, %d dropped, %d missed, %d there", list.Used, large.Load(), v.Taken, v.Dropped, v.Missed, len(v.Snapshots))
	}
	last := v.Snapshots[len(v.Snapshots)-1]
	tensors, err := s.Tensors(last.Trace+"-"+last.Span, true)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, x := range tensors.List {
		if x.HasContent {
			kept++
		} else if !strings.Contains(x.Reason, "over the limit of") {
			t.Errorf("%+v", x)
		}
	}
	if kept > 2 || len(tensors.List) != 4 {
		t.Errorf("of 4 tensors of 3000 bytes %d are kept in 8192", kept)
	}
	f := s.Select("m", "", id(1))
	for range 5000 {
		shoot(f, edge("step", "x"), bytesOf(t, alloc, ""))
	}
	if used := s.Captures().Used; used > bound {
		t.Errorf("%d bytes for tensors without content", used)
	}
	f.Finish(&tracing.Record{ID: id(1)})
}

// TestRedaction checks that no output of the store has redacted content.
func TestRedaction(t *testing.T) {
	t.Parallel()
	alloc := tensortest.NewChecked(t, nil)
	s := capture.New(capture.Settings{Bytes: 1 << 20, RequestBytes: 1 << 20, RedactTensors: []string{"pass*"}, RedactModels: []string{"vault"}})
	start(t, s, inspect.CaptureRule{RedactTensors: []string{"pin"}})
	const secret = "the-secret-9731"
	f := s.Select("m", "", id(1))
	hidden := []tracing.TensorEdge{
		edge("request", "password"),
		edge("vault", "OUT"),
		{Step: "a", Tensor: "OUT", Names: []string{"t1", "inner/x", "password_in"}, Models: []string{"a"}},
		{Step: "b", Tensor: "OUT", Names: []string{"t2"}, Models: []string{"outer", "vault"}},
		edge("request", "pin"),
	}
	for _, e := range hidden {
		if shoot(f, e, bytesOf(t, alloc, secret)) {
			t.Errorf("%+v is kept", e)
		}
	}
	if !shoot(f, edge("request", "open"), bytesOf(t, alloc, "what all may see")) {
		t.Error("nothing is kept")
	}
	f.Finish(&tracing.Record{ID: id(1)})
	out := everything(t, s, id(1).String())
	if bytes.Contains(out, []byte(secret)) || !bytes.Contains(out, []byte("what all may see")) || !bytes.Contains(out, []byte("redacted")) {
		t.Errorf("%q", out)
	}
	for n := range hidden {
		if _, err := s.NPY(id(1).String(), n); err == nil {
			t.Errorf("tensor %d has a file", n)
		}
	}
	if list, err := s.Tensors(id(1).String(), true); err != nil || list.List[0].Bytes != 0 || list.List[0].Type != "BYTES" || len(list.List[0].Shape) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// everything returns all output of a store for a request.
func everything(t *testing.T, s *capture.Store, trace string) []byte {
	t.Helper()
	var out bytes.Buffer
	tensors, err := s.Tensors(trace, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{tensors, s.Captures()} {
		if err := json.NewEncoder(&out).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	write, err := s.NPZ(trace)
	if err == nil {
		err = write(&out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// late is an event that is over when a test says so.
type late struct {
	over chan struct{}
	err  error
}

func (l *late) Done() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}
func (l *late) Wait() error              { <-l.over; return l.err }
func (*late) WaitOn(tensor.Stream) error { return nil }

// TestLate checks contents that are still being copied to the host, one of which fails.
func TestLate(t *testing.T) {
	t.Parallel()
	alloc := tensortest.NewChecked(t, nil)
	s := capture.New(capture.Settings{Bytes: 1 << 20, RequestBytes: 1 << 20})
	start(t, s, inspect.CaptureRule{})
	f := s.Select("m", "", id(1))
	for _, err := range []error{nil, errors.New("the device is gone")} {
		x, e := bytesOf(t, alloc, "before"), &late{over: make(chan struct{}), err: err}
		x.Buf.SetReady(e)
		shoot(f, edge("step", "x"), x.Retain())
		copy(x.Bytes()[4:], "after ")
		close(e.over)
		x.Release()
	}
	f.Finish(&tracing.Record{ID: id(1)})
	list, err := s.Tensors(id(1).String(), true)
	if err != nil || list.List[0].Preview.Values[0] != "after " || list.List[1].HasContent || !strings.Contains(list.List[1].Reason, "the device is gone") {
		t.Errorf("%+v, %v", list, err)
	}
}
