package simulate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler/sim"
)

// Server is what a server says about an ensemble.
type Server struct {
	Ensemble string
	Plan     *plan.Plan
	// Configs are the completed configurations, by model.
	Configs    map[string]*modelconfig.ModelConfig
	Statistics []infer.Statistics
}

// UnknownError reports that a server has not executed a model of the ensemble, so that its times are not known.
type UnknownError struct{ Model, Ensemble string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("model '%s' has executed no batch on this server, so its times are not known: send requests first, for example by 'tutti bench %s', or describe the graph in a file (--graph)", e.Model, e.Ensemble)
}

// times are the statistics of a model, over its versions.
type times struct {
	batches        []batch
	requests, rows float64
}

// batch is how long batches of a size took.
type batch struct{ rows, count, ns float64 }

// Learn returns the graph of an ensemble, or of a model, with the times that the server has measured.
func (s *Server) Learn() (*Graph, error) {
	g := &Graph{Name: s.Ensemble}
	own := s.times(s.Ensemble)
	perRequest := 1.0 // rows of a request
	if own.requests > 0 {
		perRequest = max(1, math.Round(own.rows/own.requests))
	}
	if perRequest > 1 {
		g.Notes = append(g.Notes, fmt.Sprintf("a request has %v rows, as the mean of those that the server has executed", perRequest))
	}
	uses := map[string]int{}
	for i := range s.Plan.Nodes {
		if n := &s.Plan.Nodes[i]; n.Operation == nil && n.FallbackOf == "" {
			uses[n.Model]++
		}
	}
	after := make([][]int, s.Plan.Slots) // by slot: the steps that it depends on
	for i := range s.Plan.Nodes {
		n := &s.Plan.Nodes[i]
		reads := readsOf(n, after)
		if n.Operation == nil && n.FallbackOf == "" {
			node, err := s.node(g, n, perRequest, uses[n.Model])
			if err != nil {
				return nil, err
			}
			node.After = reads
			reads = []int{len(g.Nodes)}
			g.Nodes = append(g.Nodes, node)
		}
		for _, slot := range n.Out {
			if slot != plan.None {
				after[slot] = merge(after[slot], reads)
			}
		}
	}
	for model, n := range uses {
		if n > 1 {
			g.Notes = append(g.Notes, fmt.Sprintf("model '%s' is in %d steps: each is simulated with instances of its own", model, n))
		}
	}
	slices.Sort(g.Notes)
	return g, g.Check()
}

// readsOf returns the steps whose outputs a node of the plan needs.
func readsOf(n *plan.Node, after [][]int) (list []int) {
	for _, slot := range slices.Concat(n.In, n.Waits) {
		if slot != plan.None {
			list = merge(list, after[slot])
		}
	}
	return list
}

// merge returns the union of two ascending lists.
func merge(a, b []int) []int {
	list := slices.Concat(a, b)
	slices.Sort(list)
	return slices.Compact(list)
}

// times sums the statistics of the versions of a model.
func (s *Server) times(model string) (t times) {
	for i := range s.Statistics {
		v := &s.Statistics[i]
		if v.Name != model {
			continue
		}
		t.requests += float64(v.Inference.Success.Count)
		t.rows += float64(v.InferenceCount)
		list := v.Batches
		if len(list) == 0 && v.ExecutionCount > 0 {
			in := &v.Inference
			list = []infer.BatchStats{{BatchSize: max(1, v.InferenceCount/v.ExecutionCount), ComputeInput: in.ComputeInput, ComputeInfer: in.ComputeInfer, ComputeOutput: in.ComputeOutput}}
		}
		for _, b := range list {
			ns := b.ComputeInput.Ns + b.ComputeInfer.Ns + b.ComputeOutput.Ns
			if n := float64(b.ComputeInfer.Count); n > 0 {
				t.batches = append(t.batches, batch{float64(max(b.BatchSize, 1)), n, float64(ns) / n})
			}
		}
	}
	slices.SortFunc(t.batches, func(a, b batch) int { return cmp.Compare(a.rows, b.rows) })
	return t
}

