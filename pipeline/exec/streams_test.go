package exec_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// series is a stream of rows: what a decoupled model sends, or the responses of a request.
type series [][]float32

// emit returns the decoupled model that responds to n with the rows of f(n).
func emit(name string, f func(n float32) series) fake {
	sig := &config.Signature{Model: name, Version: 1, MaxBatch: 8, Decoupled: true, Inputs: []config.Port{port("INPUT0", tensor.FP32, 1)}, Outputs: []config.Port{port("OUTPUT0", tensor.FP32, -1)}}
	return fake{sig: sig, queued: true, alone: true, run: func(b *backends.Batch) error {
		for i := range b.Requests {
			for _, row := range f(tensor.Slice[float32](&b.In[0])[b.Requests[i].First]) {
				t, err := tensor.New(b.Allocator, tensor.FP32, tensor.Of(1, int64(len(row))))
				if err != nil {
					return err
				}
				copy(tensor.Slice[float32](&t), row)
				if err := b.Send(i, []tensor.Tensor{t}, false); err != nil {
					b.Requests[i].Err = err
					break
				}
			}
		}
		return nil
	}}
}

// total returns the model whose output is the sum of all its inputs' elements, and their number.
func total(name string, inputs int) fake {
	sig := &config.Signature{Model: name, Version: 1, MaxBatch: 8, Outputs: []config.Port{port("OUTPUT0", tensor.FP32, 2)}}
	for i := range inputs {
		sig.Inputs = append(sig.Inputs, port(fmt.Sprintf("INPUT%d", i), tensor.FP32, -1))
	}
	return fake{sig: sig, queued: true, alone: true, run: func(b *backends.Batch) error {
		out, err := b.Alloc(0, tensor.FP32, tensor.Of(int64(b.Rows), 2))
		if err != nil {
			return err
		}
		dst := tensor.Slice[float32](out)
		clear(dst)
		for i := range b.In {
			v := tensor.Slice[float32](&b.In[i])
			for k, x := range v {
				row := k / (len(v) / b.Rows)
				dst[2*row] += x
				dst[2*row+1]++
			}
		}
		return nil
	}}
}

// gathering is a sink that keeps the rows of an output.
type gathering struct {
	mu   sync.Mutex
	rows series
	done chan error
}

func (g *gathering) Send(r *infer.Response) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range r.Outputs {
		g.rows = append(g.rows, slices.Clone(tensor.Slice[float32](&r.Outputs[i].Tensor)))
	}
	r.Release()
}

func (g *gathering) Close(err error) { g.done <- err }

// respond sends n to an ensemble and returns its responses.
func (b *bench) respond(ctx context.Context, x infer.Inferer, n float32) (series, error) {
	g := &gathering{done: make(chan error, 1)}
	req := number(b, n)
	req.Async = true
	x.Submit(ctx, req, g)
	err := <-g.done
	return g.rows, err
}

// upTo returns the numbers from 0 to n-1 in rows of the widths, again and again.
func upTo(widths ...int) func(n float32) series {
	return func(n float32) (s series) {
		for at := 0; at < int(n); {
			row := make([]float32, min(widths[len(s)%len(widths)], int(n)-at))
			for i := range row {
				row[i] = float32(at + i)
			}
			s, at = append(s, row), at+len(row)
		}
		return s
	}
}

const windowSteps = `
step { model_name: "emit" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "ROWS" } }
step { model_name: "total" model_version: -1 input_map { key: "INPUT0" value: "ROWS" } output_map { key: "OUTPUT0" value: "OUT" } }`

