package queue

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/scheduler"
)

// naive is a reference queue: it sorts all tasks on every change.
type naive struct {
	levels Levels
	works  []*naiveEntry // in order of service
	moves  int
	order  dueOrder
}

type naiveEntry struct {
	w       *scheduler.Task
	level   uint64
	expires int64
	late    int // when it was delayed, 0 for not yet
	arrival int
	due     int64
}

func (q *naive) push(w *scheduler.Task, now int64) bool {
	level := q.levels.of(w.Meta.Priority)
	p, n := q.levels.policy(level), 0
	for _, e := range q.works {
		if e.level == level {
			n++
		}
	}
	if p.MaxSize > 0 && n >= p.MaxSize {
		return false
	}
	q.order.on = q.order.on && len(q.works) > 0
	e := &naiveEntry{w: w, level: level, due: q.order.key(w, now)}
	wait := p.Timeout
	if own := time.Duration(w.Meta.Timeout) * time.Microsecond; p.Override && own > 0 && own < wait {
		wait = own
	}
	if wait > 0 {
		e.expires = now + int64(wait)
	}
	q.moves++
	e.arrival = q.moves
	q.works = append(q.works, e)
	q.sort()
	return true
}

func (q *naive) sort() {
	slices.SortFunc(q.works, func(a, b *naiveEntry) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.late, b.late), cmp.Compare(a.due, b.due), cmp.Compare(a.arrival, b.arrival))
	})
}

// expire returns the tasks that are rejected by now, in no order.
func (q *naive) expire(now int64) (gone []*scheduler.Task) {
	var kept []*naiveEntry
	for _, e := range q.works {
		late := e.expires > 0 && now >= e.expires
		switch {
		case e.w.Expired(now) != nil, late && !q.levels.policy(e.level).Delay:
			gone = append(gone, e.w)
			continue
		case late:
			q.moves++
			e.expires, e.late = 0, 1
		}
		kept = append(kept, e)
	}
	q.works = kept
	q.sort()
	return gone
}

// served returns the tasks in order of service, by group.
func (q *naive) served() map[uint64][]*scheduler.Task {
	all := map[uint64][]*scheduler.Task{}
	for _, e := range q.works {
		all[e.w.Shape] = append(all[e.w.Shape], e.w)
	}
	return all
}

func (q *naive) remove(w *scheduler.Task) {
	q.works = slices.DeleteFunc(q.works, func(e *naiveEntry) bool { return e.w == w })
}

func (q *backlog) served() map[uint64][]*scheduler.Task {
	all := map[uint64][]*scheduler.Task{}
	for _, g := range q.heap {
		for e := g.after(nil); e != nil; e = g.after(e) {
			all[g.key.shape] = append(all[g.key.shape], e.task)
		}
	}
	return all
}

// agree fails the test unless both queues serve the same tasks in the same order. Of delayed tasks, which become so
// in any order, only the set is compared.
func agree(t *testing.T, q *backlog, want *naive) {
	t.Helper()
	if q.n != len(want.works) {
		t.Fatalf("%d works, want %d", q.n, len(want.works))
	}
	rank := map[*scheduler.Task]uint64{}
	for _, g := range q.heap {
		for e := g.after(nil); e != nil; e = g.after(e) {
			rank[e.task] = e.rank
		}
	}
	order := func(a, b *scheduler.Task) int {
		if rank[a]%2 == 1 && rank[a] == rank[b] {
			return cmp.Compare(a.Seq, b.Seq)
		}
		return cmp.Compare(rank[a], rank[b])
	}
	got, expected := q.served(), want.served()
	if len(got) != len(expected) {
		t.Fatalf("%d shapes, want %d", len(got), len(expected))
	}
	rows := int32(0)
	for key := range got {
		for _, w := range got[key] {
			rows += w.Rows
		}
		if !slices.IsSortedFunc(got[key], func(a, b *scheduler.Task) int { return cmp.Compare(rank[a], rank[b]) }) {
			t.Fatalf("shape %d is not in order of service", key)
		}
		slices.SortStableFunc(got[key], order)
		slices.SortStableFunc(expected[key], order)
		if !slices.Equal(got[key], expected[key]) {
			t.Fatalf("shape %d has other works", key)
		}
	}
	if rows != q.rows {
		t.Fatalf("%d rows are counted, want %d", q.rows, rows)
	}
	if q.n > 0 && q.heap[0].lanes[0].rank != rank[want.first()] {
		t.Fatalf("rank %d is served first, want %d", q.heap[0].lanes[0].rank, rank[want.first()])
	}
}

