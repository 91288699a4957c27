package direct_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// TestInlineBackground checks that background tasks of an inline model do not execute on the goroutine of an online request, take a
// twentieth of a processor beside it, and execute at once in a quiet process and when the model is unloaded.
func TestInlineBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Duration(max(1-telemetry.Now(), 1))) // the bubble's clock begins before the program
		b := schedtest.NewBench(t, schedtest.Signature(8), nil)
		var executions atomic.Int32
		s := direct.NewInline(direct.Settings{Runner: b.Runner, Workers: b.Workers, Instances: []backends.Instance{schedtest.Model(func(batch *backends.Batch) error {
			executions.Add(1)
			<-time.After(4 * time.Millisecond)
			return schedtest.Share(batch)
		})}})
		job := func(background bool) *schedtest.Job {
			j := b.Job(1, b.Floats([]int64{1, 1}, 7))
			j.Meta.Background = background
			return j
		}
		process := b.Workers.Background()
		process.Begin(telemetry.Now())
		process.Arrive(telemetry.Now())
		low := []*schedtest.Job{job(true), job(true), job(true), job(true)}
		high := job(false)
		begin := time.Now()
		b.Submit(s, append(low[:3:3], high)...)
		if took := time.Since(begin); took != 4*time.Millisecond || high.Times.Load() != 1 {
			t.Errorf("the online task took %v, completed %d times", took, high.Times.Load())
		}
		pause := 4 * time.Millisecond * time.Duration(800/runtime.GOMAXPROCS(0)-1) // from the end of a background task to the next one
		<-time.After(pause - 10*time.Millisecond)
		synctest.Wait()
		if n := executions.Load(); n != 2 {
			t.Errorf("%d executions beside an online request, want 2", n)
		}
		<-time.After(20 * time.Millisecond)
		synctest.Wait()
		if n := executions.Load(); n != 3 {
			t.Errorf("%d executions, want 3", n)
		}
		scheduler.Flush(s)
		schedtest.Wait(low[:3]...)
		b.Submit(s, low[3])
		if low[3].Times.Load() != 1 {
			t.Error("a background task waits although the model is unloaded")
		}
		process.Leave(telemetry.Now())
		for _, j := range append(low, high) {
			j.Release()
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		b.Workers.Close()
	})
}
