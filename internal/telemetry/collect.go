package telemetry

import (
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/tutti-server/tutti/core/tensor"
)

// scraped is one model during a scrape.
type scraped struct {
	*series
	m *Model
	a *arena
}

// with returns the model's labels and further ones, given as pairs of name and value.
func (s *scraped) with(pairs ...string) []*dto.LabelPair {
	list := slices.Grow(slices.Clone(s.labels), len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	sortLabels(list)
	return list
}

// distribution appends the histogram of a tally, none for nil.
func (s *scraped) distribution(list []*dto.Metric, t *tally, labels []*dto.LabelPair) []*dto.Metric {
	if t == nil {
		return list
	}
	return append(list, t.histogram(s.a, labels, nil))
}

func batchesOf(s *scraped, list []*dto.Metric) []*dto.Metric {
	return s.distribution(list, s.m.batchTally(s.a), s.labels)
}

func depthsOf(s *scraped, list []*dto.Metric) []*dto.Metric {
	return s.distribution(list, s.m.depthTally(s.a), s.labels)
}

func slackOf(s *scraped, list []*dto.Metric) []*dto.Metric {
	return s.distribution(list, s.m.slackTally(s.a), s.labels)
}

func paddingOf(s *scraped, list []*dto.Metric) []*dto.Metric {
	return s.distribution(list, s.m.paddingTally(s.a), s.labels)
}

// phasesOf returns a histogram for each phase with a positive duration.
func phasesOf(s *scraped, list []*dto.Metric) []*dto.Metric {
	for p := range numPhases {
		t := s.m.phase(s.a, p)
		if t == nil {
			continue
		}
		if s.phases[p] == nil {
			s.phases[p] = s.with("phase", phaseNames[p])
		}
		var seen *exemplars
		if p == inTotal {
			seen = s.m.exemplars.Load()
		}
		list = append(list, t.histogram(s.a, s.phases[p], seen))
	}
	return list
}

// stepPhasesOf returns the same for each step of an ensemble.
func stepPhasesOf(s *scraped, list []*dto.Metric) []*dto.Metric {
	g := s.m.graph.Load()
	if g == nil {
		return list
	}
	for _, step := range g.steps {
		for p := range numPhases {
			if t := step.phase(s.a, p); t != nil {
				list = s.distribution(list, t, s.with("node", valid(step.name), "phase", phaseNames[p]))
			}
		}
	}
	return list
}

var placeNames = [...]string{tensor.Host: "host", tensor.Pinned: "pinned", tensor.Device: "device"}

// edgesOf returns the bytes of an ensemble's tensors by place.
func edgesOf(s *scraped, list []*dto.Metric) []*dto.Metric {
	for _, e := range s.m.Carried() {
		for at, name := range placeNames {
			if n := e.Bytes(tensor.Kind(at)); n > 0 {
				list = append(list, s.a.number(counter, float64(n), s.with("place", name, "tensor", valid(e.Tensor))))
			}
		}
	}
	return list
}

// refusalsOf returns the refusals that have happened by reason.
func refusalsOf(s *scraped, list []*dto.Metric) []*dto.Metric {
	for r := range numRefusals {
		if n := s.m.Refusals(r); n > 0 {
			list = append(list, s.a.number(counter, float64(n), s.with("reason", r.String())))
		}
	}
	return list
}

// gpuMetrics returns a family's metrics of the GPUs that report its value.
func gpuMetrics(a *arena, f *family, gpus []GPU) (list []*dto.Metric) {
	for i := range gpus {
		n := f.gpu(&gpus[i])
		if n < 0 {
			continue
		}
		name, uuid := "gpu_uuid", valid(gpus[i].UUID)
		list = append(list, a.number(f.kind, n, []*dto.LabelPair{{Name: &name, Value: &uuid}}))
	}
	return list
}