func (q *naive) first() *scheduler.Task { return q.works[0].w }

// randomLevels returns few or very many levels, some with policies.
func randomLevels(rng *rand.Rand) Levels {
	policy := func() Policy {
		return Policy{
			MaxSize: rng.IntN(3) * 20, Timeout: time.Duration(rng.IntN(3)*rng.IntN(400)) * time.Millisecond,
			Override: rng.IntN(2) == 0, Delay: rng.IntN(2) == 0,
		}
	}
	l := Levels{Count: rng.Uint64N(5), Policy: policy(), Policies: map[uint64]Policy{}}
	if rng.IntN(4) == 0 {
		l.Count = math.MaxInt64 - rng.Uint64N(3)
	}
	if l.Count == 0 {
		return l
	}
	l.Default = 1 + rng.Uint64N(l.Count)
	for range rng.IntN(4) {
		l.Policies[1+rng.Uint64N(min(l.Count, 5))] = policy()
	}
	return l
}

// anyLevel returns a priority that is a level, or not.
func anyLevel(rng *rand.Rand) uint64 {
	if rng.IntN(3) == 0 {
		return math.MaxInt64 - rng.Uint64N(4)
	}
	return rng.Uint64N(6)
}

// last returns the entry of w, the only one of its level.
func last(q *backlog, w *scheduler.Task) *entry {
	for _, l := range q.heap[0].lanes {
		if l.tail.task == w {
			return l.tail
		}
	}
	return nil
}

// TestManyLevels checks that a queue stores only the levels that hold requests, when requests name more levels than
// memory has bytes.
func TestManyLevels(t *testing.T) {
	t.Parallel()
	q := newBacklog(Levels{Count: math.MaxUint64, Default: 1 << 32}, "m")
	var first, second scheduler.Task
	for i := range uint64(10_000) {
		w := &scheduler.Task{
			TaskRequest: scheduler.TaskRequest{Ctx: t.Context(), Rows: 1, Meta: &infer.Meta{Priority: math.MaxUint64 - i}},
		}
		switch i {
		case 0:
			w = &first
			*w = scheduler.Task{
				TaskRequest: scheduler.TaskRequest{Ctx: t.Context(), Rows: 1, Meta: &infer.Meta{Priority: math.MaxUint64}},
			}
		case 5000:
			w = &second
			*w = scheduler.Task{TaskRequest: scheduler.TaskRequest{Ctx: t.Context(), Rows: 1, Meta: &infer.Meta{}}}
		}
		if !q.push(w, 1) {
			t.Fatalf("work %d was refused", i)
		}
		if w != &first && w != &second {
			q.remove(last(&q, w))
		}
	}
	if n := len(q.levels.others); n > 2*fewLevels {
		t.Errorf("%d levels are kept", n)
	}
	if got := q.served()[0]; len(got) != 2 || got[0] != &second || got[1] != &first {
		t.Errorf("%d works are left, want the one of the default level, then that of the last one", len(got))
	}
}

