// Package sequence schedules models with sequence_batching. The requests of one sequence share a correlation id,
// from START to END. They execute in order, one at a time, on one instance and in one slot of it. For example, with
// two slots the sequences 7 and 8 execute in the rows 0 and 1 of each batch, and sequence 9 waits in the backlog
// until one of them ends.
//
// # Structure
//
// A batcher decides which sequence has which slot, which sequences wait in the backlog, and which requests form the
// next batch. It receives the time as an argument and has no lock, timer or goroutine, so that scripts test it on a
// virtual clock. Scheduler adds a lock, a timer and instances, and fills batches with control inputs (ports),
// states and placeholder rows.
//
// A request has neither control inputs nor states. It carries the inputs of the model's public signature. Each slot
// has a task with all ports of the model.
//
// # Strategies
//
// Direct: the slot is the row. A batch has the rows of all slots up to the last occupied one; a slot without a
// request gets a row of zeros with READY false. Oldest: the requests of the slots are batched as in dynamic
// batching, in the order in which they became ready.
//
// # Devices
//
// A sequence and its states stay where its instance is: a state that a batch wrote at a device is the input of the
// next batch there. An instance is at most one batch ahead of its device. Control inputs, ids, initial states and placeholder rows are allocated on the host. The first
// task that needs one at a device copies it there, for all later tasks.
//
// # End of a sequence
//
// A sequence ends with its END request; after max_sequence_idle_microseconds without a request; when a request is
// cancelled before it executes, because the model would miss it; and in the backlog also with a request's timeout.
// A request that fails in the model does not end its sequence: the state stays as it was before the request.
package sequence

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// Settings are the parameters of New.
type Settings struct {
	// Config is the completed configuration; its sequence_batching names the control inputs and states.
	Config *modelconfig.ModelConfig
	// Signature has all ports of the model, Public the ports of a request.
	Signature, Public *config.Signature
	Rules             Rules
	// Policy forms the batches of the oldest strategy; nil for direct.
	Policy scheduler.Policy
	// Runner executes tasks of Signature, each once (batch.Settings.Once). It is iterative if the rules are.
	Runner *batch.Runner
	Stats  *telemetry.Model
	// Alloc allocates control inputs and initial states.
	Alloc tensor.Allocator
	// Instances move to the scheduler.
	Instances []backends.Instance
	// Limiters admit the batches of the instances, by position. nil, or a nil element, sets no limit.
	Limiters []scheduler.Limiter
	Workers  *scheduler.Workers
	// ReadFile reads a file of the model's initial_state folder.
	ReadFile func(name string) ([]byte, error)
	Log      *slog.Logger

	_ struct{}
}

// Scheduler executes the requests of each sequence in order, on one instance. It is safe for concurrent use.
type Scheduler struct {
	sig     *config.Signature
	runner  *batch.Runner
	stats   *telemetry.Model
	workers *scheduler.Workers
	log     *slog.Logger
	ports   *ports

	mu      sync.Mutex
	batcher *batcher           // guarded by mu; its rules never change
	refused scheduler.TaskList // to be completed, guarded by mu
	timer   *time.Timer        // guarded by mu
	wakes   int64              // when the timer fires, MaxInt64 when it is not set; guarded by mu
	armed   bool               // a worker waits until a batch's delay ends, guarded by mu
	closed  bool               // guarded by mu

	pending pending.Count
	pacing  sync.WaitGroup // instances that freeLater will free
}

// New returns a scheduler with every instance free. It returns an error when the configuration names ports that the
// model does not have, or an initial state that cannot be read. On an error the instances stay with the caller.
func New(s Settings) (*Scheduler, error) {
	p, err := newPorts(&s)
	if err != nil {
		return nil, err
	}
	x := &Scheduler{
		sig: s.Signature, runner: s.Runner, stats: s.Stats, workers: s.Workers, log: s.Log, ports: p,
		batcher: newBatcher(s.Rules, 0), wakes: math.MaxInt64,
	}
	x.batcher.model, x.batcher.batchy, x.batcher.policy = p.model, s.Signature.MaxBatch > 0, s.Policy
	x.batcher.checkID, x.batcher.newSlot, x.batcher.removed = p.checkID, x.newSlot, x.leave
	x.join(s.Instances, s.Limiters)
	s.Workers.Reserve(1) // for the worker that waits until a delay ends
	return x, nil
}

