package exec

import "github.com/tutti-server/tutti/internal/telemetry"

// flowCounters count what conditions and failures decided, per node. Each list is nil for a plan without any.
type flowCounters struct {
	conditions   []*telemetry.Condition
	replacements []*telemetry.Replacement
}

// newFlowCounters returns the counters of an executor's plan.
func newFlowCounters(x *Executor) (c flowCounters) {
	for i := range x.plan.Nodes {
		n := &x.plan.Nodes[i]
		if n.Operation != nil && n.Operation.When != nil {
			if c.conditions == nil {
				c.conditions = make([]*telemetry.Condition, len(x.plan.Nodes))
			}
			c.conditions[i] = x.statistics().ConditionOf(n.Owner())
		}
		if n.Fault != nil && n.Fault.Absorbed {
			if c.replacements == nil {
				c.replacements = make([]*telemetry.Replacement, len(x.plan.Nodes))
			}
			c.replacements[i] = x.statistics().ReplacementOf(n.Name, n.Fault.Fallback)
		}
	}
	return c
}

// fanOutCounters returns the counters of the fan-out that a node stands for.
func (x *Executor) fanOutCounters(node int) *telemetry.FanOut {
	return x.statistics().FanOutOf(x.plan.Nodes[node].Owner())
}

// statistics returns those of the ensemble. Those of an executor without any are read by nobody.
func (x *Executor) statistics() *telemetry.Model {
	if x.stats == nil {
		return &telemetry.Model{}
	}
	return x.stats
}
