package repository

import (
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/steps"
)

// Counters returns the counters of all served versions, sorted by name and version.
func (r *Repository) Counters() []inspect.Counters {
	var list []inspect.Counters
	s := r.catalog.Load()
	for _, key := range s.keys {
		for _, v := range s.models[key].versions {
			list = append(list, v.counters(nameOf(key)))
		}
	}
	return list
}

func (v *version) counters(name string) inspect.Counters {
	p := inspect.Counters{Name: name, Version: v.sig.Version, Waiting: v.stats.Pending(), Edges: v.stats.Carried()}
	for _, m := range v.stats.Moves.List() {
		p.CopiedBytes += m.Bytes
	}
	st := statistics(v.stats)
	p.Requests, p.Failures = st.Inference.Success.Count, st.Inference.Fail.Count
	p.Rows, p.Executions = st.InferenceCount, st.ExecutionCount
	p.QueueNs, p.ComputeNs = st.Inference.Queue.Ns, st.Inference.ComputeInfer.Ns
	return p
}

// Graph returns the compiled plan of a version, without live figures.
func (r *Repository) Graph(name string, number int64) (*inspect.GraphView, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	p := v.exec.Plan()
	g := &inspect.GraphView{Model: name, Version: v.sig.Version, Nodes: []inspect.NodeView{}, Edges: []inspect.EdgeView{}}
	for i := range p.Nodes {
		g.Nodes = append(g.Nodes, r.node(p, i))
	}
	g.Edges = r.edges(p)
	addTraffic(g.Edges, v.stats.Carried())
	return g, nil
}

func (r *Repository) node(p *plan.Plan, i int) inspect.NodeView {
	n := &p.Nodes[i]
	v := inspect.NodeView{
		Node: i, Name: n.Name, Model: n.Model, Version: n.Signature.Version, MaxBatch: n.Signature.MaxBatch, Site: "host",
		Places: []string{}, Ensembles: append([]string{}, n.Ensembles...), Stream: n.Stream, Inflight: n.MaxInflight,
	}
	if n.OnDevice {
		v.Site = "device"
	}
	for _, at := range n.Places {
		v.Places = append(v.Places, at.String())
	}
	if m := r.stepModel(n); m != nil {
		v.Platform = platformOf(m)
		if m.queue != nil {
			v.InFlight = m.queue.InFlight()
		}
		for _, g := range m.cfg.GetInstanceGroup() {
			v.Instances += int(g.GetCount()) * max(1, len(g.GetGpus()))
		}
	}
	return v
}

// platformOf returns a version's platform, else its backend; for a native model "native:STEP".
func platformOf(v *version) string {
	if step := v.cfg.GetParameters()[steps.Key].GetStringValue(); step != "" {
		return "native:" + step
	}
	if platform := v.cfg.GetPlatform(); platform != "" {
		return platform
	}
	return v.cfg.GetBackend()
}

// stepModel returns the version that a node calls, or nil if it is no longer loaded.
func (r *Repository) stepModel(n *plan.Node) *version {
	s := r.catalog.Load()
	if m := s.models[n.ID]; m != nil {
		return m.version(n.Signature.Version)
	}
	if m := s.called[n.Model]; m != nil {
		return m.version(n.Signature.Version)
	}
	return nil
}

// edges returns the views of the tensors between the nodes of a plan. Node -1 is the request and the response.
func (r *Repository) edges(p *plan.Plan) []inspect.EdgeView {
	list := []inspect.EdgeView{}
	for to := range p.Nodes {
		n := &p.Nodes[to]
		for port, slot := range n.In {
			if slot == plan.None {
				continue
			}
			e := edge(p, slot, to, &n.Signature.Inputs[port], n.Signature.MaxBatch)
			r.addCopies(&e, n, p.Copies, plan.InputRef{Node: int32(to), Port: int32(port)}, slot)
			list = append(list, e)
		}
	}
	for i, slot := range p.Outputs {
		if slot != plan.None {
			list = append(list, edge(p, slot, -1, &p.Signature.Outputs[i], p.Signature.MaxBatch))
		}
	}
	return list
}

// edge returns the view of a slot that node to reads at a port.
func edge(p *plan.Plan, slot plan.Slot, to int, port *config.Port, maxBatch int) inspect.EdgeView {
	from := slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return slices.Contains(n.Out, slot) }) // -1: an input of the request
	shape := port.FullDims(maxBatch)
	return inspect.EdgeView{
		From: from, To: to, Tensor: p.Names[slot], Input: port.Name, Type: port.DType.String(), Shape: append([]int64{}, shape.Dims()...),
	}
}

// addCopies sets where an edge's tensor is copied to, and the bytes copied so far.
func (r *Repository) addCopies(e *inspect.EdgeView, n *plan.Node, moves []plan.Copy, use plan.InputRef, slot plan.Slot) {
	for i := range moves {
		if moves[i].Slot == slot && (moves[i].Reader == use || use.Node >= 0 && moves[i].Reader.Node == use.Node) {
			e.Place = "host"
			if moves[i].To.OnDevice {
				e.Place = "device"
			}
		}
	}
	v := r.stepModel(n)
	if v == nil {
		return
	}
	for _, m := range v.stats.Moves.List() {
		if m.Tensor == e.Input {
			e.Bytes += m.Bytes
			e.Copies += m.Count
		}
	}
}

// addTraffic sets the bytes that each edge carried, by place.
func addTraffic(list []inspect.EdgeView, counted []*telemetry.Edge) {
	by := make(map[string]*telemetry.Edge, len(counted))
	for _, c := range counted {
		by[c.Tensor] = c
	}
	for i := range list {
		e := &list[i]
		e.Carried = []inspect.CarriedView{}
		c := by[e.Tensor]
		for at := tensor.Host; c != nil && at <= tensor.Device; at++ {
			if n := c.Bytes(at); n > 0 {
				e.Carried = append(e.Carried, inspect.CarriedView{Place: telemetry.PlaceName(at), Bytes: n})
			}
		}
	}
}

// Platform returns the platform of a version, or "" if it does not serve.
func (r *Repository) Platform(name, number string) string {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return ""
	}
	v, err := r.find(name, n)
	if err != nil {
		return ""
	}
	return platformOf(v)
}