// Enqueue appends the tasks to their sequences.
//
// hot: one lock per list, one map look-up per work.
func (s *Scheduler) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	now, n := t.Now(), list.Len()
	s.stats.Queued(int64(n))
	s.pending.Add(n)
	var conflicts []id
	s.mu.Lock()
	for w := list.Pop(); w != nil; w = list.Pop() {
		w.Enqueued = now
		conflict, err := s.batcher.admit(w, now)
		if err != nil {
			w.Err = err
			s.refused.Push(w)
		}
		if conflict {
			conflicts = append(conflicts, idOf(&w.Meta.Sequence))
		}
	}
	ready := s.refused.Len() > 0 || s.batcher.startable()
	s.schedule(now)
	s.mu.Unlock()
	if ready {
		t.Ready(s)
	}
	for _, key := range conflicts {
		//nolint:sloglint // the line is Triton's, which people look for
		s.log.Warn("sequence " + key.String() + " for model '" + s.sig.Model +
			"' has a conflict. The previous sequence did not end before this sequence start. Previous sequence will be terminated early.")
	}
}

// Help executes one batch, if a free instance has one.
func (s *Scheduler) Help(t *scheduler.RunLoop) bool {
	now := t.Now()
	s.mu.Lock()
	dropped := s.refused
	s.refused = scheduler.TaskList{}
	l, wait := s.batcher.next(now, &dropped)
	more := l != nil && s.batcher.startable()
	if l != nil {
		l.look()
	} else if wait > 0 {
		s.arm(wait)
	}
	s.schedule(now)
	s.mu.Unlock()
	if more {
		s.workers.Go(s)
	}
	helped := s.drop(dropped, t)
	if l == nil {
		return helped
	}
	s.execute(l, t)
	return true
}

// execute runs the batch of an instance and completes its requests, before the instance and sequences go on.
func (s *Scheduler) execute(l *instance, t *scheduler.RunLoop) {
	started := 0
	for _, sl := range l.batch {
		started += number(sl != nil)
	}
	s.stats.Queued(-int64(started))
	list := s.fillAll(l)
	if list.Head != nil {
		s.runner.Run(l.executor, &list, t)
	}
	var done scheduler.TaskList
	again := 0
	for _, sl := range l.batch {
		switch {
		case sl == nil:
		case s.deliver(sl):
			done.Push(sl.outer)
		default:
			again++
		}
	}
	n := done.Len()
	scheduler.Complete(done, t)
	s.stats.Queued(int64(again))
	l.copyMoves(s.ports.alloc)
	s.countMoves(l)
	behind := s.runner.Behind(l.inst)
	now := t.Now()
	s.mu.Lock()
	l.endMoves()
	l.watch()
	s.batcher.takeBack(l, now)
	if behind == nil {
		s.batcher.freeInstance(l)
	} else {
		s.pacing.Add(1)
		go s.freeLater(l, behind)
	}
	ready := s.batcher.startable()
	s.schedule(now)
	s.mu.Unlock()
	if ready {
		t.Ready(s)
	}
	s.pending.Add(-n)
}

// freeLater frees an instance at a device once the device has reached an event of the instance's stream.
func (s *Scheduler) freeLater(l *instance, e tensor.Event) {
	defer s.pacing.Done()
	_ = e.Wait() // an error is one of the batch before it
	s.mu.Lock()
	s.batcher.freeInstance(l)
	ready := s.batcher.startable()
	s.schedule(telemetry.Now())
	s.mu.Unlock()
	if ready {
		s.workers.Go(s)
	}
}

