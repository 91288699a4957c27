// Package scheduler decides which tasks execute together on a model's instances, and when.
//
// This package is the contract: Task and TaskList, Completer, Scheduler, Policy, Limiter, and the
// RunLoop and Workers that execute. Package batch executes one batch: it gathers the inputs,
// calls the instance and scatters the outputs. Package queue holds tasks in front of the
// instances. The other children are the schedulers that a configuration chooses from:
//
//	direct    no batching across requests
//	dynamic   dynamic_batching, with padding where the model has pad parameters
//	sequence  sequence_batching, direct and oldest
//	cached    response_cache, in front of one of the others
//	spread    instances at several devices
//
// Package device is the rate limiter that instances of several models share, and schedtest tests schedulers.
//
// # Which goroutine executes a batch
//
// No goroutine belongs to a model or an instance. The goroutine that enqueued a task executes the next batch of its RunLoop; a worker of
// the shared pool gets what is ready beyond that. So an idle model responds without a switch between goroutines, and a
// busy one keeps its instances busy while callers return to their clients. Where batches had several tasks lately, a
// goroutine that would execute less than a full batch first yields to those that are about to send.
package scheduler

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// Scheduler decides when and with which others the tasks of one model version execute.
//
// Lifecycle:
//
//  1. Serving: Enqueue, Help and InFlight may be called, from any goroutine.
//  2. Draining: the owner sends no more tasks and calls Drain, which waits for the rest.
//  3. Closed: Close is called, once or more. Nothing else may follow.
//
// A sender lends its goroutine to execute what it enqueued:
//
//	t := scheduler.NewRunLoop(workers)
//	t.Stage(s, &task)      // collect tasks for s
//	t.Dispatch()           // s.Enqueue(list, t)
//	t.RunUntil(done)       // s.Help(t) until done() or nothing is ready
type Scheduler interface {
	// Enqueue moves the tasks to the scheduler. It must not execute or block. When something can execute it
	// calls t.Ready, t.ReadyBrief or t.Inline.
	Enqueue(list TaskList, t *RunLoop)
	// Help executes at most one batch on the calling goroutine. It returns false when nothing was ready.
	Help(t *RunLoop) bool
	// InFlight returns how many tasks are queued or executing.
	InFlight() int64
	// Drain blocks until no task is queued or executing, new ones included, or returns ctx's error.
	Drain(ctx context.Context) error
	// Close closes the instances.
	Close() error
}

// Flusher is a Scheduler whose batches may wait for more tasks.
type Flusher interface {
	// Flush executes queued tasks now and later ones at once, because the model is about to be unloaded.
	Flush()
}

// Flush calls s.Flush if s is a Flusher.
func Flush(s Scheduler) {
	if f, ok := s.(Flusher); ok {
		f.Flush()
	}
}

// Resizable is a Scheduler whose instances may change while it serves, concurrently with everything but Close.
//
// For example, to replace an instance without refusing a request:
//
//	s.Add([]backends.Instance{fresh}, nil)
//	s.Remove(old, func() { close(removed) })
//	<-removed
//	err := old.Close()
type Resizable interface {
	Scheduler
	// Add adds instances, which move to the scheduler. limiters are by position; nil, or a nil element, for none.
	Add(instances []backends.Instance, limiters []Limiter)
	// Remove takes one instance out and moves it back to the caller with the call of gone: when its batch is done, and
	// in a model of sequences when the last sequence in its slots has ended. At least one other instance must be left.
	// gone is called once; it must neither block nor call the scheduler.
	Remove(inst backends.Instance, gone func())
}

// Losing is a Scheduler whose instances may be lost with their device, concurrently with everything but Close.
type Losing interface {
	Scheduler
	// Lose takes the instances at a place out for good, because they cannot execute any more, and moves each back to the caller with a
	// call of gone once its batch has ended. Where no other instance is left, queued tasks and later ones fail with why, until Add gives
	// the scheduler others. In a model of sequences those in slots of the instances end, and their tasks fail. gone is called once for
	// each instance; it must neither block nor call the scheduler.
	Lose(at tensor.Place, why error, gone func(inst backends.Instance))
}

// Forecaster is a Scheduler that predicts when a task would execute.
type Forecaster interface {
	// Forecast describes the scheduler as a stage of a route, for a task of a client that must be done by a time: it goes before queued ones
	// that have more time, and before those with which other clients are over their shares. Without a client all that is queued is before
	// it. ok is false while nothing is known. It may be called from any goroutine.
	Forecast(now, due int64, c *infer.Client) (s deadline.Stage, ok bool)
}

