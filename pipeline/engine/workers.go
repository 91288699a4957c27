package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/worker"
)

// Workers keeps a worker of the SDK on each of some task queues. One that cannot start, because the Temporal server is away, and one that
// the SDK has ended, because the server refuses it for minutes (its namespace was deleted), is replaced. The lifecycle:
//
//  1. The fields are set, and not changed afterwards.
//  2. Keep is called every second or so with the task queues that are wanted.
//  3. Stop is called once.
//
// It is used by one goroutine.
type Workers struct {
	// New makes a worker that is not started. It must use the OnFatalError of o. Required.
	New func(queue string, o worker.Options) worker.Worker
	// Failure gives the reasons of failures. Optional.
	Failure Failure
	// What says in messages what the workers execute. For example, "jobs". Required.
	What string
	// Log receives one line for each new reason why workers are missing, and one when they are back. Required.
	Log *slog.Logger

	running map[string]*running
	ending  sync.WaitGroup
	reason  string // why workers are missing; empty when none is
	wait    time.Duration
	next    time.Time // of the next start
}

// running is a worker that was started.
type running struct {
	worker.Worker
	fatal atomic.Pointer[error] // why the SDK has ended it
}

// The bounds of the time between two attempts to start workers. stable is how long a worker must run for the shortest one.
const (
	firstWait = 2 * time.Second
	longWait  = 10 * time.Second
	stable    = time.Minute
)

// Keep starts the workers that are missing on the wanted task queues, and stops those on others. Those that stop have some seconds for
// what they execute; Keep does not wait for them. It returns whether there is a worker on each wanted queue.
func (k *Workers) Keep(ctx context.Context, wanted []string) bool {
	if k.running == nil {
		k.running, k.wait = map[string]*running{}, firstWait
	}
	want := make(map[string]bool, len(wanted))
	for _, queue := range wanted {
		want[queue] = true
	}
	for queue, one := range k.running {
		if err := one.fatal.Load(); err != nil {
			k.failed(ctx, *err)
		} else if want[queue] {
			continue
		}
		delete(k.running, queue)
		k.ending.Go(one.Stop)
	}
	for _, queue := range wanted {
		if k.running[queue] != nil {
			continue
		}
		if ctx.Err() != nil || time.Now().Before(k.next) {
			return false
		}
		one := k.start(queue)
		if err := one.Start(); err != nil { // it cannot be started again
			k.failed(ctx, err)
			return false
		}
		k.running[queue] = one
	}
	k.whole(ctx)
	return true
}

// start makes the worker of a task queue.
func (k *Workers) start(queue string) *running {
	one := &running{}
	one.Worker = k.New(queue, worker.Options{OnFatalError: func(err error) { one.fatal.Store(&err) }})
	return one
}

// failed says once why workers are missing, and sets the time of the next start.
func (k *Workers) failed(ctx context.Context, err error) {
	if now := time.Now(); now.After(k.next) {
		k.next, k.wait = now.Add(k.wait), min(2*k.wait, longWait)
	}
	reason := k.Failure.Coded(err, "its worker", err).Error()
	if reason != k.reason && ctx.Err() == nil {
		k.reason = reason
		k.Log.WarnContext(ctx, "Work waits for Temporal.", slog.String("work", k.What), slog.String("error", reason))
	}
}

// whole notes that no worker is missing.
func (k *Workers) whole(ctx context.Context) {
	if k.reason != "" && time.Now().After(k.next) {
		k.Log.InfoContext(ctx, "Work is executed again.", slog.String("work", k.What))
		k.reason = ""
	}
	if k.wait > firstWait && time.Since(k.next) > stable {
		k.wait = firstWait
	}
}

// Stop stops all workers. It returns when what they execute has ended, or was given up.
func (k *Workers) Stop() {
	for _, one := range k.running {
		k.ending.Go(one.Stop)
	}
	k.running = nil
	k.ending.Wait()
}
