package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/scheduler"
)

// BenchmarkQueue measures adding and removing a task while many others wait: the cost must not grow with their
// number. The tasks have 8 shapes, 3 levels and a timeout, or deadlines of any time.
func BenchmarkQueue(b *testing.B) {
	for _, c := range []struct {
		waiting int
		dated   bool
	}{{1, false}, {100, false}, {10_000, false}, {100, true}, {10_000, true}} {
		waiting, dated := c.waiting, c.dated
		b.Run(fmt.Sprintf("waiting=%d/deadlines=%t", waiting, dated), func(b *testing.B) {
			q := newBacklog(Levels{Count: 3, Default: 2, Policies: map[uint64]Policy{1: {Timeout: time.Second}, 2: {Timeout: time.Minute}}}, "m")
			tasks, metas, next, now := make([]scheduler.Task, waiting+1), make([]infer.Meta, 4), 0, int64(1)
			for i := range metas {
				metas[i].Priority = uint64(i)
			}
			own := make([]infer.Meta, waiting+1)
			push := func(w *scheduler.Task) {
				w.Ctx, w.Meta, w.Rows, w.Shape = context.Background(), &metas[next%4], 1, uint64(next*7)%8
				if dated { // up to an hour from now, in no order
					w.Meta = &own[next%len(own)]
					*w.Meta = infer.Meta{Deadline: now + int64(next)*7919*7919%int64(time.Hour)}
				}
				q.push(w, now)
				next, now = next+1, now+1000
			}
			for i := range waiting {
				push(&tasks[i])
			}
			b.ReportAllocs()
			free, dropped := &tasks[waiting], scheduler.TaskList{}
			for b.Loop() {
				push(free)
				q.expire(now, &dropped)
				if free = dropped.Pop(); free == nil {
					free = q.remove(q.heap[0].after(nil))
				}
			}
		})
	}
}

// TestQueueAllocates checks that queueing allocates nothing once the shapes are known.
func TestQueueAllocates(t *testing.T) { //nolint:paralleltest // it counts the allocations of the process
	q := newBacklog(Levels{Count: 2, Default: 1, Policies: map[uint64]Policy{1: {Timeout: time.Second, Delay: true}}}, "m")
	tasks, metas := make([]scheduler.Task, 64), make([]infer.Meta, 64)
	now := int64(1)
	round := func() {
		for i := range tasks {
			w := &tasks[i]
			metas[i].Priority = uint64(i % 3)
			w.Ctx, w.Meta, w.Rows, w.Shape = context.Background(), &metas[i], 1, uint64(i%5)
			q.push(w, now)
		}
		now += int64(2 * time.Second)
		var dropped scheduler.TaskList
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