// TestWindows checks windows over rows of different widths, and what becomes of the end of a stream.
func TestWindows(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		n      float32
		params []string
		want   series
	}{
		"whole":    {7, []string{"step.total.window=3"}, series{{3, 3}, {12, 3}, {6, 1}}},
		"fits":     {6, []string{"step.total.window=3"}, series{{3, 3}, {12, 3}}},
		"overlap":  {6, []string{"step.total.window=4", "step.total.stride=2"}, series{{6, 4}, {14, 4}}},
		"rest":     {7, []string{"step.total.window=4", "step.total.stride=2"}, series{{6, 4}, {14, 4}, {15, 3}}},
		"dropped":  {7, []string{"step.total.window=4", "step.total.stride=2", "step.total.tail=drop"}, series{{6, 4}, {14, 4}}},
		"padded":   {7, []string{"step.total.window=4", "step.total.stride=2", "step.total.tail=pad"}, series{{6, 4}, {14, 4}, {15, 4}}},
		"short":    {2, []string{"step.total.window=5"}, series{{1, 2}}},
		"nothing":  {0, []string{"step.total.window=5"}, nil},
		"one":      {3, []string{"step.total.window=1"}, series{{0, 1}, {1, 1}, {2, 1}}},
		"of named": {3, []string{"step.total.window=2", "step.total.window_of=ROWS"}, series{{1, 2}, {2, 1}}},
	}
	for name, test := range tests {
		for _, widths := range [][]int{{1}, {2}, {3, 1, 5}, {100}} {
			t.Run(fmt.Sprintf("%s/%v", name, widths), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				x, _ := b.ensemble(t, fakes{"emit": emit("emit", upTo(widths...)), "total": total("total", 1)}, "N", "OUT", windowSteps, test.params...)
				for range 3 { // the state of a run is used again
					got, err := b.respond(t.Context(), x, test.n)
					if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
						t.Errorf("%v (-want +got):\n%s", err, diff)
					}
				}
			})
		}
	}
}

// TestWindowsOfRequest checks windows over a tensor of the request itself.
func TestWindowsOfRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, _ := b.ensemble(t, fakes{"total": total("total", 1)}, "N", "OUT",
		`step { model_name: "total" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "OUT" } }`, "step.total.window=2")
	g := &gathering{done: make(chan error, 1)}
	req := infer.NewRequest()
	req.Inputs = append(req.Inputs, infer.Named{Name: "N", Tensor: b.floats([]float32{1, 2, 4, 8, 16})})
	x.Submit(t.Context(), req, g)
	err := <-g.done
	if diff := cmp.Diff(series{{3, 2}, {12, 2}, {16, 1}}, g.rows); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if !x.Plan().Signature.Decoupled {
		t.Error("an ensemble with windows is not decoupled")
	}
}

const joinSteps = `
step { model_name: "a" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "A" } }
step { model_name: "b" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "B" } }
step { model_name: "total" model_version: -1 input_map { key: "INPUT0" value: "A" } input_map { key: "INPUT1" value: "B" } output_map { key: "OUTPUT0" value: "OUT" } }`

func constantly(v float32, n int) func(float32) series {
	return func(float32) series { return slices.Repeat(series{{v}}, n) }
}

// TestJoins checks joins of two streams by index.
func TestJoins(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	models := fakes{"a": emit("a", upTo(1)), "b": emit("b", upTo(1, 1)), "total": total("total", 2)}
	x, _ := b.ensemble(t, models, "N", "OUT", joinSteps, "step.total.join=A, B")
	for n := range 5 {
		var want series
		for i := range n {
			want = append(want, []float32{float32(2 * i), 2})
		}
		got, err := b.respond(t.Context(), x, float32(n))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%d: %v (-want +got):\n%s", n, err, diff)
		}
	}
}

// TestUnevenJoin checks streams of which one ends early.
func TestUnevenJoin(t *testing.T) {
	t.Parallel()
	for _, counts := range [][2]int{{3, 5}, {5, 3}, {0, 2}, {2, 0}} {
		for _, by := range []string{"index", "latest"} {
			b := newBench(t)
			models := fakes{"a": emit("a", constantly(1, counts[0])), "b": emit("b", constantly(2, counts[1])), "total": total("total", 2)}
			strict, _ := b.ensemble(t, models, "N", "OUT", joinSteps, "step.total.join=A, B", "step.total.join_by="+by)
			lax, _ := b.ensemble(t, models, "N", "OUT", joinSteps, "step.total.join=A, B", "step.total.join_by="+by, "step.total.uneven=drop")
			pairs := min(counts[0], counts[1])
			if by == "latest" && counts[1] > 0 {
				pairs = counts[0]
			}
			got, err := b.respond(t.Context(), lax, 1)
			if len(got) != pairs || err != nil {
				t.Errorf("%v %s: %d responses, want %d; %v", counts, by, len(got), pairs, err)
			}
			_, err = b.respond(t.Context(), strict, 1)
			if fails := by == "index" || counts[0] > 0 && counts[1] == 0; fails != (err != nil) {
				t.Errorf("%v %s: %v", counts, by, err)
			} else if fails && !strings.Contains(err.Error(), "set step.total.uneven to drop") {
				t.Errorf("%v %s: %v", counts, by, err)
			}
		}
	}
}

