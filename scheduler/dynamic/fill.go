package dynamic

import "github.com/tutti-server/tutti/scheduler"

var (
	_ scheduler.Filler = (*equal)(nil)
	_ scheduler.Filler = (*near)(nil)
)

// fills adds background tasks to batches of online tasks that execute anyway.
type fills struct{ asked int }

const (
	// noticeable is the part of a batch's time by which background tasks may lengthen it.
	noticeable = 0.05
	// exploreUnknown and exploreKnown are how many batches follow the last one to which a task was added to learn what that costs: while
	// there is no estimate, because all batches have the same size, and later.
	exploreUnknown = 16
	exploreKnown   = 256
)

// Fill implements scheduler.Filler: as many items as the batch has room for and its time allows.
func (p *equal) Fill(b scheduler.Formed, items []scheduler.Item, scratch []int32) []int32 {
	base := p.cost.of(float64(b.Elements), 0)
	return p.fills.fill(&p.rules, &p.cost, b, items, scratch, base, func(it *scheduler.Item) (extra float64, fits bool) {
		return p.cost.fit[1] * float64(it.Elements), true
	})
}

// Fill implements scheduler.Filler: items that are not longer than the batch, so that no online row has more padding.
func (p *near) Fill(b scheduler.Formed, items []scheduler.Item, scratch []int32) []int32 {
	padding := int64(b.Rows)*int64(b.Length) - b.Unpadded
	base := p.cost.of(float64(b.Unpadded), float64(padding))
	return p.fills.fill(&p.rules, &p.cost, b, items, scratch, base, func(it *scheduler.Item) (extra float64, fits bool) {
		if it.Length > b.Length {
			return 0, false
		}
		rows := float64(it.Rows)
		return p.cost.fit[1]*rows*float64(it.Length) + p.cost.fit[2]*rows*float64(b.Length-it.Length), true
	})
}

// fill returns the items that join a batch which takes base ns; extra is what an item adds.
func (f *fills) fill(r *Rules, c *cost, b scheduler.Formed, items []scheduler.Item, take []int32, base float64, extra func(*scheduler.Item) (float64, bool)) []int32 {
	most := r.MaxBatch
	if p := r.largestPreferred(); b.Rows <= p {
		most = p
	}
	f.asked++
	explores := f.asked%exploreKnown == 0 || !c.known() && f.asked%exploreUnknown == 0
	rows, added := b.Rows, 0.0
	for i := range items {
		it := &items[i]
		x, fits := extra(it)
		if !fits || rows+it.Rows > most || int64(rows+it.Rows)*int64(b.Length) > r.MaxElements {
			continue
		}
		if !c.known() || added+x > noticeable*base {
			// A task that is not larger than the batch at most doubles its time.
			if explores && it.Rows <= b.Rows && it.Elements <= b.Elements {
				return append(take, int32(i))
			}
			continue
		}
		take = append(take, int32(i))
		rows += it.Rows
		added += max(x, 0)
	}
	return take
}
