package telemetry

import (
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/tutti-server/tutti/core/tensor"
)

// scrape collects the metrics of one family after another.
type scrape struct {
	x      *Metrics
	a      *arena
	models []*Model
	f      *family
	list   []*dto.Metric // of f
}

// number appends a counter or a gauge, as the family is.
func (c *scrape) number(v float64, labels []*dto.LabelPair) {
	c.list = append(c.list, c.a.number(c.f.kind, v, labels))
}

// distribution appends the histogram of a tally, none for nil.
func (c *scrape) distribution(t *tally, labels []*dto.LabelPair, seen *exemplars) {
	if t != nil {
		c.list = append(c.list, t.histogram(c.a, labels, seen))
	}
}

// with returns the model's labels and further ones, given as pairs of name and value.
func (s *series) with(pairs ...string) []*dto.LabelPair {
	list := slices.Grow(slices.Clone(s.labels), len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	sortLabels(list)
	return list
}

// withOne returns the model's labels and one more, of which there are few values.
func (s *series) withOne(name, value string) []*dto.LabelPair {
	key := [2]string{name, value}
	if s.more[key] == nil {
		s.more[key] = s.with(name, value)
	}
	return s.more[key]
}

// each returns a family's values of all models of which it is exported.
func each(add func(*scrape, *series, *Model)) func(*scrape) {
	return func(c *scrape) {
		for _, m := range c.models {
			if s := c.x.models[m]; c.f.when.model == nil || c.f.when.model(s, m) {
				add(c, s, m)
			}
		}
	}
}

func ofServer(value func(*Metrics) float64) func(*scrape) {
	return func(c *scrape) { c.number(value(c.x), nil) }
}

func cacheCounts(value func(CacheCounts) float64) func(*scrape) {
	return func(c *scrape) { c.number(value(c.x.counts), nil) }
}

func perModel(value func(*Model) float64) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) { c.number(value(m), s.labels) })
}

func micros(ns func(*Model) uint64) func(*scrape) {
	return perModel(func(m *Model) float64 { return float64(ns(m) / nsPerUs) })
}

func events(of func(*Model) *Duration) func(*scrape) {
	return perModel(func(m *Model) float64 { return float64(of(m).count.Load()) })
}

func spent(of func(*Model) *Duration) func(*scrape) {
	return micros(func(m *Model) uint64 { return of(m).ns.Load() })
}

func tallies(of func(*Model, *arena) *tally) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) { c.distribution(of(m, c.a), s.labels, nil) })
}

func quantiles(which observed) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) {
		v := &dto.Metric{}
		if l := m.latencies.Load(); l != nil && l.summaries[which] != nil && l.summaries[which].Write(v) == nil {
			v.Label = s.labels
			c.list = append(c.list, v)
		}
	})
}

func firstResponses(c *scrape, s *series, m *Model) {
	if l := m.latencies.Load(); l != nil && l.first != nil {
		c.list = append(c.list, l.first.write(s.labels))
	}
}

func failuresOf(c *scrape, s *series, m *Model) {
	for r := range numReasons {
		c.number(float64(m.failures(r)), s.withOne("reason", r.String()))
	}
}

// refusalsOf appends the refusals that have happened by reason.
func refusalsOf(c *scrape, s *series, m *Model) {
	for r := range numRefusals {
		if n := m.refused[r].Load(); n > 0 {
			c.number(float64(n), s.withOne("reason", r.String()))
		}
	}
}

// phasesOf appends a histogram for each phase with a positive duration.
func phasesOf(c *scrape, s *series, m *Model) {
	for p := range numPhases {
		if t := m.phase(c.a, p); t != nil {
			var seen *exemplars
			if p == inTotal {
				seen = m.exemplars.Load()
			}
			c.distribution(t, s.withOne("phase", phaseNames[p]), seen)
		}
	}
}

// stepPhasesOf appends the same for each step of an ensemble.
func stepPhasesOf(c *scrape, s *series, m *Model) {
	for _, step := range all(&m.steps) {
		for p := range numPhases {
			if t := step.phase(c.a, p); t != nil {
				c.distribution(t, s.with("node", valid(step.name), "phase", phaseNames[p]), nil)
			}
		}
	}
}

// edgesOf appends the bytes of an ensemble's tensors by place.
func edgesOf(c *scrape, s *series, m *Model) {
	for _, e := range m.Carried() {
		for at, name := range placeNames {
			if n := e.Bytes(tensor.Kind(at)); n > 0 {
				c.number(float64(n), s.with("place", name, "tensor", valid(e.Tensor)))
			}
		}
	}
}

// perMove returns a value of a model's copies between places.
func perMove(value func(*Move) uint64) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) {
		for _, v := range m.Moves.List() {
			labels := s.with("tensor", valid(v.Tensor), "from", valid(v.From.String()), "to", valid(v.To.String()), "reason", v.Reason.String())
			c.number(float64(value(&v)), labels)
		}
	})
}

// perGPU returns a value of the GPUs that report it.
func perGPU(value func(*GPU) float64) func(*scrape) {
	return func(c *scrape) {
		for i := range c.x.gpus {
			if n := value(&c.x.gpus[i]); n >= 0 {
				name, uuid := "gpu_uuid", valid(c.x.gpus[i].UUID)
				c.number(n, []*dto.LabelPair{{Name: &name, Value: &uuid}})
			}
		}
	}
}
