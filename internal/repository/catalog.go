package repository

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/steps"
)

var _ infer.Lister = (*Repository)(nil)

// Ready reports whether every model that should serve is loaded and, where it has a readiness check of its own,
// ready. Unloaded models, and ensembles that use them, do not count.
func (r *Repository) Ready() bool {
	if r.openErr != nil || slices.ContainsFunc(r.source.buckets, (*bucketRoot).neverListed) {
		return false
	}
	models := r.catalog.Load().models
	for _, m := range models { // before the models' own checks, which may be slow
		if !m.ready() {
			return false
		}
	}
	for _, m := range models {
		if slices.ContainsFunc(m.versions, func(v *version) bool { return r.readiness(v) != nil }) {
			return false
		}
	}
	return true
}

// Lost returns why a model cannot serve for which every device is lost, with the names of the model and the device; nil if
// there is no such model.
func (r *Repository) Lost() error {
	s := r.catalog.Load()
	for _, key := range s.keys {
		for _, v := range s.models[key].versions {
			if err := r.lost(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// ModelReady returns nil if the version serves, else the reason. An ensemble serves if all models that it uses do.
func (r *Repository) ModelReady(name string, number int64) error {
	v, err := r.find(name, number)
	if err != nil {
		return err
	}
	return r.readinessOfAll(v)
}

// readinessOfAll is readiness, of an ensemble that of the models that it uses, too.
func (r *Repository) readinessOfAll(v *version) error {
	for _, used := range v.uses {
		if err := r.readinessOfAll(used); err != nil {
			return status.Prefixf(err, "in ensemble '%s', ", v.sig.Model)
		}
	}
	return r.readiness(v)
}

// readiness asks the model of a loaded version whether it is ready. It returns nil or the reason.
func (r *Repository) readiness(v *version) error {
	if err := r.lost(v); err != nil {
		return err
	}
	var err error
	if v.residency != nil {
		err = v.residency.ready()
	} else if m, ok := v.model.(backends.ReadinessChecker); ok {
		err = m.Ready()
	}
	if err != nil {
		//nolint:sloglint // the line is Triton's, which people look for
		r.s.Log.Debug(fmt.Sprintf("Model '%s' version %d is not ready: %s", v.sig.Model, v.sig.Version, status.Text(err)))
	}
	return err
}

// Describe returns the description of a version.
//
// hot: one map lookup.
func (r *Repository) Describe(name string, number int64) (*infer.Description, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	return v.description, nil
}

// Generation implements infer.Lister.
//
// hot: one atomic load.
func (r *Repository) Generation() uint64 { return r.catalog.Load().number }

// Names implements infer.Lister.
func (r *Repository) Names() []string {
	s := r.catalog.Load()
	list := make([]string, 0, len(s.called))
	for name, m := range s.called {
		if len(m.versions) > 0 {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

func newDescription(sig *config.Signature, cfg *modelconfig.ModelConfig) *infer.Description {
	return &infer.Description{
		Model: sig.Model, Version: sig.Version, MaxBatch: sig.MaxBatch, Decoupled: sig.Decoupled, Early: config.EarlyOutputs(cfg),
		Inputs: ports(sig.Inputs, sig.MaxBatch), Outputs: ports(sig.Outputs, sig.MaxBatch),
	}
}

func ports(list []config.Port, maxBatch int) []infer.Port {
	out := make([]infer.Port, len(list))
	for i := range list {
		p := &list[i]
		out[i] = infer.Port{Name: p.Name, DType: p.DType, Shape: p.FullDims(maxBatch), Optional: p.Optional, Labels: p.Labels}
	}
	return out
}

// Metadata returns a model's metadata: versions, platform, inputs and outputs.
func (r *Repository) Metadata(name string, number int64) (*infer.Metadata, error) {
	s := r.catalog.Load()
	v, err := s.find(name, number)
	if err != nil {
		return nil, err
	}
	md := &infer.Metadata{
		Name: name, Platform: cmp.Or(v.cfg.GetPlatform(), v.cfg.GetBackend()), Versions: []string{},
		Inputs: describe(v.description.Inputs), Outputs: describe(v.description.Outputs),
	}
	for _, other := range s.called[name].versions {
		md.Versions = append(md.Versions, strconv.FormatInt(other.sig.Version, 10))
	}
	return md, nil
}

func describe(ports []infer.Port) []infer.TensorMetadata {
	list := make([]infer.TensorMetadata, len(ports))
	for i := range ports {
		p := &ports[i]
		list[i] = infer.TensorMetadata{Name: p.Name, Datatype: p.DType.String(), Shape: append([]int64{}, p.Shape.Dims()...)}
	}
	return list
}

// Config returns the completed configuration of a version.
func (r *Repository) Config(name string, number int64) (*modelconfig.ModelConfig, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	return cmp.Or(v.shownConfig.Load(), v.cfg), nil // an ensemble shows cfg
}

// Plan returns the compiled plan of a version.
func (r *Repository) Plan(name string, number int64) (*plan.Plan, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	return v.exec.Plan(), nil
}

// Stage returns the text of an ensemble after a pass of the compiler. For example, after "types".
func (r *Repository) Stage(name, after string) (string, error) {
	s := r.catalog.Load()
	m := s.called[name]
	if m == nil || m.folder.cfg == nil || !m.ensemble() {
		return "", status.Errorf(status.InvalidArg, "model '%s' is no ensemble that can be read", name)
	}
	return plan.Stages(m.folder.cfg, lookup{source: &r.source, models: s.models, home: m.key}, after)
}

// Kind returns one word for a model: the step of a native model, else the backend.
func (r *Repository) Kind(name string) string {
	m := r.catalog.Load().called[name]
	if m == nil {
		return ""
	}
	return cmp.Or(m.folder.cfg.GetParameters()[steps.Key].GetStringValue(), m.folder.cfg.GetBackend())
}

// Statistics returns the statistics of one version, of all versions of a model, or of all models.
func (r *Repository) Statistics(name string, number int64) ([]infer.Statistics, error) {
	s := r.catalog.Load()
	keys := s.keys
	if name != "" {
		m := s.called[name]
		switch {
		case m != nil && m.sharedBy > 0:
			return nil, m.ambiguous()
		case m == nil || len(m.versions) == 0:
			return nil, status.Errorf(status.InvalidArg, "requested model '%s' is not available", name)
		case number > 0 && m.version(number) == nil:
			return nil, status.Errorf(status.InvalidArg, "requested model version is not available for model '%s'", name)
		}
		keys = []string{m.key}
	}
	list := []infer.Statistics{}
	for _, key := range keys {
		for _, v := range s.models[key].versions {
			if number <= 0 || v.sig.Version == number {
				list = append(list, statistics(v.stats))
			}
		}
	}
	return list, nil
}

func statistics(m *telemetry.Model) infer.Statistics {
	all := m.Requests()
	n, computed := m.Responses(), all.Count
	s := infer.Statistics{
		Name: m.Name, Version: strconv.FormatInt(m.Version, 10),
		LastInference: m.LastInference(), InferenceCount: m.Rows(), ExecutionCount: m.Executions(),
		Inference: infer.InferenceStats{
			Success:       infer.Duration{Count: n, Ns: m.TotalNs()},
			Queue:         infer.Duration{Count: n, Ns: m.QueueNs()},
			ComputeInput:  infer.Duration{Count: computed, Ns: all.InputNs},
			ComputeInfer:  infer.Duration{Count: computed, Ns: all.InferNs},
			ComputeOutput: infer.Duration{Count: computed, Ns: all.OutputNs},
		},
		Batches: []infer.BatchStats{},
	}
	s.Inference.CacheHit.Count, s.Inference.CacheHit.Ns = m.Hits.Load()
	s.Inference.CacheMiss.Count, s.Inference.CacheMiss.Ns = m.Misses.Load()
	for i := range m.Failures {
		count, ns := m.Failures[i].Load()
		s.Inference.Fail.Count += count
		s.Inference.Fail.Ns += ns
	}
	m.Batches(func(rows int, t telemetry.Totals) bool {
		s.Batches = append(s.Batches, infer.BatchStats{
			BatchSize:     uint64(rows),
			ComputeInput:  infer.Duration{Count: t.Count, Ns: t.InputNs},
			ComputeInfer:  infer.Duration{Count: t.Count, Ns: t.InferNs},
			ComputeOutput: infer.Duration{Count: t.Count, Ns: t.OutputNs},
		})
		return true
	})
	return s
}

// Counters returns the counters of all served versions, sorted by name and version.
func (r *Repository) Counters() []inspect.Counters {
	s := r.catalog.Load()
	list := make([]inspect.Counters, 0, len(s.keys))
	for _, key := range s.keys {
		for _, v := range s.models[key].versions {
			list = append(list, v.counters(nameOf(key)))
		}
	}
	return list
}

func (v *version) counters(name string) inspect.Counters {
	p := inspect.Counters{Name: name, Version: v.sig.Version, Ensemble: config.IsEnsemble(v.cfg), Waiting: v.stats.Pending(), Edges: v.stats.Carried()}
	for _, m := range v.stats.Copies.List() {
		if m.From != m.To {
			p.CopiedBytes += m.Bytes
		}
	}
	p.Outcomes, p.Refusals = v.stats.Outcomes(), v.stats.Refusals()
	for i := range v.stats.Failures {
		n, _ := v.stats.Failures[i].Load()
		p.Failures += n
	}
	if p.Requests = v.stats.Responses(); p.Requests+p.Failures > 0 { // adding up batches takes a microsecond
		p.Rows, p.Executions = v.stats.Rows(), v.stats.Executions()
		p.QueueNs, p.ComputeNs = v.stats.QueueNs(), v.stats.Requests().InferNs
	}
	return p
}

// Graph returns the compiled plan of a version, without live figures.
func (r *Repository) Graph(name string, number int64) (*inspect.GraphView, error) {
	v, err := r.find(name, number)
	if err != nil {
		return nil, err
	}
	p := v.exec.Plan()
	g := &inspect.GraphView{Model: name, Version: v.sig.Version, Nodes: []inspect.NodeView{}, Edges: r.edges(v, p)}
	for i := range p.Nodes {
		n := r.node(p, i)
		addFlow(&n, p, v.stats)
		g.Nodes = append(g.Nodes, n)
	}
	addTraffic(g.Edges, v.stats.Carried())
	return g, nil
}

func (r *Repository) node(p *plan.Plan, i int) inspect.NodeView {
	n := &p.Nodes[i]
	v := inspect.NodeView{
		Node: i, Name: n.Label(), Model: n.Model, Version: n.Signature.Version, MaxBatch: n.Signature.MaxBatch, Site: "host",
		Places: []string{}, Lost: []string{}, Ensembles: append([]string{}, n.Ensembles...), Stream: n.Stream, Inflight: n.MaxInflight,
	}
	if n.Operation != nil {
		v.Platform = n.Kind()
	}
	if n.OnDevice {
		v.Site = "device"
	}
	v.Precision = n.Precision
	for _, at := range n.Places {
		v.Places = append(v.Places, at.String())
		if r.places.Lost(at) != nil {
			v.Lost = append(v.Lost, at.String())
		}
	}
	if m := r.stepModel(n); m != nil && n.Operation == nil {
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
	return cmp.Or(v.cfg.GetPlatform(), v.cfg.GetBackend())
}

// stepModel returns the version that a node calls, or nil if it is no longer loaded.
func (r *Repository) stepModel(n *plan.Node) *version {
	s := r.catalog.Load()
	if m := cmp.Or(s.models[n.ID], s.called[n.Model]); m != nil {
		return m.version(n.Signature.Version)
	}
	return nil
}

// edges returns the views of the tensors between the nodes of a plan. Node -1 is the request and the response.
func (r *Repository) edges(v *version, p *plan.Plan) []inspect.EdgeView {
	list := []inspect.EdgeView{}
	for to := range p.Nodes {
		n := &p.Nodes[to]
		for port, slot := range n.In {
			if slot == plan.None {
				continue
			}
			e := edge(p, slot, to, &n.Signature.Inputs[port], n.Signature.MaxBatch)
			if m := p.CopyFor(plan.InputRef{Node: int32(to), Port: int32(port)}); m != nil {
				e.Place, e.Plan = m.To.String(), p.CopyText(m)
			}
			if used := r.stepModel(n); used != nil {
				addCopies(&e, used.stats.Copies.List(), func(c *telemetry.Copy) bool { return c.Reason != telemetry.ForResponse && c.Tensor == e.Input })
			}
			list = append(list, e)
		}
		for _, slot := range n.Waits {
			e := edge(p, slot, to, &config.Port{Name: "rows", DType: tensor.Int32}, n.Signature.MaxBatch)
			e.Tensor = p.WaitLabel(slot)
			list = append(list, e)
		}
	}
	for i, slot := range p.Outputs {
		if slot == plan.None {
			continue
		}
		e := edge(p, slot, -1, &p.Signature.Outputs[i], p.Signature.MaxBatch)
		if m := p.CopyFor(plan.InputRef{Node: -1, Port: int32(i)}); m != nil {
			e.Place, e.Plan = m.To.String(), p.CopyText(m)
		}
		addCopies(&e, v.stats.Copies.List(), func(c *telemetry.Copy) bool { return c.Reason == telemetry.ForResponse && c.Tensor == e.Input })
		list = append(list, e)
	}
	return list
}

// edge returns the view of a slot that node to reads at a port.
func edge(p *plan.Plan, slot plan.Slot, to int, port *config.Port, maxBatch int) inspect.EdgeView {
	from := slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return slices.Contains(n.Out, slot) || n.Fault != nil && n.Fault.Waits == slot }) // -1: an input of the request
	shape := port.FullDims(maxBatch)
	at, why := p.PlaceOf(slot)
	return inspect.EdgeView{
		At: at, Why: why, Made: []inspect.CopyView{},
		From: from, To: to, Tensor: p.Names[slot], Input: port.Name, Type: port.DType.String(), Shape: append([]int64{}, shape.Dims()...),
	}
}

// addCopies counts the copies of an edge, those of list that belong to it.
func addCopies(e *inspect.EdgeView, list []telemetry.Copy, belongs func(*telemetry.Copy) bool) {
	for k := range list {
		c := &list[k]
		if !belongs(c) {
			continue
		}
		if c.From != c.To {
			e.Bytes += c.Bytes
			e.Copies += c.Count
		}
		i := slices.IndexFunc(e.Made, func(m inspect.CopyView) bool { return m.Direction == c.Direction() })
		if i < 0 {
			i, e.Made = len(e.Made), append(e.Made, inspect.CopyView{Direction: c.Direction()})
		}
		e.Made[i].Copies += c.Count
		e.Made[i].Bytes += c.Bytes
	}
}

// addTraffic sets the bytes that each edge carried, by place.
func addTraffic(list []inspect.EdgeView, counted []*telemetry.Edge) {
	for i := range list {
		e := &list[i]
		e.Carried = []inspect.CarriedView{}
		c := slices.IndexFunc(counted, func(c *telemetry.Edge) bool { return c.Tensor == e.Tensor })
		for at := tensor.Host; c >= 0 && at <= tensor.Device; at++ {
			if n := counted[c].Bytes(at); n > 0 {
				e.Carried = append(e.Carried, inspect.CarriedView{Place: telemetry.PlaceName(at), Bytes: n})
			}
		}
	}
}

// Platform returns the platform of a version, or "" if it does not serve.
func (r *Repository) Platform(name, number string) string {
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if v, err := r.find(name, n); err == nil {
			return platformOf(v)
		}
	}
	return ""
}