// ForecastOf returns the forecast of a scheduler; ok is false for one that is no Forecaster.
func ForecastOf(s Scheduler, now, due int64, c *infer.Client) (stage deadline.Stage, ok bool) {
	if f, is := s.(Forecaster); is {
		return f.Forecast(now, due, c)
	}
	return stage, false
}

// Load is how much a scheduler has to do now.
type Load struct {
	// Busy of the Instances execute.
	Busy, Instances int
	// Wait is how long a task is predicted to wait for an instance.
	Wait time.Duration
}

// Measurable is a Scheduler that knows its load.
type Measurable interface {
	// Load may be called from any goroutine.
	Load() Load
}

// LoadOf returns the load of a scheduler, the zero Load of one that is not Measurable: nothing waits there.
func LoadOf(s Scheduler) (l Load) {
	if m, ok := s.(Measurable); ok {
		return m.Load()
	}
	return l
}

// Item is what a Policy sees of one queued task.
type Item struct {
	// Shape is equal for tasks that may share a batch.
	Shape uint64
	// Length is the extent of the padded dimension, 0 when nothing is padded.
	Length int32
	Rows   int32
	// Elements is the size of all inputs.
	Elements int64
	Enqueued int64
}

// View is what a Policy decides on.
type View struct {
	// Items are the first queued tasks of one shape, in order of service; at least one.
	Items []Item
	// More reports that more tasks of the shape are queued than Items.
	More bool
	// Instances is the number of instances, Executing the number of rows that the busy ones hold.
	Instances, Executing int32
	// Queued is how many rows are queued, of any shape.
	Queued int32
	// Flush forbids to wait for more tasks.
	Flush bool
	// Closed reports that a task that cannot join those of Items is queued behind them: their batch must not wait.
	Closed bool
}

// Decision is what a Policy decides.
type Decision struct {
	// Take holds the positions of the items that form the batch, ascending. Empty means: not yet.
	Take []int32
	// Wait is when to ask again unless another task arrives before. Used when Take is empty.
	Wait time.Duration
}

// Policy forms batches. The queue calls it with its lock held, so one call at a time; it must not block. It must be
// pure: equal views and times give equal decisions, but for what a Learner has observed.
//
// For example, a policy of at most four requests:
//
//	func (four) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
//		for i := range v.Items[:min(4, len(v.Items))] {
//			scratch = append(scratch, int32(i))
//		}
//		return scheduler.Decision{Take: scratch}
//	}
type Policy interface {
	// Decide is called when an instance is free. scratch is memory for Take.
	Decide(now int64, v View, scratch []int32) Decision
}

// Executed is the cost of one execution.
type Executed struct {
	// Rows and Elements are the sums over the batch's tasks.
	Rows, Elements int64
	// Unpadded is the sum of each row's own length, Padding the elements that were added to make all rows as long as
	// the longest. For example, lengths 3 and 5: 8 and 2. Both are 0 where nothing is padded.
	Unpadded, Padding int64
	// Duration is the model's time, at a device the device's.
	Duration time.Duration
}

// Learner is a Policy that learns from what executions cost.
type Learner interface {
	Policy
	// Observe is called after an execution that succeeded, under the same lock as Decide. One at a device is observed when the device
	// has ended and the server has learned of it, which may be some executions later.
	Observe(x Executed)
}

// Filler is a Policy that says how far background tasks may fill up a batch of online tasks.
type Filler interface {
	Policy
	// Fill returns the positions of the items, ascending, that may join a batch which executes now. They have the batch's shape. The
	// batch must not become noticeably slower. It is called under the same lock as Decide, whose decisions it must not change.
	Fill(batch Formed, items []Item, scratch []int32) []int32
}

// Formed is the size of a batch that a Policy has formed, summed over its tasks as in Executed; Length is the longest task's.
type Formed struct {
	Rows, Length       int32
	Elements, Unpadded int64
}

// Completer receives tasks that are done.
//
// Lifecycle: for every task, Enqueue comes first and Complete last, exactly once. Complete is
// called on any goroutine and concurrently for different tasks. It must not block.
//
// For example, a completer that counts failures:
//
//	func (c *counter) Complete(list scheduler.TaskList, _ *scheduler.RunLoop) {
//		for w := list.Pop(); w != nil; w = list.Pop() {
//			if w.Err != nil {
//				c.failed.Add(1)
//			}
//			tensor.ReleaseAll(w.Out)
//		}
//	}
type Completer interface {
	// Complete moves the tasks of one executed batch back, in row order. It may stage further tasks on t.
	Complete(list TaskList, t *RunLoop)
}

