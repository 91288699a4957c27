package exec_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
)

// flowGraph is a random pipeline with nested decoupled steps. Tensor 0 is the required input, 1 the optional one,
// and node i writes tensor i+2. Its interpreter executes everything once per response, sequentially.
type flowGraph struct {
	nodes []flowNode
	level []int  // per tensor: the number of decoupled steps before it
	out   []bool // per tensor: whether it is an output
}

// flowNode is one node.
type flowNode struct {
	model string // sum, odd (which omits even results), repeat
	reads []int
}

// results are the outputs of one response.
type results map[string]float32

func tensorName(i int) string { return fmt.Sprintf("t%d", i) }

// newFlowGraph returns a random graph in which each decoupled step follows the previous one.
func newFlowGraph(rng *rand.Rand, nodes int) *flowGraph {
	b := &flowGraph{level: []int{0, 0}, out: make([]bool, nodes+2)}
	read := make([]bool, nodes+2)
	deepest := []int{0} // the tensors of the innermost stream
	for i := range nodes {
		n := flowNode{model: []string{"sum", "sum", "sum", "odd", "repeat"}[rng.IntN(5)]}
		depth := slices.Max(b.level)
		if n.model == "repeat" && depth >= 3 {
			n.model = "sum"
		}
		first := rng.IntN(i + 2)
		if n.model == "repeat" || first == 1 {
			first = deepest[rng.IntN(len(deepest))]
		}
		n.reads = []int{first}
		for range rng.IntN(3) {
			n.reads = append(n.reads, rng.IntN(i+2))
		}
		level := 0
		if n.model != "sum" {
			n.reads = n.reads[:1]
		}
		for _, s := range n.reads {
			read[s] = true
			level = max(level, b.level[s])
		}
		if n.model == "repeat" {
			level++
			deepest = nil
		}
		if level == depth || n.model == "repeat" {
			deepest = append(deepest, i+2)
		}
		b.nodes, b.level = append(b.nodes, n), append(b.level, level)
	}
	for s := 2; s < len(read); s++ {
		b.out[s] = !read[s] || rng.IntN(6) == 0
	}
	read[1] = read[1] || len(b.nodes) == 0
	if !read[0] || !read[1] { // every input is read by a step
		b.nodes = append(b.nodes, flowNode{model: "sum", reads: []int{0, 1}})
		b.level, b.out = append(b.level, 0), append(b.out, true)
	}
	return b
}

// text returns the inputs, outputs and steps for bench.ensemble.
func (b *flowGraph) text(inflight int) (inputs, outputs, steps string) {
	var s, o strings.Builder
	fmt.Fprintf(&s, "max_inflight_requests: %d\n", inflight)
	for i, n := range b.nodes {
		fmt.Fprintf(&s, `step { model_name: "%s" model_version: -1 output_map { key: "OUTPUT0" value: "%s" }`, n.model, tensorName(i+2))
		for port, t := range n.reads {
			fmt.Fprintf(&s, ` input_map { key: "INPUT%d" value: "%s" }`, port, tensorName(t))
		}
		s.WriteString(" }\n")
		if b.out[i+2] {
			o.WriteString(tensorName(i+2) + " ")
		}
	}
	return "t0 t1?", o.String(), s.String()
}

// mod keeps values small enough to be exact in FP32.
func mod(v float32) float32 { return float32(math.Mod(float64(v), 97)) }

// models returns the models of the graphs. With fails, a sum of 13 fails.
func (b *bench) models(rng *rand.Rand, fails bool) fakes {
	many := signature("repeat", 1, 8)
	many.Decoupled = true
	repeat := func(batch *backends.Batch) error {
		for i := range batch.Requests {
			v := tensor.Slice[float32](&batch.In[0])[batch.Requests[i].First]
			for j := range int(v) % 4 {
				err := batch.Send(i, []tensor.Tensor{b.floats([]float32{mod(v + float32(j) + 1)})}, j == int(v)%4-1 && int(v)%2 == 0)
				if err != nil {
					batch.Requests[i].Err = err
					break
				}
			}
		}
		return nil
	}
	odd := func(batch *backends.Batch) error {
		v := tensor.Slice[float32](&batch.In[0])[0]
		if batch.Rows == 1 && int(v)%2 == 0 {
			return nil
		}
		batch.SetOutput(0, batch.In[0].Retain())
		return nil
	}
	total := func(batch *backends.Batch) error {
		out, err := batch.Alloc(0, tensor.FP32, batch.In[0].Shape)
		if err != nil {
			return err
		}
		dst := tensor.Slice[float32](out)
		for j := range dst {
			dst[j] = 1
			for k := range batch.In {
				if batch.In[k].Present() {
					dst[j] += tensor.Slice[float32](&batch.In[k])[j]
				}
			}
			if dst[j] = mod(dst[j]); fails && dst[j] == 13 {
				return errBroken
			}
		}
		return nil
	}
	return fakes{
		"repeat": {sig: many, run: repeat, queued: true, alone: true},
		"odd":    {sig: signature("odd", 1, 8), run: odd, queued: true, alone: true},
		"sum":    {sig: sumSignature(), run: total, queued: rng.IntN(2) == 0},
	}
}

// interpreter computes the responses of a request sequentially.
type interpreter struct {
	b         *flowGraph
	wanted    []bool // per tensor: a requested output
	need      []bool // per node
	depth     int    // the level whose responses are sent
	fails     bool
	responses []results
}

