package dynamic

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/scheduler"
)

// near batches works of near lengths. It starts from the oldest work, which so never
// starves, and adds the work whose length is nearest as long as that pays. Where
// neither preferred sizes nor a delay say what batches are wanted, it takes no more
// than its instance's share of all rows: one instance that takes everything leaves
// the others with batches of one.
type near struct {
	rules Rules
	cost  cost
}

var _ scheduler.Learner = (*near)(nil)

// Decide forms a batch around the oldest work.
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

// share returns how many rows are an instance's part of those queued and executing.
func share(v *scheduler.View) int32 {
	n := max(v.Instances, 1)
	return (v.Executing + v.Queued + n - 1) / n
}

// Observe learns what an execution of that size costs.
func (p *near) Observe(x scheduler.Executed) {
	p.cost.observe(float64(x.Unpadded), float64(x.Padding), x.Duration)
}

// nearest returns the position of the work nearest in length to first among those
// that may join and are not taken, the oldest among equals, or -1.
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
