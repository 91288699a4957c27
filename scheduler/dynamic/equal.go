package dynamic

import (
	"time"

	"tutti/scheduler"
)

// equal batches works whose shapes agree with the oldest one's.
type equal struct {
	rules Rules
}

// Decide grows a batch from the oldest work on. It goes at once when a preferred
// size is reached (the largest within reach), when it can grow no more or when no
// delay is set; else when the oldest work has waited long enough.
func (p *equal) Decide(now int64, v scheduler.View, scratch []int32) scheduler.Decision {
	g := growth{rules: &p.rules, take: scratch}
	for i := range v.Items {
		if it := &v.Items[i]; it.Shape == v.Items[0].Shape && !g.add(int32(i), it.Rows) {
			break
		}
	}
	return g.decide(now, v.Items[0].Enqueued)
}

// growth is a batch that grows row by row.
type growth struct {
	rules *Rules
	take  []int32
	rows  int32
	full  bool // a work was left out for want of room, or there is none left
	best  int  // works at the largest preferred size so far
}

// add takes work i and reports whether the batch may grow further. The first work
// is always taken.
func (g *growth) add(i, rows int32) bool {
	if len(g.take) > 0 && g.rows+rows > g.rules.MaxBatch {
		g.full = true
		return false
	}
	g.take = append(g.take, i)
	g.rows += rows
	for _, p := range g.rules.Preferred {
		if p == g.rows {
			g.best = len(g.take)
		}
	}
	g.full = g.rows >= g.rules.MaxBatch
	return !g.full
}

func (g *growth) decide(now, oldest int64) scheduler.Decision {
	left := int64(g.rules.Delay) - (now - oldest)
	expired := g.rules.Delay > 0 && left <= 0
	switch {
	case g.best > 0 && !expired:
		return scheduler.Decision{Take: g.take[:g.best]}
	case g.full || left <= 0:
		return scheduler.Decision{Take: g.take}
	default:
		return scheduler.Decision{Wait: time.Duration(left)}
	}
}
