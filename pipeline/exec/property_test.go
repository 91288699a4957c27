package exec_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// dag is a random pipeline. Node i sums its inputs and adds i. Every slot without a reader is an output.
type dag struct {
	plan  *plan.Plan
	reads [][]plan.Slot // per node
	fails int           // the node that fails, or -1
}

// newDAG returns a random dag with two inputs, of which the second is optional.
func newDAG(rng *rand.Rand, nodes int, sig *config.Signature) *dag {
	d := &dag{fails: -1}
	p := &plan.Plan{Ensemble: true, Slots: nodes + 2, AllNodes: plan.NewNodeSet(nodes), Inputs: []plan.Slot{0, 1}}
	p.Consumers, p.Readers = make([][]plan.InputRef, p.Slots), make([]int32, p.Slots)
	for i := range p.Slots {
		p.Names = append(p.Names, fmt.Sprintf("t%d", i))
	}
	p.Signature = &config.Signature{Model: "dag", Version: 1, MaxBatch: 8, Inputs: slices.Clone(sig.Inputs[:2])}
	needs := make([]plan.NodeSet, p.Slots)
	for i := range nodes {
		n := plan.Node{
			Name: p.Names[i+2], Model: "sum", Version: 1, Signature: sig,
			In: []plan.Slot{plan.None, plan.None, plan.None}, Out: []plan.Slot{plan.Slot(i + 2)}, Rules: make([]plan.BatchRule, 3), Ensembles: []string{"dag"},
		}
		mine := plan.NewNodeSet(nodes)
		mine.Add(int32(i))
		p.AllNodes.Add(int32(i))
		for port := range 1 + rng.IntN(3) {
			s := plan.Slot(rng.IntN(i + 2))
			if port == 0 && s == 1 {
				s = 0 // the first input is required
			}
			n.In[port] = s
			n.Need++
			p.Consumers[s] = append(p.Consumers[s], plan.InputRef{Node: int32(i), Port: int32(port)})
			p.Readers[s]++
			if needs[s] != nil {
				mine.AddAll(needs[s])
			}
		}
		needs[i+2] = mine
		d.reads = append(d.reads, n.In)
		p.Nodes = append(p.Nodes, n)
	}
	for s := 2; s < p.Slots; s++ {
		if p.Readers[s] == 0 {
			p.Readers[s] = 1
			p.Outputs = append(p.Outputs, plan.Slot(s))
			p.OutputNodes = append(p.OutputNodes, needs[s])
			p.Signature.Outputs = append(p.Signature.Outputs, config.Port{Name: p.Names[s], DType: tensor.FP32, Dims: tensor.Of(-1)})
		}
	}
	d.plan = p
	return d
}

// interpret computes every slot sequentially.
func (d *dag) interpret(first float32, second *float32) []float32 {
	values := make([]float32, d.plan.Slots)
	values[0] = first
	if second != nil {
		values[1] = *second
	}
	for i, reads := range d.reads {
		values[i+2] = float32(i)
		for _, s := range reads {
			if s != plan.None {
				values[i+2] += values[s]
			}
		}
	}
	return values
}

// sumSignature has a required and two optional inputs.
func sumSignature() *config.Signature {
	s := signature("sum", 3, 8)
	s.Outputs = s.Outputs[:1]
	s.Inputs[1].Optional, s.Inputs[2].Optional = true, true
	return s
}

// sum returns the model of node i.
func sum(i float32) model {
	return func(b *backends.Batch) error {
		out, err := b.Alloc(0, tensor.FP32, b.In[0].Shape)
		if err != nil {
			return err
		}
		dst := tensor.Slice[float32](out)
		for j := range dst {
			dst[j] = i
			for k := range b.In {
				if b.In[k].Present() {
					dst[j] += tensor.Slice[float32](&b.In[k])[j]
				}
			}
		}
		return nil
	}
}

var errBroken = errors.New("broken")

