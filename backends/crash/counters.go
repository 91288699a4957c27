package crash

import (
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Counter is the name of a metric, and its help text.
type Counter struct{ Name, Help string }

// Counters are metrics of a model's processes, with its name and version. Nil counts nothing.
type Counters struct {
	families []*telemetry.CustomFamily
	counts   []*telemetry.CustomMetric
}

// Count declares metrics. It returns nil where there are no metrics, and where a model has one of these names.
func Count(m *telemetry.Metrics, s *backends.Settings, list ...Counter) *Counters {
	if m == nil {
		return nil
	}
	c := &Counters{}
	for _, x := range list {
		family, err := m.Custom(x.Name, x.Help, telemetry.CustomCounter)
		if err != nil {
			c.Close()
			return nil
		}
		c.families = append(c.families, family)
		count, err := family.Metric(map[string]string{"model": s.Model, "version": strconv.FormatInt(s.Version, 10)}, nil)
		if err != nil {
			c.Close()
			return nil
		}
		c.counts = append(c.counts, count)
	}
	return c
}

// Add adds one to counter i of those declared.
func (c *Counters) Add(i int) {
	if c != nil {
		_ = c.counts[i].Add(1) // it cannot fail for a counter
	}
}

// Close removes the metrics.
func (c *Counters) Close() {
	if c == nil {
		return
	}
	for _, x := range c.counts {
		x.Drop()
	}
	for _, f := range c.families {
		f.Drop()
	}
}
