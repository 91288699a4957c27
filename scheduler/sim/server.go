package sim

import (
	"slices"

	"github.com/tutti-server/tutti/scheduler/deadline"
)

// server is the server's policy: that of package deadline.
type server struct {
	base
	route   *deadline.Route
	latency []deadline.Latency // by node
	depth   []int              // by node
	picks   []deadline.Candidate
}

func newServer(b base) *server {
	nodes := b.x.nodes
	p := &server{base: b, latency: make([]deadline.Latency, len(nodes)), depth: make([]int, len(nodes))}
	after, device := make([][]int32, len(nodes)), make([]int32, len(nodes))
	for i, n := range nodes {
		for _, a := range n.After {
			after[i] = append(after[i], int32(a)) //nolint:gosec // nodes are few
			p.depth[i] = max(p.depth[i], p.depth[a]+1)
		}
		for j, d := range b.x.devices {
			if d == n.device {
				device[i] = int32(j) //nolint:gosec // nodes are few
			}
		}
	}
	p.route = deadline.NewRoute(after, device)
	return p
}

func (p *server) observe(n *node, rows int, took float64) {
	p.latency[n.index].Observe(float64(rows), float64(rows), int64(took))
}

func (*server) enqueue(n *node, t *task) {
	t.due = t.r.deadline
	insert(n, t)
}

// refresh sets the stages of the route.
func (p *server) refresh() {
	for i, n := range p.x.nodes {
		l, s := &p.latency[i], &p.route.Stages[i]
		*s = deadline.Stage{Busy: int64(n.device.freeAt(p.x.now) - p.x.now)}
		queued := len(n.queue)
		s.Rows, s.Instances, s.MaxBatch = float64(queued), n.Instances, n.MaxBatch
		s.Work = int64(queued/n.MaxBatch) * l.Of(float64(n.MaxBatch))
		if rest := queued % n.MaxBatch; rest > 0 {
			s.Work += l.Of(float64(rest))
		}
		s.Work /= int64(n.Instances)
		s.Latency = *l
	}
}

// margins judges a batch of so many rows at a node.
func (p *server) margins(n *node, rows int) deadline.Margins {
	l := &p.latency[n.index]
	m := deadline.Margins{Now: int64(p.x.now), Batch: l.Of(float64(rows)), Deviation: l.Deviation()}
	ends, _ := p.route.After(n.index, m.Batch, float64(rows))
	m.Rest = ends - m.Batch
	return m
}

func (p *server) admit(r *request) bool {
	p.refresh()
	ends, _ := p.route.After(deadline.Arrival, 0, 1)
	return p.route.Doubt()*float64(ends) <= r.deadline-p.x.now
}

func (p *server) next(d *device) (*node, []*task) {
	for {
		p.refresh()
		n := p.choose(d)
		if n == nil {
			return nil, nil
		}
		if batch := p.form(n); len(batch) > 0 {
			return n, batch
		}
	}
}

// form takes a batch: of the tasks with room to spare if they fill it, else of all that can be in time.
func (p *server) form(n *node) (batch []*task) {
	size := min(n.MaxBatch, len(n.queue))
	for {
		m := p.margins(n, size)
		ends, kept, safe := float64(m.Ends()), n.queue[:0], 0
		for _, t := range n.queue {
			if t.r.gone || ends > t.r.deadline {
				p.x.drop(t.r)
				continue
			}
			kept = append(kept, t)
			if float64(m.Safe()) <= t.r.deadline {
				safe++
			}
		}
		n.queue = kept
		if len(kept) < size {
			if size = len(kept); size > 0 {
				continue
			}
			return nil
		}
		from := 0
		if safe >= n.MaxBatch {
			from = len(kept) - safe
		}
		batch = append(batch, kept[from:from+size]...)
		n.queue = slices.Delete(kept, from, from+size)
		return batch
	}
}

func (p *server) choose(d *device) *node {
	p.picks = p.picks[:0]
	var nodes []*node
	for _, n := range d.nodes {
		if n.busy >= n.Instances || len(n.queue) == 0 {
			continue
		}
		rows := min(len(n.queue), n.MaxBatch)
		m := p.margins(n, rows)
		closes := int64(n.queue[0].r.deadline) - (m.Safe() - m.Now)
		nodes = append(nodes, n)
		p.picks = append(p.picks, deadline.Candidate{
			Batch: m.Batch, Rows: rows, Most: n.MaxBatch, Full: float64(p.latency[n.index].Of(float64(n.MaxBatch))) / float64(n.MaxBatch), Closes: closes, Depth: p.depth[n.index],
		})
	}
	if i := deadline.Pick(int64(p.x.now), p.picks); i >= 0 {
		return nodes[i]
	}
	return nil
}
