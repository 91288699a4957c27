package dynamic

import (
	"time"

	"github.com/tutti-server/tutti/scheduler"
)

// equal batches works whose shapes agree. Where neither preferred sizes nor a delay
// say what batches are wanted, it learns what executions cost: a batch stops growing
// where that gains next to nothing, and leaves to other instances what they can do at
// the same time for less than it would wait here.
type equal struct {
	rules Rules
	cost  cost
	last  int64 // elements of the last execution
	same  int   // executions of that size in a row
}

var _ scheduler.Learner = (*equal)(nil)

// Decide grows a batch from the first work on. It goes at once when a preferred size
// is reached (the largest within reach), when it can grow no more or when no delay is
// set; else when the oldest of its works has waited long enough.
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

// most returns how many rows to take so that free instances have their share, if
// sharing pays.
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

// explores reports whether a batch of one may have one more to learn from.
func explores(c *cost, g *growth) bool { return len(g.take) == 1 && c.exploring() }

// Observe learns what an execution of that size costs. Of equal sizes in a row, which
// tell the same, one in eight counts.
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

// growth is a batch that grows row by row.
type growth struct {
	rules  *Rules
	take   []int32
	rows   int32
	full   bool  // a work was left out for want of room, or there is none left
	best   int   // works at the largest preferred size so far, or before all of these were exceeded
	oldest int64 // when the first of the works came
}

// add takes work i and reports whether the batch may grow further. The first work
// is always taken. Where a work would exceed the largest preferred size before any such
// size was reached, the batch without it is the one to run at once.
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

// decide returns what of the works goes now; in a hurry it is all of them.
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
