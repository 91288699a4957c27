package repository

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/sequence"
)

// dryRun sends requests to one instance of a model before the model serves. The requests do not count in the
// statistics.
type dryRun struct {
	exec  *exec.Executor
	queue scheduler.Scheduler
	// sequences makes every request a sequence with START and END.
	sequences bool
}

// borrowedInstance forwards to an instance and does not close it.
type borrowedInstance struct{ backends.Instance }

// Unwrap returns the instance.
func (x borrowedInstance) Unwrap() backends.Instance { return x.Instance }

// Close does nothing: the owner closes the instance.
func (borrowedInstance) Close() error { return nil }

// newDryRun returns a dry run of one instance, which is borrowed. batch requests of a model that batches execute as
// one batch.
func (r *Repository) newDryRun(f *folder, v *version, inst backends.Instance, together int) (*dryRun, error) {
	stats := &telemetry.Model{Name: v.sig.Model, Version: v.sig.Version}
	x := &dryRun{sequences: v.cfg.GetSequenceBatching() != nil}
	own := instances{{inst: borrowedInstance{inst}}}
	runner := batch.NewRunner(batch.Settings{
		Signature: v.sig, Stats: stats, Alloc: r.s.Alloc, Padding: v.padding, Log: r.s.Log, Mover: r.mover,
	})
	switch {
	case x.sequences:
		s := r.sequenceSettings(f, v, stats, own)
		if together > 1 {
			fixedBatches(&s, together)
		}
		q, err := sequence.New(s)
		if err != nil {
			return nil, err
		}
		if x.queue = q; together == 1 {
			q.Flush() // requests do not wait for each other
		}
	case together > 1:
		rules := fixedRules(together)
		rules.Padded = v.padding != nil
		x.queue = dynamic.New(dynamic.Settings{Runner: runner, Instances: own.backends(), Workers: r.workers}, rules)
	default:
		x.queue = direct.NewInline(direct.Settings{Runner: runner, Instances: own.backends()})
	}
	x.exec = exec.New(exec.Settings{
		Plan: plan.Single(v.sig), Stats: stats, Workers: r.workers, Mover: r.mover,
		Targets: []scheduler.Scheduler{x.queue},
	})
	return x, nil
}

// fixedBatches makes a sequence scheduler form batches of exactly this many sequences.
func fixedBatches(s *sequence.Settings, sequences int) {
	s.Rules.Slots, s.Rules.Utilization, s.Rules.Delay = sequences, 1, time.Hour
	if s.Rules.Oldest {
		s.Policy = fixedRules(sequences).Policy()
	}
}

// fixedRules returns the rules for batches of exactly this many rows.
func fixedRules(rows int) dynamic.Rules {
	return dynamic.Rules{MaxBatch: int32(rows), Preferred: []int32{int32(rows)}, Delay: time.Hour, MaxElements: math.MaxInt64}
}

// send sends a request and returns its last response. A decoupled model may have none: then the response is nil.
func (x *dryRun) send(ctx context.Context, req *infer.Request) (*infer.Response, error) {
	if x.sequences && req.Sequence == (infer.Sequence{}) {
		req.Sequence = infer.Sequence{ID: 1, Start: true, End: true}
	}
	call := infer.NewCall()
	x.exec.Submit(ctx, req, call)
	return call.Wait()
}

// sendAll sends requests that may execute as one batch, and returns the errors. For a sequence model each request
// is a sequence.
func (x *dryRun) sendAll(ctx context.Context, list []*infer.Request) (failed []error) {
	calls := make([]*infer.Call, len(list))
	for i, req := range list {
		if x.sequences {
			req.Sequence = infer.Sequence{ID: uint64(i + 1), Start: true, End: true}
		}
		calls[i] = infer.NewCall()
		x.exec.Submit(ctx, req, calls[i])
	}
	for _, call := range calls {
		resp, err := call.Wait()
		if resp != nil {
			resp.Release()
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// close waits for the requests and closes the queue.
func (x *dryRun) close(ctx context.Context) error {
	return errors.Join(x.queue.Drain(context.WithoutCancel(ctx)), x.queue.Close())
}

// withDryRun calls use with a dry run of one instance and closes it.
func (r *Repository) withDryRun(
	ctx context.Context, f *folder, v *version, inst backends.Instance, together int, use func(*dryRun) error,
) error {
	x, err := r.newDryRun(f, v, inst, together)
	if err != nil {
		return err
	}
	return errors.Join(use(x), x.close(ctx))
}

// prepare warms up the instances of a version, and checks the golden requests on the first one.
func (r *Repository) prepare(ctx context.Context, f *folder, v *version, active instances) error {
	if len(active) == 0 {
		return nil // passive instances accept no requests
	}
	samples, err := r.warmups(f, v)
	if err != nil {
		return err
	}
	for i := range active {
		u := &active[i]
		if i > 0 && u.inst == active[i-1].inst {
			continue // shared by several
		}
		for _, s := range samples {
			err := r.withDryRun(ctx, f, v, u.inst, s.batchSize, func(x *dryRun) error { return r.warmUp(ctx, x, s, u.name) })
			if err != nil {
				return err
			}
		}
	}
	if len(samples) > 0 {
		r.s.Log.DebugContext(ctx, "model warmed up", slog.String("model", f.name), slog.Int64("version", v.sig.Version), slog.Int("samples", len(samples)))
	}
	return r.withDryRun(ctx, f, v, active[0].inst, 1, func(x *dryRun) error { return r.checkGoldens(ctx, f, v.sig, x) })
}
