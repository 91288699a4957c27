//go:build cgo

package queue_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// pupil is a policy that keeps what it observes.
type pupil struct {
	schedtest.Everything
	mu   sync.Mutex
	seen []scheduler.Executed // guarded by mu
}

func (p *pupil) Observe(x scheduler.Executed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, x)
}

func (p *pupil) observed() []scheduler.Executed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// copier is an instance at a device that copies its input: one operation of the stream, for a kernel.
type copier struct{ stream tensor.Stream }

func (m *copier) Stream() tensor.Stream { return m.stream }

func (m *copier) Execute(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	out, err := b.Alloc(0, in.DType, in.Shape)
	if err != nil {
		return err
	}
	return m.stream.Copy(out.Buf, 0, in.Buf, in.Off, in.Len)
}

func (*copier) Close() error { return nil }

// TestLearnsTheTimeOfTheDevice checks that a policy learns how long a device takes for a batch, of which putting the batch into its
// stream is a small part, and that it learns it once: a batch of one request, and one of three rows in two requests.
func TestLearnsTheTimeOfTheDevice(t *testing.T) {
	t.Parallel()
	checking := cudatest.New(t, 1)
	checking.Set("work_us", 2000)
	driver, err := cuda.Open(checking.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
	})
	devices, err := driver.Devices(cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
	places := tensor.NewPlaces(b.Alloc)
	if err := places.Add(devices[0]); err != nil {
		t.Fatal(err)
	}
	mover := batch.NewMover(places)
	b.Runner = batch.NewRunner(batch.Settings{Signature: b.Sig, Stats: b.Stats, Alloc: b.Alloc, Log: slog.New(slog.DiscardHandler), Mover: mover})
	stream, err := devices[0].NewStream("copier")
	if err != nil {
		t.Fatal(err)
	}
	p := &pupil{}
	q := queue.New(queue.Settings{Runner: b.Runner, Policy: p, Instances: []backends.Instance{&copier{stream}}, Workers: b.Workers})
	t.Cleanup(func() {
		for _, end := range []func() error{q.Close, stream.Close, mover.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	for i, jobs := range [][]*schedtest.Job{
		{b.Job(1, b.Floats([]int64{1, 1}, 5))},
		{b.Job(1, b.Floats([]int64{1, 1}, 6)), b.Job(2, b.Floats([]int64{2, 1}, 7, 8))},
	} {
		b.Submit(q, jobs...)
		schedtest.Wait(jobs...)
		rows := int64(0)
		for _, j := range jobs {
			if j.Err != nil {
				t.Fatal(j.Err)
			}
			rows += int64(j.Rows)
			j.Release()
		}
		if err := stream.Record().Wait(); err != nil {
			t.Fatal(err)
		}
		for len(p.observed()) == i { // the end of the measurement is behind the last operation
			b.Stats.Settle()
		}
		got := p.observed()
		if len(got) != i+1 || got[i].Rows != rows || got[i].Duration < 2*time.Millisecond || got[i].Duration > time.Minute {
			t.Errorf("after %d batches it has observed %+v, want the newest with %d rows and at least 2 ms", i+1, got, rows)
		}
	}
}