// drop completes requests that never execute.
func (s *Scheduler) drop(list scheduler.TaskList, t *scheduler.RunLoop) bool {
	n := list.Len()
	if n == 0 {
		return false
	}
	for w := list.Head; w != nil; w = w.Next() {
		tensor.ReleaseAll(w.In)
		refusal := telemetry.NoSequence
		if status.CodeOf(w.Err) == status.Cancelled || w.Err == status.ErrDeadline || w.Err == status.ErrLate { //nolint:errorlint // never wrapped
			refusal = batch.RefusalOf(w.Err)
		}
		s.stats.Refused(refusal, t.Now()-w.Enqueued)
	}
	s.stats.Queued(-int64(n))
	scheduler.Complete(list, t)
	s.pending.Add(-n)
	return true
}

// Flush executes the ready sequences now, and from now on, instead of waiting for fuller batches.
func (s *Scheduler) Flush() {
	s.mu.Lock()
	s.batcher.flush = true
	s.mu.Unlock()
	s.workers.Go(s)
}

// InFlight returns the number of tasks that are queued or executing.
func (s *Scheduler) InFlight() int64 { return s.pending.Now() }

// Drain waits until nothing is queued or executing. Meanwhile idle sequences release their slots to the backlog.
func (s *Scheduler) Drain(ctx context.Context) error {
	s.addDraining(1)
	defer s.addDraining(-1)
	return s.pending.Wait(ctx)
}

func (s *Scheduler) addDraining(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batcher.draining += n
	s.schedule(telemetry.Now())
}

// Close ends all sequences and closes the instances, except removed ones, which their owner closes.
func (s *Scheduler) Close() error {
	s.pacing.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.workers.Reserve(-1)
	if s.timer != nil {
		s.timer.Stop()
	}
	var errs []error
	for _, l := range s.batcher.instances {
		if l.leaving == nil {
			l.leaving = func() { errs = append(errs, l.inst.Close()) }
		}
		s.leave(l)
	}
	s.ports.release()
	return errors.Join(errs...)
}

// Rules are the sequence batching rules of one model.
type Rules struct {
	// Oldest selects the oldest strategy; otherwise the strategy is direct.
	Oldest bool
	// Slots is the number of sequences per instance, at least 1.
	Slots int
	// Delay bounds how long a direct batch waits until Utilization of the slots are ready; 0 for no wait.
	Delay       time.Duration
	Utilization float32
	// Ordered keeps batches of the oldest strategy from executing a request before an earlier one.
	Ordered bool
	// Idle is the longest time that a sequence may be without a request.
	Idle time.Duration
	// Iterative accepts requests without a correlation id. Each is a sequence with one request.
	Iterative bool
	// Queued and Backlog delay all batches until so many requests wait in the slots, and so many in the backlog,
	// for the first time; with the oldest strategy only the first request of a slot counts. 0 delays nothing. They
	// are for tests.
	Queued, Backlog int
}

// RulesOf reads the rules of a completed configuration.
func RulesOf(cfg *modelconfig.ModelConfig) Rules {
	s, rows := cfg.GetSequenceBatching(), max(int(cfg.GetMaxBatchSize()), 1)
	r := Rules{Slots: rows, Idle: micros(s.GetMaxSequenceIdleMicroseconds()), Iterative: s.GetIterativeSequence()}
	if r.Idle == 0 {
		r.Idle = time.Second
	}
	if o := s.GetOldest(); o != nil {
		r.Oldest, r.Ordered = true, o.GetPreserveOrdering()
		if n := o.GetMaxCandidateSequences(); n > 0 {
			r.Slots = int(n)
		}
		return r
	}
	if u := s.GetDirect().GetMinimumSlotUtilization(); u > 0 {
		r.Utilization, r.Delay = u, micros(s.GetDirect().GetMaxQueueDelayMicroseconds())
	}
	return r
}

// micros converts microseconds and bounds them, so that times never overflow.
func micros(n uint64) time.Duration {
	return time.Duration(min(n, uint64(math.MaxInt64/4/time.Microsecond))) * time.Microsecond
}
