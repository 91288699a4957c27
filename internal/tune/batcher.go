package tune

import (
	"time"

	"github.com/tutti-server/tutti/scheduler"
)

// batcher simulates the queue in front of a model's instances.
type batcher struct {
	x        *simulation
	inline   bool
	cost     *Cost
	policy   scheduler.Policy  // nil: one request at a time
	learner  scheduler.Learner // the policy, when it learns
	window   int               // tasks that the policy sees
	free     int               // instances
	all      int
	queued   []queued
	rows     int32 // queued
	running  int32 // rows that execute
	alarm    *alarm
	total    int64 // rows that have executed
	executed int64
}

// queued is one request at one node in the queue.
type queued struct {
	r    *request
	node int
	item scheduler.Item
}

func newBatcher(x *simulation, model int) (*batcher, error) {
	m, s := &x.s.Network.Models[model], &x.s.Settings[model]
	q := &batcher{x: x, inline: m.Inline && !s.Batching, cost: m.cost(s), free: s.Instances, all: s.Instances}
	rules, ok, err := m.rules(s)
	if err != nil || !ok {
		return q, err
	}
	q.policy, q.window = rules.Policy(), rules.Window()
	if q.learner, _ = q.policy.(scheduler.Learner); q.learner != nil {
		q.train(x.s.Network, model, rules.MaxBatch)
	}
	return q, nil
}

// train lets the policy learn what it would know of a server that has run for some time: the costs of batches of each sample.
func (q *batcher) train(n *Network, model int, largest int32) {
	node := 0
	for n.Nodes[node].Model != model {
		node++
	}
	for i := range lessons {
		size := n.Samples[i%len(n.Samples)].Sizes[node]
		var b Batch
		for rows := int32(1 + i%8); b.Rows < min(rows, largest); {
			b.add(&size)
		}
		q.learn(&b, int64(b.Rows)*int64(b.Length), q.cost.Wall(&b)*q.x.slow)
	}
}

// lessons are enough observations for every policy.
const lessons = 400

func (q *batcher) learn(b *Batch, unpadded int64, wall float64) {
	if q.learner != nil {
		q.learner.Observe(scheduler.Executed{
			Rows: int64(b.Rows), Elements: b.Elements, Unpadded: unpadded, Padding: int64(b.Rows)*int64(b.Length) - unpadded, Duration: time.Duration(wall),
		})
	}
}

// push queues a request.
func (q *batcher) push(r *request, node int) {
	s := &r.sample.Sizes[node]
	q.rows += s.Rows
	q.queued = append(q.queued, queued{r, node, scheduler.Item{
		Shape: s.Shape, Length: s.Length, Rows: s.Rows, Elements: s.Elements, Enqueued: int64(q.x.cores.now),
	}})
}

// serve executes batches while there are free instances and the policy forms batches.
func (q *batcher) serve() {
	for q.free > 0 && len(q.queued) > 0 {
		take, wait := q.form()
		if len(take) == 0 {
			q.wake(wait)
			return
		}
		q.execute(q.pull(take))
	}
}

// form asks the policy for a batch of the oldest request's shape. It returns positions in the queue.
func (q *batcher) form() (take []int, wait time.Duration) {
	if q.policy == nil {
		return []int{0}, 0
	}
	v := scheduler.View{Instances: int32(q.all), Executing: q.running, Queued: q.rows} //nolint:gosec // instances are few
	var positions []int
	for i := range q.queued {
		item := &q.queued[i].item
		switch {
		case item.Shape != q.queued[0].item.Shape:
			v.Closed = true
		case len(v.Items) == q.window:
			v.More = true
		default:
			v.Items, positions = append(v.Items, *item), append(positions, i)
		}
	}
	d := q.policy.Decide(int64(q.x.cores.now), v, nil)
	for _, i := range d.Take {
		take = append(take, positions[i])
	}
	return take, d.Wait
}

// pull takes the requests at ascending positions out of the queue.
func (q *batcher) pull(positions []int) (batch []queued) {
	kept := q.queued[:0]
	for i := range q.queued {
		if len(positions) > 0 && positions[0] == i {
			batch, positions = append(batch, q.queued[i]), positions[1:]
			q.rows -= q.queued[i].item.Rows
			continue
		}
		kept = append(kept, q.queued[i])
	}
	clear(q.queued[len(kept):])
	q.queued = kept
	return batch
}

func (q *batcher) execute(batch []queued) {
	var b Batch
	unpadded := int64(0)
	for i := range batch {
		s := &batch[i].r.sample.Sizes[batch[i].node]
		b.add(s)
		unpadded += int64(s.Rows) * int64(s.Length)
	}
	q.count(&b)
	q.free--
	q.running += b.Rows
	began := q.x.cores.now
	wall := q.cost.Wall(&b)
	q.x.cores.begin(wall*q.x.slow, q.cost.Width, q.cost.interference(wall), func() {
		q.free++
		q.running -= b.Rows
		q.learn(&b, unpadded, q.x.cores.now-began)
		q.serve()
		for len(batch) > 0 { // a group for each node that shares the model
			var group []*request
			var rest []queued
			for i := range batch {
				if batch[i].node == batch[0].node {
					group = append(group, batch[i].r)
				} else {
					rest = append(rest, batch[i])
				}
			}
			q.x.leave(group, batch[0].node)
			batch = rest
		}
	})
}

func (q *batcher) count(b *Batch) {
	q.total += int64(b.Rows)
	q.executed++
}

// wake has the policy asked again after a delay, unless that will happen earlier anyway.
func (q *batcher) wake(wait time.Duration) {
	at := q.x.cores.now + float64(wait)
	if q.alarm != nil && q.alarm.at <= at && q.alarm.at > q.x.cores.now {
		return
	}
	q.alarm = q.x.at(at, func() { q.serve() })
}

// alarm is a function to call at a time.
type alarm struct {
	at   float64
	ring func()
}

// alarms is a heap of alarms by time.
type alarms []*alarm

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at < a[j].at }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *alarms) Push(x any) { *a = append(*a, x.(*alarm)) } //nolint:errcheck // no other type is pushed

// Pop implements heap.Interface.
func (a *alarms) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}