func (b *flowGraph) interpret(first float32, second *float32, wanted []bool, fails bool) (responses []results, failed bool) {
	in := &interpreter{b: b, wanted: wanted, need: make([]bool, len(b.nodes)), fails: fails}
	needed := slices.Clone(wanted)
	for s := len(needed) - 1; s >= 2; s-- {
		if !needed[s] {
			continue
		}
		in.need[s-2] = true
		for _, from := range b.nodes[s-2].reads {
			needed[from] = true
		}
		if wanted[s] {
			in.depth = max(in.depth, b.level[s])
		}
	}
	values := make([]*float32, len(b.nodes)+2)
	values[0], values[1] = &first, second
	failed = !in.run(0, values)
	return in.responses, failed
}

// run computes the nodes of one level, and then the next level for each of its responses. It returns false when a
// node fails.
func (in *interpreter) run(level int, values []*float32) bool {
	producer, several := -1, []*float32(nil)
	for i, n := range in.b.nodes {
		if !in.need[i] || in.b.inside(i) != level {
			continue
		}
		if values[n.reads[0]] == nil {
			return false
		}
		v := *values[n.reads[0]]
		switch n.model {
		case "repeat":
			producer = i
			for j := range int(v) % 4 {
				answer := mod(v + float32(j) + 1)
				several = append(several, &answer)
			}
		case "odd":
			if int(v)%2 != 0 {
				values[i+2] = &v
			}
		default:
			v = 1
			for _, s := range n.reads {
				if values[s] != nil {
					v += *values[s]
				}
			}
			if v = mod(v); in.fails && v == 13 {
				return false
			}
			values[i+2] = &v
		}
	}
	if level == in.depth {
		r := results{}
		for s, w := range in.wanted {
			if w && values[s] != nil {
				r[tensorName(s)] = *values[s]
			}
		}
		in.responses = append(in.responses, r)
		return true
	}
	for _, v := range several {
		inner := slices.Clone(values)
		inner[producer+2] = v
		if !in.run(level+1, inner) {
			return false
		}
	}
	return true
}

// inside returns the level of node i.
func (b *flowGraph) inside(i int) int {
	if b.nodes[i].model == "repeat" {
		return b.level[i+2] - 1
	}
	return b.level[i+2]
}

// collector is a sink that keeps all responses.
type collector struct {
	mu        sync.Mutex
	responses []results
	final     bool
	done      chan error
}

func (g *collector) Send(r *infer.Response) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.final {
		panic("a response after the final one")
	}
	g.final = r.Final
	got := results{}
	for i := range r.Outputs {
		got[r.Outputs[i].Name] = tensor.Slice[float32](&r.Outputs[i].Tensor)[0]
	}
	g.responses = append(g.responses, got)
	r.Release()
}

func (g *collector) Close(err error) { g.done <- err }

// TestRandomStreams compares random pipelines with decoupled steps, under concurrent requests, with a sequential
// interpreter.
// shows: ensembles.decoupled
func TestRandomStreams(t *testing.T) {
	t.Parallel()
	pipelines, requests := 80, 30
	if testing.Short() {
		pipelines, requests = 25, 15
	}
	for seed := range uint64(pipelines) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // reproducible by seed
			b := newBench(t)
			d := newFlowGraph(rng, 1+rng.IntN(30))
			fails := seed%4 == 3
			inputs, outputs, steps := d.text(int(seed % 3))
			x, _ := b.ensemble(t, b.models(rng, fails), inputs, outputs, steps)
			var wg sync.WaitGroup
			for r := range requests {
				q := newFlowRequest(rng, d, float32(r))
				wg.Go(func() { q.run(t, b, x, d, fails) })
			}
			wg.Wait()
			if err := x.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// flowRequest is one request of the property test.
type flowRequest struct {
	first  float32
	second *float32
	names  []string // requested outputs; nil for all
	wanted []bool
	cancel bool
}

func newFlowRequest(rng *rand.Rand, d *flowGraph, first float32) flowRequest {
	q := flowRequest{first: first, wanted: slices.Clone(d.out), cancel: rng.IntN(10) == 0}
	if rng.IntN(2) == 0 {
		v := float32(rng.IntN(90))
		q.second = &v
	}
	if rng.IntN(2) == 0 {
		return q
	}
	for s, out := range d.out {
		if q.wanted[s] = out && rng.IntN(2) == 0; q.wanted[s] {
			q.names = append(q.names, tensorName(s))
		}
	}
	if q.names == nil {
		q.wanted = slices.Clone(d.out)
	}
	return q
}

func (q *flowRequest) run(t *testing.T, b *bench, x *exec.Executor, d *flowGraph, fails bool) {
	t.Helper()
	req := infer.NewRequest()
	req.Inputs = append(req.Inputs, infer.Named{Name: "t0", Tensor: b.floats([]float32{q.first})})
	if q.second != nil {
		req.Inputs = append(req.Inputs, infer.Named{Name: "t1", Tensor: b.floats([]float32{*q.second})})
	}
	req.Outputs = append(req.Outputs, q.names...)
	req.Async = int(q.first)%2 == 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if q.cancel {
		cancel()
	}
	g := &collector{done: make(chan error, 1)}
	x.Submit(ctx, req, g)
	err := <-g.done
	want, failed := d.interpret(q.first, q.second, q.wanted, fails)
	switch {
	case q.cancel && err != nil && status.CodeOf(err) == status.Cancelled:
	case failed != (err != nil):
		t.Errorf("request %v: %v, want a failure: %v", q.first, err, failed)
	case !failed && len(g.responses) != len(want):
		t.Errorf("request %v: %d responses, want %d", q.first, len(g.responses), len(want))
	}
	// A failure comes after the responses before it.
	n := min(len(g.responses), len(want))
	if diff := cmp.Diff(want[:n], g.responses[:n], cmpopts.EquateEmpty()); diff != "" || failed && n < len(g.responses) && err == nil {
		t.Errorf("request %v (-want +got):\n%s", q.first, diff)
	}
}
