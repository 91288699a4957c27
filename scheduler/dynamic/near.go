package dynamic

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/scheduler"
)

// near batches tasks of similar lengths. It starts with the oldest task, which therefore never starves, and adds
// the task with the nearest length as long as the padding is worth it. Unless preferred sizes or a delay are
// configured, it takes at most its instance's share of all rows: an instance that takes everything leaves the
// others with batches of one. For example, of the lengths 7, 8, 100 and 6 it batches 7, 8 and 6.
type near struct {
	rules Rules
	cost  cost
}

var _ scheduler.Learner = (*near)(nil)

// Decide forms a batch around the oldest task.
func (p *near) Decide(now int64, v scheduler.View, scratch []int32) scheduler.Decision {
	first := &v.Items[0]
	g := growth{rules: &p.rules, take: scratch}
	g.add(0, first)
	longest, most := first.Length, p.rules.MaxBatch
	enough := math.MaxFloat64
	if p.rules.learns() {
		most, enough = share(&v), p.cost.useful()
	}
	for !g.full {
		i := nearest(v.Items, g.take, first)
		if i < 0 {
			break
		}
		it := &v.Items[i]
		if g.rows+it.Rows > most || float64(g.rows)*float64(longest) >= enough && !explores(&p.cost, &g) {
			break
		}
		grown := max(longest, it.Length)
		padding := int64(g.rows)*int64(grown-longest) + int64(it.Rows)*int64(grown-it.Length)
		if int64(g.rows+it.Rows)*int64(grown) > p.rules.MaxElements || !p.cost.pays(padding) {
			break
		}
		g.add(i, it)
		longest = grown
	}
	d := g.decide(now, &v)
	slices.Sort(d.Take)
	return d
}

// share returns an instance's part of the queued and executing rows.
func share(v *scheduler.View) int32 {
	n := max(v.Instances, 1)
	return (v.Executing + v.Queued + n - 1) / n
}

// Observe adds an execution to the cost estimate.
func (p *near) Observe(x scheduler.Executed) {
	p.cost.observe(float64(x.Unpadded), float64(x.Padding), x.Duration)
}

// nearest returns the position of the task with the length nearest to first among those with its shape that are not
// taken. It returns the oldest among equals, or -1.
func nearest(items []scheduler.Item, taken []int32, first *scheduler.Item) int32 {
	best, distance := int32(-1), int32(0)
	for i := range items {
		it := &items[i]
		if it.Shape != first.Shape {
			continue
		}
		d := it.Length - first.Length
		d = max(d, -d)
		if (best < 0 || d < distance) && !slices.Contains(taken, int32(i)) {
			best, distance = int32(i), d
		}
	}
	return best
}