// Accounts is a Completer that counts the steps of its requests. Of a task with TaskResult.Measured the scheduler counts the step.
type Accounts interface {
	Completer
	// Account returns the counters of a task's step and the sums of its request, nil where there are none. run and node are the task's.
	Account(run any, node int32) (*telemetry.Step, *telemetry.RunSums)
}

// Responder is a Completer for decoupled models, which send any number of responses for one task.
//
// Lifecycle: (1) Respond is called zero or more times, one call at a time for a task; (2) Complete is called once,
// after the last Respond has returned. A response with final set is the last one, but Complete still follows.
type Responder interface {
	Completer
	// Respond moves one response of w to its client while w goes on executing. out are the outputs in the order of the
	// signature; params are borrowed. It blocks while the client is behind, and fails when the client has disconnected.
	Respond(w *Task, out []tensor.Tensor, params infer.Params, final bool) error
}

// Failer is a Responder that can report a failure while the batch still executes.
type Failer interface {
	Responder
	// Fail sends err to the client of w, which completes later with err; final says that no response follows.
	Fail(w *Task, err error, final bool)
}

// Complete calls the Completer of each group of neighbours that share one. A list of one Completer stays sealed.
func Complete(list TaskList, t *RunLoop) {
	if list.Head == nil {
		return
	}
	same := list.Head
	for same != nil && same.To == list.Head.To {
		same = same.next
	}
	if same == nil {
		list.Head.To.Complete(list, t)
		return
	}
	var part TaskList
	for w := list.Pop(); w != nil; w = list.Pop() {
		if part.Head != nil && part.Head.To != w.To {
			part.Head.To.Complete(part, t)
			part = TaskList{}
		}
		part.Push(w)
	}
	part.Head.To.Complete(part, t)
}

// BatchHandle lets a task of a decoupled model respond, detach and pause while it executes. It is safe for concurrent
// use.
type BatchHandle interface {
	// Respond passes a response of w to the Responder, at once or, where responses keep their order, on its turn.
	Respond(to Responder, w *Task, out []tensor.Tensor, params infer.Params, final bool) error
	// Fail passes a failure of w on where it does not overtake other responses.
	Fail(to Failer, w *Task, err error, final bool)
	// Detach frees the instance: the batch goes on without it. Further calls do nothing.
	Detach()
	// Yields, Pause and Resume implement those of Task.
	Yields() bool
	Pause(w *Task)
	Resume(w *Task)
}

// Yields reports whether Pause gives up everything that other tasks could wait for: the instance and their order.
func (w *Task) Yields() bool { return w.Host != nil && w.Host.Yields() }

// Pause lets another task use w's instance while w waits for something outside, such as a client that reads slowly. Call
// it while w executes. An instance with a limiter releases it and
// goes on without acquiring it again, because what w waits for may need what the limiter guards.
func (w *Task) Pause() {
	if w.Host != nil {
		w.Host.Pause(w)
	}
}

// Resume ends Pause. It does not block.
func (w *Task) Resume() {
	if w.Host != nil {
		w.Host.Resume(w)
	}
}

// Limiter admits the executions of one instance, for example the rate limiter, or a bound on how many batches a device
// executes at a time. Each instance has one, or nil, which costs nothing.
//
// Lifecycle of an execution: Acquire; if it returned false, the call of resume; the batch;
// Release. Acquire must not be called again before Release.
type Limiter interface {
	// Acquire asks for one execution and does not block. True: the instance may execute. False: it may once resume is
	// called, which happens exactly once; Release must follow even if there is nothing left to execute. resume is the
	// same function in each call. It must not block and may be called before Acquire returns.
	Acquire(resume func()) bool
	// Release ends the execution.
	Release()
}

// Bidder is a Limiter that chooses between the models of a device by their deadlines.
type Bidder interface {
	Limiter
	// Bids has it follow what the instance's queue offers. It returns the device that the queue shares with others, nil for none.
	Bids(b *deadline.Bid) deadline.Device
}

// Ranked is a Limiter that shares executions out between the instances of a model.
type Ranked interface {
	Limiter
	// Rank orders the free instances: the one with the lowest rank goes first.
	Rank() int64
	// Reacquire is Release and Acquire in one step, for an instance that has more to execute.
	Reacquire() bool
}