// TestQueueProperty compares the queue with the naive one over random pushes, takes, expiries and sweeps.
func TestQueueProperty(t *testing.T) {
	t.Parallel()
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	clients := slices.Repeat([]context.Context{context.Background()}, 8)
	clients[7] = gone
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a test wants the same numbers again
		levels := randomLevels(rng)
		q, want := newBacklog(levels, "m"), &naive{levels: levels}
		q.most, q.levels.most = 2, 2 // so that groups and levels come and go
		now, arrived := int64(1), uint64(0)
		for range 400 {
			now += rng.Int64N(20) * int64(time.Millisecond)
			var dropped scheduler.TaskList
			switch rng.IntN(5) {
			default:
				for range rng.IntN(8) {
					arrived++
					w := &scheduler.Task{
						TaskRequest: scheduler.TaskRequest{Ctx: clients[rng.IntN(8)], Rows: 1 + rng.Int32N(3), Meta: &infer.Meta{Priority: anyLevel(rng)}},
						TaskState:   scheduler.TaskState{Shape: rng.Uint64N(5), Seq: arrived},
					}
					if rng.IntN(4) == 0 {
						w.Meta.Deadline = now + rng.Int64N(int64(time.Second))
					}
					w.Meta.Timeout = rng.Uint64N(200_000)
					if got, expected := q.push(w, now), want.push(w, now); got != expected {
						t.Fatalf("seed %d: taken in: %v, want %v", seed, got, expected)
					}
				}
				q.sweep(now, &dropped)
				// A task may be found due one clock tick late.
				for i := 0; i < len(q.heap); i++ {
					for g, w := q.heap[i], q.heap[i].after(nil); w != nil && g.pos == i; {
						after := g.after(w)
						q.check(w, now, &dropped)
						w = after
					}
				}
				if len(q.heap) > 0 { // a group may have moved past the loop above
					for _, g := range slices.Clone(q.heap) {
						for w := g.after(nil); w != nil; {
							after := g.after(w)
							q.check(w, now, &dropped)
							w = after
						}
					}
				}
				compareDropped(t, dropped, want.expire(now))
				agree(t, &q, want)
			case 3, 4:
				for range min(rng.IntN(12), q.n) {
					g := q.heap[rng.IntN(len(q.heap))]
					want.remove(q.remove(g.after(nil)))
				}
			}
		}
		if h := q.wheel; h != nil && h.n > q.n {
			t.Errorf("seed %d: %d works are timed, %d wait", seed, h.n, q.n)
		}
	}
}

func compareDropped(t *testing.T, dropped scheduler.TaskList, want []*scheduler.Task) {
	t.Helper()
	var got []*scheduler.Task
	for w := dropped.Pop(); w != nil; w = dropped.Pop() {
		if w.Err == nil {
			t.Error("a work is dropped without an error")
		}
		got = append(got, w)
	}
	less := func(a, b *scheduler.Task) int { return cmp.Compare(a.Seq, b.Seq) }
	slices.SortFunc(got, less)
	slices.SortFunc(want, less)
	if !slices.Equal(got, want) {
		t.Fatalf("%d works are dropped, want %d", len(got), len(want))
	}
}

// TestWheelProperty checks that tasks expire in time: never before they are due, and at the latest at the tick that
// next returns.
func TestWheelProperty(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a test wants the same numbers again
		var h wheel
		now, waiting := rng.Int64N(1<<50), map[*entry]bool{}
		for range 2000 {
			switch rng.IntN(3) {
			case 0:
				w := &entry{slot: nowhere, check: now + rng.Int64N(1<<(10+rng.IntN(45)))}
				h.add(w, now)
				waiting[w] = true
			case 1:
				for w := range waiting {
					h.remove(w)
					h.remove(w) // knows that it is not there
					delete(waiting, w)
					break
				}
			case 2:
				if at, ok := h.next(); ok && rng.IntN(2) == 0 {
					now = max(now, at)
				} else {
					now += rng.Int64N(1 << (10 + rng.IntN(40)))
				}
				for w := h.advance(now); w != nil; w = w.after {
					if !waiting[w] || w.check > now {
						t.Fatalf("seed %d: a work due at %d came out at %d", seed, w.check, now)
					}
					delete(waiting, w)
				}
			}
			if h.n != len(waiting) {
				t.Fatalf("seed %d: %d works, want %d", seed, h.n, len(waiting))
			}
			at, ok := h.next()
			if ok != (len(waiting) > 0) {
				t.Fatalf("seed %d: next is %v for %d works", seed, ok, len(waiting))
			}
			for w := range waiting {
				if due := tickOf(w.check) << tickBits; due <= now-1<<tickBits || at > max(due, (now>>tickBits+1)<<tickBits) {
					t.Fatalf("seed %d: a work due at %d is still there at %d, next is %d", seed, w.check, now, at)
				}
			}
		}
	}
}

