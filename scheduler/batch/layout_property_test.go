package batch_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// world is a random model that returns its inputs, however each is joined.
type world struct {
	rng    *rand.Rand
	sig    *config.Signature
	params map[string]string
}

var worldTypes = []tensor.DType{tensor.FP32, tensor.Int64, tensor.Uint8, tensor.Bytes}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 4)), params: map[string]string{}}
	var inputs []config.Port
	for i := range 1 + w.rng.IntN(4) {
		p := schedtest.Port(fmt.Sprintf("INPUT%d", i), worldTypes[w.rng.IntN(len(worldTypes))], -1, int64(w.rng.IntN(3)+1))
		p.Optional = w.rng.IntN(4) == 0
		inputs = append(inputs, p)
	}
	w.sig = schedtest.Mirror(64, inputs...)
	for i := range w.sig.Inputs {
		p := &w.sig.Inputs[i]
		switch {
		case w.rng.IntN(3) == 0:
			p.Unbatched, w.sig.Outputs[i].Unbatched = true, true
			w.sig.Scattered = append(w.sig.Scattered, config.Scattered{Output: i, Source: i})
		case w.rng.IntN(2) == 0 && p.DType != tensor.Bytes:
			w.params["pad."+p.Name] = "7"
			w.params["unpad."+w.sig.Outputs[i].Name] = p.Name
		}
	}
	if w.rng.IntN(2) == 0 {
		w.sig.Computed = []config.Computed{{
			Name: "C", DType: tensor.Int32, Kind: modelconfig.BatchInput_Kind(w.rng.IntN(6)), Source: 0, At: len(w.sig.Inputs),
		}}
	}
	return w
}

// tensor returns random rows of a port, sometimes with others around them.
func (w *world) tensor(b *schedtest.Bench, p *config.Port, rows, extent int64) tensor.Tensor {
	inner := p.Dims.Dim(1)
	shape := []int64{rows, extent, inner}
	n := int(rows * extent * inner)
	if p.DType == tensor.Bytes {
		texts := make([]string, n)
		for i := range texts {
			texts[i] = string(make([]byte, w.rng.IntN(4))) + strconv.Itoa(w.rng.IntN(99))
		}
		return b.Strings(shape, texts...)
	}
	t, err := tensor.New(b.Alloc, p.DType, tensor.Of(shape...))
	if err != nil {
		panic(err)
	}
	data := t.Bytes()
	for i := range data {
		data[i] = byte(w.rng.Uint32())
	}
	return t
}

// given is a copy of a task's input, for comparison with its output.
type given struct {
	shape tensor.Shape
	data  string
	there bool
}

func (w *world) job(b *schedtest.Bench) (*schedtest.Job, []given) {
	rows, extent := int64(w.rng.IntN(4)), int64(w.rng.IntN(5))
	in, kept := make([]tensor.Tensor, len(w.sig.Inputs)), make([]given, len(w.sig.Inputs))
	for i := range in {
		p := &w.sig.Inputs[i]
		if p.Optional && w.rng.IntN(2) == 0 {
			continue
		}
		in[i] = w.tensor(b, p, rows, extent)
		kept[i] = given{in[i].Shape, string(in[i].Bytes()), true}
	}
	return b.Job(int(rows), in...), kept
}

// TestFormConserves checks that random tasks receive exactly their own bytes from models that return their inputs.
func TestFormConserves(t *testing.T) {
	t.Parallel()
	seeds := uint64(600)
	if testing.Short() {
		seeds = 150
	}
	for seed := range seeds {
		w := newWorld(seed)
		b := schedtest.NewBench(t, w.sig, w.params)
		var jobs []*schedtest.Job
		var want [][]given
		for range 1 + w.rng.IntN(12) {
			j, kept := w.job(b)
			jobs, want = append(jobs, j), append(want, kept)
		}
		model := schedtest.Copy
		if w.rng.IntN(2) == 0 {
			model = schedtest.Share
		}
		schedtest.Do(b, model, jobs...)
		for i, j := range jobs {
			if msg := compare(j, want[i]); msg != "" {
				t.Errorf("seed %d work %d: %s", seed, i, msg)
			}
			j.Release()
		}
	}
}

func compare(j *schedtest.Job, want []given) string {
	if j.Err != nil {
		return j.Err.Error()
	}
	for i := range want {
		out := &j.Out[i]
		switch {
		case out.Present() != want[i].there:
			return fmt.Sprintf("output %d is there: %t", i, out.Present())
		case !out.Present():
		case !out.Shape.Equal(want[i].shape) || string(out.Bytes()) != want[i].data:
			return fmt.Sprintf("output %d is %s %q, want %s %q", i, out.Shape, out.Bytes(), want[i].shape, want[i].data)
		}
	}
	return ""
}