// build builds d over inline, single and batching schedulers, at random.
func (d *dag) build(b *bench, rng *rand.Rand, sig *config.Signature) *exec.Executor {
	targets := make([]scheduler.Scheduler, len(d.plan.Nodes))
	for i := range targets {
		m := sum(float32(i))
		if i == d.fails {
			m = func(*backends.Batch) error { return errBroken }
		}
		if rng.IntN(3) == 0 {
			targets[i] = b.inline(sig, m)
			continue
		}
		rules := dynamic.Rules{MaxBatch: 8}
		if rng.IntN(4) == 0 {
			rules.Delay = time.Microsecond
		}
		instances := make([]backends.Instance, 1+rng.IntN(2))
		for j := range instances {
			instances[j] = m
		}
		targets[i] = b.batching(sig, rules, instances...)
	}
	return b.executor(d.plan, targets...)
}

// TestRandomGraphs compares random pipelines under concurrent requests with a sequential interpreter.
func TestRandomGraphs(t *testing.T) {
	t.Parallel()
	graphs, requests := 60, 40
	if testing.Short() || mode != "" {
		graphs, requests = 15, 20
	}
	for seed := range uint64(graphs) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible by seed
			b, sig := newBench(t), sumSignature()
			d := newDAG(rng, 1+rng.IntN(200), sig)
			if seed%5 == 4 {
				d.fails = rng.IntN(len(d.plan.Nodes))
			}
			x := d.build(b, rng, sig)
			var wg sync.WaitGroup
			for r := range requests {
				r := newDAGRequest(rng, d, float32(r))
				wg.Go(func() { r.run(t, b, x, d) })
			}
			wg.Wait()
			if err := x.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// dagRequest is one request of the property test.
type dagRequest struct {
	first   float32
	second  *float32
	outputs []int // requested positions; nil for all
	cancel  bool
}

func newDAGRequest(rng *rand.Rand, d *dag, first float32) dagRequest {
	a := dagRequest{first: first, cancel: rng.IntN(10) == 0}
	if rng.IntN(2) == 0 {
		v := float32(rng.IntN(100))
		a.second = &v
	}
	if n := len(d.plan.Outputs); rng.IntN(2) == 0 {
		a.outputs = rng.Perm(n)[:1+rng.IntN(n)]
	}
	return a
}

func (a *dagRequest) run(t *testing.T, b *bench, x *exec.Executor, d *dag) {
	t.Helper()
	req := b.request(a.first)
	if a.second != nil {
		req.Inputs = append(req.Inputs, infer.Named{Name: "INPUT1", Tensor: b.floats([]float32{*a.second})})
	}
	for _, o := range a.outputs {
		req.Outputs = append(req.Outputs, d.plan.Signature.Outputs[o].Name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if a.cancel {
		cancel()
	}
	call := infer.NewCall()
	x.Submit(ctx, req, call)
	resp, err := call.Wait()
	switch {
	case err != nil && status.CodeOf(err) == status.Cancelled && a.cancel:
		return
	case err != nil && errors.Is(err, errBroken) && d.fails >= 0:
		return
	case err != nil:
		t.Errorf("request %v: %v", a.first, err)
		return
	}
	defer resp.Release()
	a.compare(t, resp, d)
}

func (a *dagRequest) compare(t *testing.T, resp *infer.Response, d *dag) {
	t.Helper()
	wanted := a.outputs
	if wanted == nil {
		for o := range d.plan.Outputs {
			wanted = append(wanted, o)
		}
	}
	if len(resp.Outputs) != len(wanted) {
		t.Errorf("request %v: %d outputs, want %d", a.first, len(resp.Outputs), len(wanted))
		return
	}
	values := d.interpret(a.first, a.second)
	for i, o := range wanted {
		got := tensor.Slice[float32](&resp.Outputs[i].Tensor)
		if want := values[d.plan.Outputs[o]]; len(got) != 1 || got[0] != want {
			t.Errorf("request %v, output %d: got %v, want %v", a.first, o, got, want)
		}
	}
}
