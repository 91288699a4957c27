//go:build cgo

package python_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// TestGPUCalls checks calls of other models with inputs and outputs on GPUs, and preferred_memory.
func TestGPUCalls(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newGPUWorld(t, map[string]string{"work": onGPU + stays, "callee": onGPU + stays})
	for _, way := range []string{"call_any", "call_host", "call_second"} {
		w.want(t, "work", way, someValues, someValues)
	}
	w.want(t, "work", "call_many", someValues, []float32{30})
	w.fails(t, "work", "call_wrong", "preferred_memory names GPU 9, which this server does not have")
	w.want(t, "work", "call_any", someValues, someValues)
	for _, d := range w.gpus {
		if n := d.InUse(); n > 64<<20 {
			t.Errorf("30 calls have left %d bytes in use at %s", n, d.Place())
		}
	}
}

// TestGPUKept checks that a model may keep inputs: they do not change while further requests execute, although the server has released
// its own tensors, and their memory is used again once the model has forgotten them.
func TestGPUKept(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newGPUWorld(t, map[string]string{"up": onGPU + caseOf("up"), "work": onGPU + stays, "chain": chain("up", "work")})
	var want []float32
	for round := range 12 {
		values := []float32{float32(round), float32(round) + 0.5}
		w.want(t, "chain", "keep", values, want)
		want = append(want, values...)
	}
	held := w.gpus[0].InUse()
	if held < 12*(2<<20) {
		t.Errorf("the server holds %d bytes for 12 tensors that the model keeps", held)
	}
	w.want(t, "chain", "forget", []float32{1}, []float32{0})
	for range 6 { // regions come back as the worker reports them
		w.want(t, "chain", "compute", someValues, someValues)
	}
	if now := w.gpus[0].InUse(); now >= held {
		t.Errorf("%d bytes are in use after the model has forgotten its tensors, %d before", now, held)
	}
}

// TestGPUWorkerDies checks that a worker that is killed while it has tensors of the server on the GPU takes nothing with it: the next
// request is served by a new one, and tensors that the old one has sent stay.
func TestGPUWorkerDies(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newGPUWorld(t, map[string]string{"up": onGPU + caseOf("up"), "work": onGPU + stays, "chain": chain("up", "work")})
	for range 3 {
		w.want(t, "chain", "compute", someValues, someValues)
		w.want(t, "chain", "keep", someValues, nil)
		w.fails(t, "chain", "die", "Stub process 'work_0_0' is not healthy", "signal: killed")
	}
	w.want(t, "chain", "compute", someValues, someValues)
}

// TestGPUContextLost checks that a worker whose context is unusable fails its request, exits, and is replaced.
func TestGPUContextLost(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newGPUWorld(t, map[string]string{"work": onGPU + stays})
	w.fails(t, "work", "lose", "at device:0: unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED)")
	var err error
	for range 3 { // the exit may meet the next request
		if _, err = w.infer(t.Context(), "work", "compute", someValues...); err == nil {
			break
		}
	}
	if err != nil || !strings.Contains(w.log.String(), "because CUDA cannot be used in it any more") {
		t.Errorf("after the exit: %v\n%s", err, w.log)
	}
}

// TestGPUOutOfMemory checks that every failing allocation of the server fails its request only.
func TestGPUOutOfMemory(t *testing.T) { //nolint:paralleltest // it changes the driver
	w := newGPUWorld(t, map[string]string{"up": onGPU + caseOf("up"), "work": onGPU + stays, "chain": chain("up", "work")})
	cudatest.Set(t, "oom", 1)
	w.fails(t, "chain", "compute", "no memory to share with its python worker", "out of memory")
	cudatest.Set(t, "oom", 0)
	w.want(t, "chain", "compute", someValues, someValues)
	served := 0
	for n := int64(2); n < 6; n++ {
		cudatest.Set(t, "oom", n)
		for range 4 {
			got, err := w.infer(t.Context(), "chain", "compute", someValues...)
			if err != nil && !strings.Contains(err.Error(), "out of memory") || err == nil && !slices.Equal(got, someValues) {
				t.Errorf("with every allocation number %d failing: %v, %v", n, got, err)
			}
			if err == nil {
				served++
			}
		}
	}
	cudatest.Set(t, "oom", 0)
	w.want(t, "chain", "compute", someValues, someValues)
	t.Logf("%d of 16 requests were served while allocations failed", served)
}

// TestGPUBatches checks batches of requests, some of whose tensors are on the GPU: rows are joined there, and each request gets its own.
func TestGPUBatches(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newGPUWorld(t, map[string]string{
		"up":   onGPU + caseOf("up"),
		"work": onGPU + stays + "dynamic_batching { max_queue_delay_microseconds: 20000 }\n" + caseOf("compute"), "chain": chain("up", "work"),
	})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			model := "chain"
			if i%4 == 0 {
				model = "work" // its rows are on the host
			}
			values := []float32{float32(i), float32(2 * i)}
			if got, err := w.infer(t.Context(), model, "", values...); err != nil || !slices.Equal(got, values) {
				t.Errorf("%s: %v, %v; want %v", model, got, err, values)
			}
		})
	}
	all.Wait()
	if list := w.moves(t, "process", "response", "device_step", "rows"); len(list) > 0 {
		t.Errorf("moves: %v", list)
	}
}

// TestGPUForeign checks an output on a GPU that the server does not use.
func TestGPUForeign(t *testing.T) { //nolint:paralleltest // it sets the environment
	t.Setenv("TUTTI_CUDA_CHECK_DEVICES", "3")
	w := newGPUWorld(t, map[string]string{"work": onGPU + stays})
	w.fails(t, "work", "foreign", "a tensor is on GPU 2 of this process, which is none of the server's")
	w.want(t, "work", "compute", someValues, someValues)
}

// collector is a sink that copies the outputs of all responses.
type collector struct {
	got  [][]float32
	done chan error
}

func (c *collector) Send(r *infer.Response) {
	for i := range r.Outputs {
		c.got = append(c.got, slices.Clone(tensor.Slice[float32](&r.Outputs[i].Tensor)))
	}
	r.Release()
}

func (c *collector) Close(err error) { c.done <- err }

// TestGPUDecoupled checks a decoupled model in an ensemble: its responses from GPU memory, sent by a thread after execute has returned,
// reach the next step there.
func TestGPUDecoupled(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newGPUWorld(t, map[string]string{
		"up": onGPU + caseOf("up"), "stream": onGPU + stays + caseOf("stream") + "model_transaction_policy { decoupled: true }\n",
		"compute": onCPU + stays + caseOf("compute"), "chain": chain("up", "stream", "compute"),
	})
	for range 4 {
		in, err := tensor.New(w.alloc, tensor.FP32, tensor.Of(1, int64(len(someValues))))
		if err != nil {
			t.Fatal(err)
		}
		copy(tensor.Slice[float32](&in), someValues)
		req := infer.NewRequest()
		req.Model, req.Inputs = "chain", append(req.Inputs, infer.Named{Name: "IN", Tensor: in})
		c := &collector{done: make(chan error, 1)}
		w.Submit(t.Context(), req, c)
		if err := <-c.done; err != nil || len(c.got) != 3 || slices.ContainsFunc(c.got, func(v []float32) bool { return !slices.Equal(v, someValues) }) {
			t.Errorf("%v, %v\n%s", c.got, err, w.log)
		}
	}
	if list := w.moves(t, "process", "response"); len(list) > 0 {
		t.Errorf("moves: %v", list)
	}
}
