package isolate

import (
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// restarts counts the restarts of a model's processes, and the requests that cause them repeatedly. Nil counts nothing.
type restarts struct {
	families []*telemetry.CustomFamily
	counts   []*telemetry.CustomMetric
}

// Names of the metrics.
const (
	restartsName = "tutti_isolated_restarts_total"
	repeatedName = "tutti_isolated_repeated_crashes_total"
)

func countRestarts(m *telemetry.Metrics, s *backends.Settings) *restarts {
	if m == nil {
		return nil
	}
	r := &restarts{}
	for _, f := range [][2]string{
		{restartsName, "Number of processes of isolated instances that were started again"},
		{repeatedName, "Number of times that a request has ended a process of an isolated instance again"},
	} {
		family, err := m.Custom(f[0], f[1], telemetry.CustomCounter)
		if err != nil { // a model has a family of that name
			r.close()
			return nil
		}
		r.families = append(r.families, family)
		count, err := family.Metric(map[string]string{"model": s.Model, "version": strconv.FormatInt(s.Version, 10)}, nil)
		if err != nil {
			r.close()
			return nil
		}
		r.counts = append(r.counts, count)
	}
	return r
}

func (r *restarts) started() { r.add(0) }

func (r *restarts) repeated() { r.add(1) }

func (r *restarts) add(i int) {
	if r != nil {
		_ = r.counts[i].Add(1) // it cannot fail for a counter
	}
}

func (r *restarts) close() {
	if r == nil {
		return
	}
	for _, c := range r.counts {
		c.Drop()
	}
	for _, f := range r.families {
		f.Drop()
	}
}
