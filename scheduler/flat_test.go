package scheduler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
)

// BenchmarkQueue measures what a work costs to queue and to take out again while so
// many others wait: it is to be flat. Works of 8 shapes and 3 levels, with a timeout.
func BenchmarkQueue(b *testing.B) {
	for _, waiting := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			q := newQueue(Levels{Count: 3, Default: 2, Own: map[uint64]QueuePolicy{1: {Timeout: time.Second}, 2: {Timeout: time.Minute}}}, "m")
			works, next, now := make([]Task, waiting+1), 0, int64(1)
			push := func() {
				w := &works[next%len(works)]
				*w = Task{
					TaskRequest: TaskRequest{Ctx: context.Background(), Rows: 1, Meta: &infer.Meta{}},
					TaskState:   TaskState{shape: shape{key: uint64(next*7) % 8}},
				}
				q.push(w, now)
				next, now = next+1, now+1000
			}
			metas := make([]infer.Meta, 4)
			for i := range metas {
				metas[i].Priority = uint64(i)
			}
			for i := range works {
				works[i].Meta = &metas[i%4]
			}
			for range waiting {
				push()
			}
			b.ReportAllocs()
			var dropped TaskList
			for b.Loop() {
				w := &works[next%len(works)]
				w.Rows, w.key, w.Ctx = 1, uint64(next*7)%8, context.Background()
				if w.Meta == nil {
					w.Meta = &metas[next%4]
				}
				q.push(w, now)
				next, now = next+1, now+1000
				q.expire(now, &dropped)
				q.remove(&works[next%len(works)])
			}
		})
	}
}

// TestQueueAllocates checks that queueing allocates nothing once the shapes are known.
func TestQueueAllocates(t *testing.T) { //nolint:paralleltest // it counts the allocations of the process
	q := newQueue(Levels{Count: 2, Default: 1, Own: map[uint64]QueuePolicy{1: {Timeout: time.Second, Delay: true}}}, "m")
	works, metas := make([]Task, 64), make([]infer.Meta, 64)
	now := int64(1)
	round := func() {
		for i := range works {
			metas[i].Priority = uint64(i % 3)
			works[i].Ctx, works[i].Meta, works[i].Rows, works[i].key = context.Background(), &metas[i], 1, uint64(i%5)
			q.push(&works[i], now)
		}
		now += int64(2 * time.Second)
		var dropped TaskList
		q.sweep(now, &dropped)
		for q.n > 0 {
			q.remove(q.heap[0].after(nil))
		}
	}
	round()
	if n := testing.AllocsPerRun(20, round); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
