package crash_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends/crash"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/internal/subprocess"
)

// kept is a process of the test.
type kept struct {
	*subprocess.Process
	*subprocess.Range

	late func() // called by Use, which then comes too late; nil for never
}

func (p *kept) Use() bool {
	if p.late != nil {
		p.late()
		return false
	}
	return p.Range.Use()
}

func (p *kept) Close() {
	p.Process.Close()
	p.Release()
}

// starter starts processes.
type starter struct {
	testing.TB
	shared *tensor.SharedMemory
	fail   atomic.Bool // the next start fails
	made   chan *kept  // those that were published
}

func newStarter(tb testing.TB) *starter {
	tb.Helper()
	var m subprocess.Memory
	shared, _, err := m.For(tensor.NewPool())
	if err != nil {
		tb.Fatal(err)
	}
	return &starter{TB: tb, shared: shared, made: make(chan *kept, 100)}
}

func (s *starter) process() (p *kept, err error) {
	p = &kept{}
	if p.Range, err = subprocess.NewRange(s.shared, func(uint64) {}); err != nil {
		return nil, err
	}
	p.Process, err = subprocess.Start(&subprocess.Settings{
		Mode: mode, Name: "m", Shared: s.shared.File(), Log: slog.New(slog.DiscardHandler), Printed: "printed", ExitTime: time.Minute, Exited: func() {},
	})
	return p, err
}

func (s *starter) start(_ context.Context, publish func(*kept)) error {
	if s.fail.Swap(false) {
		return errors.New("refused once")
	}
	p, err := s.process()
	if err == nil {
		publish(p)
		s.made <- p
	}
	return err
}

func (s *starter) keep(first *kept, log *slog.Logger) *crash.Keeper[*kept] {
	k := crash.Keep(crash.KeeperSettings[*kept]{Model: "m", What: "the process of a test", Log: log, Start: s.start, Restarting: func() {}}, first)
	s.Cleanup(k.Close)
	return k
}

// TestKeeper checks that a process which ends is replaced, also after a start that fails, and what is said meanwhile.
func TestKeeper(t *testing.T) {
	t.Parallel()
	s := newStarter(t)
	first, err := s.process()
	if err != nil {
		t.Fatal(err)
	}
	printed := &logtest.Buffer{}
	k := s.keep(first, slog.New(slog.NewTextHandler(printed, nil)))
	p, err := k.Current(t.Context())
	if err != nil || p != first || !k.Alive() || k.Resident() == 0 {
		t.Fatalf("%v, %v, alive %t, %d bytes; want the first process", p, err, k.Alive(), k.Resident())
	}
	s.fail.Store(true)
	if !k.Recycle(errors.New("it is old")) || k.Recycle(errors.New("again")) {
		t.Error("it was not recycled once")
	}
	if why, _ := k.Down(); k.Alive() || !strings.HasPrefix(why, "the process of a test is started again, it ended: ") {
		t.Errorf("down: %q", why)
	}
	<-first.Ended
	if err := k.Lost(first, 1, "lost"); status.CodeOf(err) != status.Unavailable || !strings.HasPrefix(status.Text(err), "it is old; send") {
		t.Errorf("%v", err)
	}
	p.Release()
	next, err := k.Current(t.Context())
	if err != nil || next == first || next != <-s.made {
		t.Fatalf("%v, %v; want the process that was started", next, err)
	}
	defer next.Release()
	if why, since := k.Down(); why != "" || !since.IsZero() {
		t.Errorf("down: %q since %v", why, since)
	}
	for _, want := range []string{`msg="the process of a test ended" pid=`, `reason="it is old"`, `msg="the process of a test cannot be started again" reason="refused once"`} {
		if text := printed.String(); !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
	k.Succeeded()
	if err := k.Lost(next, 5, "lost"); status.CodeOf(err) != status.Unavailable || status.ReasonOf(err) != status.InstanceLost {
		t.Errorf("%v, want an error that may be sent again: one end since the last success", err)
	}
}

// TestCurrentMissesNoStart checks that a request finds a process that is published between its look for one and its wait.
func TestCurrentMissesNoStart(t *testing.T) {
	t.Parallel()
	s := newStarter(t)
	first, err := s.process()
	if err != nil {
		t.Fatal(err)
	}
	var next *kept
	first.late = func() { // the request has seen the first process, and has not taken the channel on which it waits
		first.Kill("by the test")
		next = <-s.made
	}
	k := s.keep(first, slog.New(slog.DiscardHandler))
	p, err := k.Current(t.Context())
	if err != nil || p != next {
		t.Fatalf("%v, %v, want %v", p, err, next)
	}
	p.Release()
}

// TestKeeperClosed checks that requests which wait for a process end when the keeper is closed, or when they are cancelled.
func TestKeeperClosed(t *testing.T) {
	t.Parallel()
	s := newStarter(t)
	first, err := s.process()
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	k := crash.Keep(crash.KeeperSettings[*kept]{
		Model: "m", What: "the process of a test", Log: slog.New(slog.DiscardHandler), Restarting: func() {},
		Start: func(ctx context.Context, _ func(*kept)) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		},
	}, first)
	first.Kill("by the test")
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Current(ctx); status.CodeOf(err) != status.Cancelled {
		t.Errorf("a cancelled request: %v", err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := k.Current(t.Context()); status.ReasonOf(err) != status.ModelNotReady {
				t.Errorf("a request of a closed model: %v", err)
			}
		})
	}
	k.Close()
	all.Wait()
	if !k.Closed() || k.Alive() {
		t.Errorf("closed %t, alive %t", k.Closed(), k.Alive())
	}
}