// fit returns the line through the times of batches, by least squares weighted with their number. Neither part is negative. If all
// batches have one size, a row is taken to cost its part of the time, so that larger batches gain nothing.
func (t *times) fit() (fixed, perRow float64, oneSize bool) {
	var count, rows, ns float64
	for _, b := range t.batches {
		count, rows, ns = count+b.count, rows+b.count*b.rows, ns+b.count*b.ns
	}
	rows, ns = rows/count, ns/count
	var variance, mix float64
	for _, b := range t.batches {
		variance += b.count * (b.rows - rows) * (b.rows - rows)
		mix += b.count * (b.rows - rows) * (b.ns - ns)
	}
	if variance == 0 {
		return 0, ns / rows, true
	}
	perRow = min(max(mix/variance, 0), ns/rows)
	return ns - perRow*rows, perRow, false
}

// unlimited is the number of instances of a model without a queue, which executes any number of requests at a time.
const unlimited = 64

// node returns the step of a node of the plan. The model is in so many steps.
func (s *Server) node(g *Graph, p *plan.Node, perRequest float64, uses int) (sim.Node, error) {
	cfg, t := s.Configs[p.Model], s.times(p.Model)
	if len(t.batches) == 0 {
		return sim.Node{}, &UnknownError{p.Model, s.Ensemble}
	}
	fixed, perRow, oneSize := t.fit()
	n := sim.Node{Name: p.Name, MaxBatch: 1}
	batches := cfg.GetDynamicBatching() != nil && cfg.GetMaxBatchSize() > 0
	if batches {
		n.MaxBatch = int(cfg.GetMaxBatchSize())
		if oneSize && n.MaxBatch > int(perRequest) {
			g.Notes = append(g.Notes, fmt.Sprintf("model '%s' has executed batches of %s only: larger ones are taken to gain nothing", p.Model, table.Count(int(t.batches[0].rows), "row")))
		}
	}
	instances(g, &n, cfg, batches)
	rows := perRequest // of a request at this step
	if s.varies() {
		// Each request of the ensemble brings so many rows to each step of the model.
		if own := s.times(s.Ensemble); own.requests > 0 {
			rows = t.rows / float64(uses) / own.requests
		}
	}
	const near = 0.02 // the statistics of models are read one after another
	if part := rows / perRequest; part < 1-near {
		n.Share = max(part, 1e-3)
		rows = perRequest
	} else if part < 1+near {
		rows = perRequest
	}
	if whole := int(math.Ceil(rows / float64(max(cfg.GetMaxBatchSize(), 1)))); batches && whole > 1 { // a request is several batches
		fixed *= float64(whole)
	}
	if batches {
		n.MaxBatch = max(1, int(float64(n.MaxBatch)/rows))
	}
	n.Fixed, n.PerRow = time.Duration(fixed), max(1, time.Duration(perRow*rows))
	return n, nil
}

// varies reports whether requests decide which steps execute, or for how many rows: conditions, divisions, streams and fan-outs.
func (s *Server) varies() bool {
	p := s.Plan
	return p.RowSets != nil || p.Routes != nil || p.Segments != nil || p.First != nil
}

// instances sets the instances of a step, and its device if all of them are on one GPU: they execute one at a time there.
func instances(g *Graph, n *sim.Node, cfg *modelconfig.ModelConfig, batches bool) {
	gpus := map[int32]bool{}
	for _, group := range cfg.GetInstanceGroup() {
		n.Instances += int(max(group.GetCount(), 1)) * max(len(group.GetGpus()), 1)
		for _, gpu := range group.GetGpus() {
			gpus[gpu] = true
		}
		if len(group.GetGpus()) == 0 {
			gpus[-1] = true // the host
		}
	}
	if !batches && slices.Contains([]string{"native", "identity", "query"}, cfg.GetBackend()) {
		n.Instances = unlimited
	}
	if len(gpus) == 1 && !gpus[-1] {
		for gpu := range gpus {
			n.Device = g.device("GPU " + strconv.Itoa(int(gpu)))
		}
	}
}
