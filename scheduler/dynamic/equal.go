package dynamic

import (
	"time"

	"github.com/tutti-server/tutti/scheduler"
)

// equal batches tasks of equal shapes. Unless preferred sizes or a delay are configured, it estimates the cost of
// executions: a batch stops growing where the gain is small, and it leaves to other instances the tasks that they
// would complete earlier.
type equal struct {
	rules Rules
	cost  cost
	last  int64 // elements of the last execution
	same  int   // executions of that size in a row
}

var _ scheduler.Learner = (*equal)(nil)

// Decide forms a batch from the first task on. The batch executes at once when it has a preferred size (the largest
// within reach), when it cannot grow or when no delay is set; otherwise when its oldest task has waited for the
// delay.
//
// hot: asked for every batch.
func (p *equal) Decide(now int64, v scheduler.View, scratch []int32) scheduler.Decision {
	g := growth{rules: &p.rules, take: scratch}
	learns := p.rules.learns() && p.cost.known()
	most, enough := p.rules.MaxBatch, 0.0
	if learns {
		most, enough = p.most(&v), p.cost.useful()
	}
	elements := 0.0
	for i := range v.Items {
		it := &v.Items[i]
		if it.Shape != v.Items[0].Shape {
			continue
		}
		if learns && i > 0 && (g.rows+it.Rows > most || elements >= enough && !explores(&p.cost, &g)) {
			break
		}
		elements += float64(it.Elements)
		if !g.add(int32(i), it) {
			break
		}
	}
	return g.decide(now, &v)
}

// most returns the rows to take so that free instances get their share, if sharing is worth it.
func (p *equal) most(v *scheduler.View) int32 {
	if v.Instances < 2 {
		return p.rules.MaxBatch
	}
	part, all := share(v), min(v.Queued, p.rules.MaxBatch)
	perRow := float64(v.Items[0].Elements) / float64(max(v.Items[0].Rows, 1))
	if part < all && p.cost.splits(perRow*float64(all-part)) {
		return part
	}
	return p.rules.MaxBatch
}

// explores reports whether a batch of one may take another task to correct the estimate.
func explores(c *cost, g *growth) bool { return len(g.take) == 1 && c.exploring() }

// Observe adds an execution to the cost estimate. Of executions of equal size in a row, which add no information,
// one in eight counts.
func (p *equal) Observe(x scheduler.Executed) {
	if !p.rules.learns() {
		return
	}
	if x.Elements == p.last {
		if p.same++; p.same%8 != 0 {
			return
		}
	} else {
		p.last, p.same = x.Elements, 0
	}
	p.cost.observe(float64(x.Elements), 0, x.Duration)
}

// growth is a batch that grows task by task.
type growth struct {
	rules  *Rules
	take   []int32
	rows   int32
	full   bool  // a task did not fit, or the batch has the largest size
	best   int   // tasks at the largest preferred size so far, or before all preferred sizes were exceeded
	oldest int64 // when the oldest of the tasks was enqueued
}

// add adds task i and reports whether the batch may grow further. The first task is always added. If a task would
// exceed the largest preferred size before any preferred size was reached, the batch without it is the one to
// execute at once.
func (g *growth) add(i int32, it *scheduler.Item) bool {
	if len(g.take) > 0 && g.best == 0 && g.rows+it.Rows > g.rules.largestPreferred() {
		g.best = len(g.take)
	}
	if len(g.take) > 0 && g.rows+it.Rows > g.rules.MaxBatch {
		g.full = true
		return false
	}
	if len(g.take) == 0 || it.Enqueued < g.oldest {
		g.oldest = it.Enqueued
	}
	g.take = append(g.take, i)
	g.rows += it.Rows
	for _, p := range g.rules.Preferred {
		if p == g.rows {
			g.best = len(g.take)
		}
	}
	g.full = g.rows >= g.rules.MaxBatch
	return !g.full
}

// decide returns the tasks that execute now; with View.Flush all of them.
func (g *growth) decide(now int64, v *scheduler.View) scheduler.Decision {
	left := int64(g.rules.Delay) - (now - g.oldest)
	expired := v.Flush || g.rules.Delay > 0 && left <= 0
	switch {
	case g.best > 0 && !expired:
		return scheduler.Decision{Take: g.take[:g.best]}
	case g.full || v.Flush || v.Closed || left <= 0 || g.rows >= g.rules.largestPreferred():
		return scheduler.Decision{Take: g.take}
	default:
		return scheduler.Decision{Wait: time.Duration(left)}
	}
}