// sendRow sends one row of a batch's only request.
func sendRow(b *backends.Batch, row ...float32) error {
	t, err := tensor.New(b.Allocator, tensor.FP32, tensor.Of(1, int64(len(row))))
	if err != nil {
		return err
	}
	copy(tensor.Slice[float32](&t), row)
	return b.Send(0, []tensor.Tensor{t}, false)
}

// TestLatest checks that each response of the first stream comes with the latest one of the other.
func TestLatest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ten, two, twenty := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first, second := emit("a", nil), emit("b", nil)
	first.run = func(b *backends.Batch) error {
		<-ten
		err := errors.Join(sendRow(b, 1), sendRow(b, 2))
		close(two)
		<-twenty
		return errors.Join(err, sendRow(b, 3))
	}
	second.run = func(b *backends.Batch) error {
		err := sendRow(b, 10)
		close(ten)
		<-two
		err = errors.Join(err, sendRow(b, 20))
		close(twenty)
		return err
	}
	x, _ := b.ensemble(t, fakes{"a": first, "b": second, "total": total("total", 2)}, "N", "OUT", joinSteps, "step.total.join=A, B", "step.total.join_by=latest")
	got, err := b.respond(t.Context(), x, 1)
	if diff := cmp.Diff(series{{11, 2}, {12, 2}, {23, 2}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestAhead checks that a stream whose model cannot wait fails its request when another stream stays behind, and that nothing is left then.
func TestAhead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	failed := make(chan struct{})
	slow := emit("b", nil)
	slow.run = func(*backends.Batch) error {
		<-failed
		return nil
	}
	quick := emit("a", constantly(1, 100))
	inner := quick.run
	quick.run = func(b *backends.Batch) error {
		defer close(failed)
		return inner(b)
	}
	x, _ := b.ensemble(t, fakes{"a": quick, "b": slow, "total": total("total", 2)}, "N", "OUT", joinSteps, "step.total.join=A, B", "step.total.ahead=8")
	_, err := b.respond(t.Context(), x, 1)
	if err == nil || !strings.Contains(err.Error(), "the stream of 'A' is 8 responses ahead") || status.CodeOf(err) != status.Unavailable {
		t.Error(err)
	}
}

// TestStreamCancelled checks that a request that is cancelled between windows ends, and leaves no tensor.
func TestStreamCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	source := emit("emit", nil)
	source.run = func(b *backends.Batch) error {
		err := errors.Join(sendRow(b, 1), sendRow(b, 2, 3, 4))
		cancel()
		for err == nil {
			err = sendRow(b, 5)
		}
		return err
	}
	x, _ := b.ensemble(t, fakes{"emit": source, "total": total("total", 1)}, "N", "OUT", windowSteps, "step.total.window=3")
	if _, err := b.respond(ctx, x, 1); status.CodeOf(err) != status.Cancelled {
		t.Error(err)
	}
}

// TestRandomWindows compares random ensembles of streams, windows and joins, under concurrent requests, with a sequential interpreter.
func TestRandomWindows(t *testing.T) {
	t.Parallel()
	ensembles, requests := 60, 20
	if testing.Short() {
		ensembles, requests = 20, 10
	}
	for seed := range uint64(ensembles) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // reproducible by seed
			b := newBench(t)
			g := newStreamGraph(rng)
			x, _ := b.ensemble(t, g.models, "N", "OUT", g.steps.String(), g.params...)
			var group sync.WaitGroup
			for range requests {
				n := float32(rng.IntN(40))
				group.Go(func() {
					got, err := b.respond(t.Context(), x, n)
					if diff := cmp.Diff(g.interpret(n), got); diff != "" || err != nil {
						t.Errorf("%g: %v (-want +got):\n%s\n%s%s", n, err, diff, g.steps.String(), strings.Join(g.params, "\n"))
					}
				})
			}
			group.Wait()
		})
	}
}

// streamGraph is a random ensemble of streams, as configuration and as functions of the request.
type streamGraph struct {
	models fakes
	steps  strings.Builder
	params []string
	// streams have the names of tensors and what they are for a request.
	streams []namedStream
}