// TestRefusals checks the error texts of a queue.
func TestRefusals(t *testing.T) {
	t.Parallel()
	q := newBacklog(Levels{Count: 2, Default: 2, Policies: map[uint64]Policy{1: {MaxSize: 1, Timeout: time.Second}, 2: {MaxSize: 2}}}, "m")
	for i := range 4 {
		w := &scheduler.Task{
			TaskRequest: scheduler.TaskRequest{Ctx: context.Background(), Rows: 1, Meta: &infer.Meta{Priority: uint64(i % 2)}},
		}
		if took := q.push(w, 1); took != (i < 3) {
			t.Errorf("work %d taken in: %v", i, took)
		} else if !took {
			err := q.levels.errFull(w.Meta.Priority, int64(3*time.Second), 0)
			if want := "Exceeds maximum queue size: 1 requests wait for priority level 1 of model 'm', at most 1 may"; err.Error() != want {
				t.Errorf("got %q, want %q", err, want)
			}
			if status.RetryAfter(status.Prefixf(err, "in ensemble 'e', ")) != 3*time.Second {
				t.Errorf("retry after %v", status.RetryAfter(err))
			}
			for _, x := range []struct{ perTask, predicted, want time.Duration }{
				{120 * time.Millisecond, 0, 120 * time.Millisecond},
				{120 * time.Millisecond, 45 * time.Millisecond, 45 * time.Millisecond},
				{0, 0, time.Second},
				{time.Microsecond, 0, time.Millisecond},
				{time.Hour, 0, time.Minute},
			} {
				if got := status.RetryAfter(q.levels.errFull(w.Meta.Priority, int64(x.perTask), int64(x.predicted))); got != x.want {
					t.Errorf("of tasks of %v and a prediction of %v: retry after %v, want %v", x.perTask, x.predicted, got, x.want)
				}
			}
		}
	}
	var dropped scheduler.TaskList
	q.expire(int64(2*time.Second), &dropped)
	if dropped.Len() != 1 || dropped.Head.Err.Error() != "Request timeout expired: the request waited too long for priority level 1 of model 'm'" {
		t.Errorf("%d dropped, %v", dropped.Len(), dropped.Head)
	}
}

func TestListKeepsCount(t *testing.T) {
	t.Parallel()
	var l scheduler.TaskList
	if l.Pop() != nil || l.Len() != 0 {
		t.Error("an empty list is not empty")
	}
	works := make([]scheduler.Task, 3)
	for round := range 2 { // the second time after the queue was empty
		for i := range works {
			works[i].Rows = int32(i + 1)
			l.Push(&works[i])
		}
		if l.Len() != 3 || l.Rows() != 6 {
			t.Errorf("round %d: %d works of %d rows", round, l.Len(), l.Rows())
		}
		for i := range works {
			if l.Pop() != &works[i] || works[i].Next() != nil {
				t.Errorf("round %d: work %d is another or still in a list", round, i)
			}
		}
	}
}

// TestFarDeadline checks that a task with the last possible deadline, from the longest timeout, waits like any other.
func TestFarDeadline(t *testing.T) {
	t.Parallel()
	q, dropped := newBacklog(Levels{}, "m"), scheduler.TaskList{}
	const now = int64(time.Second)
	q.push(&scheduler.Task{
		TaskRequest: scheduler.TaskRequest{Ctx: t.Context(), Meta: &infer.Meta{Deadline: math.MaxInt64}, Rows: 1},
	}, now)
	if at, ok := q.wheel.next(); !ok || at < now+int64(time.Hour) {
		t.Errorf("it is looked at after %s", time.Duration(at-now))
	}
	if q.expire(now+int64(time.Minute), &dropped); dropped.Len() > 0 || q.n != 1 {
		t.Errorf("%d dropped, %d left", dropped.Len(), q.n)
	}
}

// TestArrivedBefore checks that the timeout of a task begins at its arrival, before it is queued.
func TestArrivedBefore(t *testing.T) {
	t.Parallel()
	const now = int64(time.Minute)
	for _, tt := range []struct {
		meta infer.Meta
		late bool
	}{
		{infer.Meta{}, false}, // it begins with the queue
		{infer.Meta{Arrived: now - int64(time.Second/2)}, false},
		{infer.Meta{Arrived: now - int64(time.Second)}, true},
		{infer.Meta{Arrived: now - 6000, Timeout: 5}, true},
	} {
		q := newBacklog(Levels{Policy: Policy{Timeout: time.Second, Override: true}}, "m")
		w := &scheduler.Task{TaskRequest: scheduler.TaskRequest{Ctx: t.Context(), Rows: 1, Meta: &tt.meta}}
		if late := q.late(w, now); late != tt.late {
			t.Errorf("%+v: late %v before it is queued", tt.meta, late)
		}
		var dropped scheduler.TaskList
		q.push(w, now)
		if q.expire(now+int64(100*time.Millisecond), &dropped); (dropped.Len() == 1) != tt.late {
			t.Errorf("%+v: %d dropped", tt.meta, dropped.Len())
		}
	}
}
