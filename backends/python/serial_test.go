package python_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// serial returns a batch of requests that are executed one after the other, each with an input of its own shape.
func (b *bench) serial(t *testing.T, rows ...[]float32) *backends.Batch {
	t.Helper()
	batch := &backends.Batch{Rows: len(rows), Serial: true, In: make([]tensor.Tensor, 1), Out: make([]tensor.Tensor, 1), Allocator: b.alloc}
	python.SetSerialTime(b.Instance, time.Hour)
	for i, row := range rows {
		in, err := tensor.New(b.alloc, tensor.FP32, tensor.Of(1, int64(len(row))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(in.Release)
		copy(tensor.Slice[float32](&in), row)
		q := backends.Request{Ctx: t.Context(), Rows: 1, In: []tensor.Tensor{in}}
		if i%2 == 1 {
			q.Meta = &infer.Meta{ID: "odd"} // an extra part
		}
		batch.Requests = append(batch.Requests, q)
	}
	return batch
}

// TestSerial checks requests of one call that are executed one after the other: each is a call of execute, and an error is its own.
func TestSerial(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for round := range 2 { // the second one with cached layouts and responses
		calls := float32(8 * round)
		batch := b.serial(t, []float32{0}, []float32{1, 5}, []float32{0}, []float32{7, 5, 5}, []float32{11}, []float32{8, 1, 2}, []float32{6}, []float32{0, 3})
		if err := b.Execute(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct {
			err    string
			n      int
			values []float32 // the first ones
		}{
			{n: 1, values: []float32{calls + 1}},
			{err: "Failed to process the request(s) for model 'kinds_0_0', message: ValueError: no such luck"},
			{n: 1, values: []float32{calls + 3}},
			{err: "refused"},
			{n: 500000, values: []float32{1, 1}},
			{n: 3, values: []float32{8, 1, 2}},
			{err: "InferenceResponse(s) size is:0"},
			{n: 1, values: []float32{calls + 8}},
		} {
			q := &batch.Requests[i]
			if want.err != "" {
				if q.Err == nil || !strings.Contains(q.Err.Error(), want.err) {
					t.Errorf("round %d, request %d: error %v, want %q", round, i, q.Err, want.err)
				}
				continue
			}
			if q.Err != nil || len(q.Out) != 1 || !q.Out[0].Present() {
				t.Fatalf("round %d, request %d: error %v, want %v", round, i, q.Err, want.values)
			}
			got := tensor.Slice[float32](&q.Out[0])
			if len(got) != want.n {
				t.Errorf("round %d, request %d: %d values, want %d", round, i, len(got), want.n)
			}
			for k, v := range want.values {
				if got[k] != v {
					t.Errorf("round %d, request %d: %v, want %v", round, i, got[:len(want.values)], want.values)
					break
				}
			}
			tensor.ReleaseAll(q.Out)
		}
	}
	if log := b.log.String(); !strings.Contains(log, "no such luck") {
		t.Errorf("the log does not report the exception:\n%s", log)
	}
}

// TestSerialRetained checks that an input which the model keeps stays as it is when the next call has other inputs.
func TestSerialRetained(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, rows := range [][][]float32{{{9, 1}, {0}}, {{8, 2}, {8, 3}}, {{9, 4}, {0}}} {
		batch := b.serial(t, rows...)
		if err := b.Execute(t.Context(), batch); err != nil || batch.Requests[0].Err != nil {
			t.Fatal(err, batch.Requests[0].Err)
		}
		if got := tensor.Slice[float32](&batch.Requests[0].Out[0]); i == 2 && (len(got) != 2 || got[0] != 9 || got[1] != 1) {
			t.Errorf("the retained input is %v, want [9 1]", got)
		}
		tensor.ReleaseAll(batch.Requests[0].Out)
		tensor.ReleaseAll(batch.Requests[1].Out)
	}
}

// TestSerialExit checks that the end of the worker fails the call as a whole, for the scheduler to execute its requests one by one.
func TestSerialExit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	batch := b.serial(t, []float32{0}, []float32{2}, []float32{0})
	if err := b.Execute(t.Context(), batch); status.RetryAfter(err) == 0 {
		t.Errorf("Execute = %v, want an error after which requests may be sent again", err)
	}
	if got := b.execute(t.Context(), t, []float32{0, 0})[0]; len(got.Values) != 1 {
		t.Errorf("%+v after the exit, want a response", got)
	}
}

// executed returns how many requests of a call were executed, and checks that all after them are marked.
func executed(t *testing.T, batch *backends.Batch) (n int) {
	t.Helper()
	for i := range batch.Requests {
		q := &batch.Requests[i]
		switch {
		case q.Unexecuted:
			if q.Err != nil || q.Out != nil {
				t.Errorf("request %d was not executed and has a response", i)
			}
		case n < i:
			t.Errorf("request %d was executed after one that was not", i)
		case q.Err != nil || len(q.Out) != 1 || !q.Out[0].Present():
			t.Errorf("request %d: error %v", i, q.Err)
		default:
			n++
		}
		tensor.ReleaseAll(q.Out)
	}
	return n
}

// TestSerialTime checks that requests are left unexecuted once the others have taken long enough.
func TestSerialTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	batch := b.serial(t, []float32{0}, []float32{0}, []float32{0})
	python.SetSerialTime(b.Instance, time.Microsecond)
	for _, want := range []int{1, 1} {
		if err := b.Execute(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if n := executed(t, batch); n != want {
			t.Errorf("%d requests were executed, want %d", n, want)
		}
		batch.Requests = batch.Requests[1:]
		for i := range batch.Requests {
			batch.Requests[i].Unexecuted, batch.Requests[i].Out = false, nil
		}
	}
	if got := b.execute(t.Context(), t, []float32{0, 0})[0]; len(got.Values) != 1 || got.Values[0] != 3 {
		t.Errorf("%+v, want the third call of execute", got)
	}
}

// TestSerialBytes checks that large inputs do not share a call.
func TestSerialBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	large := make([]float32, 12<<10)
	for _, c := range []struct {
		rows [][]float32
		want int
	}{
		{[][]float32{large, large, {0}}, 1}, {[][]float32{{0}, large, {0}, large}, 3}, {[][]float32{make([]float32, 20<<10), {0}}, 1},
	} {
		batch := b.serial(t, c.rows...)
		if err := b.Execute(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if n := executed(t, batch); n != c.want {
			t.Errorf("%d requests were executed, want %d", n, c.want)
		}
	}
}

// TestSerialLate checks that a model which responds after execute works on one request at a time.
func TestSerialLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	batch := b.serial(t, []float32{0}, []float32{14}, []float32{0})
	if err := b.Execute(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if n := executed(t, batch); n != 2 {
		t.Errorf("%d requests were executed, want 2", n)
	}
	if n := python.SetSerialTime(b.Instance, time.Hour).Serial(); n != 1 {
		t.Errorf("the next call may have %d requests, want 1", n)
	}
}

// TestSerialHang checks that a worker which hangs is ended when the client of one request of its call has gone, although another one waits, and
// that the call fails as a whole, for the scheduler to execute its requests one by one.
func TestSerialHang(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Config["stub-timeout-seconds"] = "2"
	b := benchWith(t, o)
	batch := b.serial(t, []float32{0}, []float32{10})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	batch.Requests[1] = backends.Request{Ctx: gone, Rows: 1, In: batch.Requests[1].In}
	const want = "did not answer within 2s after its requests were cancelled"
	if err := b.Execute(t.Context(), batch); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Execute = %v, want %q", err, want)
	}
	if got := b.execute(t.Context(), t, []float32{0, 0})[0]; len(got.Values) != 1 {
		t.Errorf("%+v after the end of the worker, want a response", got)
	}
}