type namedStream struct {
	name string
	rows func(n float32) series
}

// newStreamGraph makes decoupled steps, and then windows and joins of what is there, until one stream is left: OUT.
func newStreamGraph(rng *rand.Rand) *streamGraph {
	g := &streamGraph{models: fakes{}}
	for i := range 1 + rng.IntN(3) {
		widths := make([]int, 1+rng.IntN(3))
		for k := range widths {
			widths[k] = 1 + rng.IntN(4)
		}
		name, f := fmt.Sprintf("emit%d", i), upTo(widths...)
		g.models[name] = emit(name, f)
		g.step(name, "N")
		g.streams = append(g.streams, namedStream{"T_" + name, f})
	}
	for i := 0; len(g.streams) > 1 || i < 2; i++ {
		name := fmt.Sprintf("total%d", i)
		k := rng.IntN(len(g.streams))
		a := g.streams[k]
		g.streams = slices.Delete(g.streams, k, k+1)
		if rows := a.rows; rng.IntN(2) == 0 {
			size := 1 + rng.IntN(6)
			stride := 1 + rng.IntN(size)
			tail := []string{"send", "drop", "pad"}[rng.IntN(3)]
			g.params = append(g.params, fmt.Sprintf("step.%s.window=%d", name, size), fmt.Sprintf("step.%s.stride=%d", name, stride), fmt.Sprintf("step.%s.tail=%s", name, tail), fmt.Sprintf("step.%s.window_of=%s", name, a.name))
			a.rows = func(n float32) series { return windowsOf(rows(n), size, stride, tail) }
		}
		if len(g.streams) > 0 && rng.IntN(2) == 0 {
			other := g.streams[0]
			g.streams = g.streams[1:]
			g.models[name] = total(name, 2)
			g.step(name, a.name, other.name)
			g.params = append(g.params, fmt.Sprintf("step.%s.join=%s, %s", name, a.name, other.name), fmt.Sprintf("step.%s.uneven=drop", name))
			g.streams = append(g.streams, namedStream{"T_" + name, func(n float32) (s series) {
				left, right := a.rows(n), other.rows(n)
				for i := range min(len(left), len(right)) {
					s = append(s, sumOf(slices.Concat(left[i], right[i])))
				}
				return s
			}})
			continue
		}
		g.models[name] = total(name, 1)
		g.step(name, a.name)
		g.streams = append(g.streams, namedStream{"T_" + name, func(n float32) (s series) {
			for _, row := range a.rows(n) {
				s = append(s, sumOf(row))
			}
			return s
		}})
	}
	g.models["end"] = total("end", 1)
	fmt.Fprintf(&g.steps, "step { model_name: \"end\" model_version: -1 input_map { key: \"INPUT0\" value: %q } output_map { key: \"OUTPUT0\" value: \"OUT\" } }\n", g.streams[0].name)
	return g
}

func (g *streamGraph) step(name string, inputs ...string) {
	fmt.Fprintf(&g.steps, "step { model_name: %q model_version: -1 output_map { key: \"OUTPUT0\" value: \"T_%s\" } ", name, name)
	for i, in := range inputs {
		fmt.Fprintf(&g.steps, "input_map { key: \"INPUT%d\" value: %q } ", i, in)
	}
	g.steps.WriteString("}\n")
}

func (g *streamGraph) interpret(n float32) (s series) {
	for _, row := range g.streams[0].rows(n) {
		s = append(s, sumOf(row))
	}
	return s
}

func sumOf(row []float32) []float32 {
	sum := float32(0)
	for _, v := range row {
		sum += v
	}
	return []float32{sum, float32(len(row))}
}

// windowsOf is what windows are, written without regard to pieces.
func windowsOf(rows series, size, stride int, tail string) (s series) {
	all := slices.Concat(rows...)
	covered := 0
	for at := 0; covered < len(all); at += stride {
		end := at + size
		if end > len(all) {
			switch tail {
			case "drop":
				return s
			case "pad":
				return append(s, append(slices.Clone(all[at:]), make([]float32, end-len(all))...))
			}
			return append(s, slices.Clone(all[at:]))
		}
		s = append(s, slices.Clone(all[at:end]))
		covered = end
	}
	return s
}
