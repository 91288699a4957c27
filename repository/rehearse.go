package repository

import (
	"context"
	"errors"
	"log/slog"

	"tutti/backends"
	"tutti/core/infer"
	"tutti/core/telemetry"
	"tutti/pipeline/exec"
	"tutti/pipeline/plan"
	"tutti/scheduler"
	"tutti/scheduler/direct"
)

// rehearsal sends requests to one instance of a model before the model serves. It
// counts in nobody's statistics.
type rehearsal struct {
	exec  *exec.Executor
	queue scheduler.Scheduler
	// sequences makes every request a sequence of its own.
	sequences bool
}

// lent is an instance that stays its owner's.
type lent struct{ backends.Instance }

// Unwrap returns the instance itself.
func (x lent) Unwrap() backends.Instance { return x.Instance }

// Close leaves the instance to its owner.
func (lent) Close() error { return nil }

// rehearse returns a rehearsal with one instance, which stays the caller's.
func (r *Repository) rehearse(f *folder, v *version, inst backends.Instance, padding *scheduler.Padding) (*rehearsal, error) {
	stats := &telemetry.Model{Name: v.sig.Model, Version: v.sig.Version}
	x := &rehearsal{sequences: v.cfg.GetSequenceBatching() != nil}
	if x.sequences {
		q, err := r.newSequences(f, v, stats, &instances{active: []backends.Instance{lent{inst}}})
		if err != nil {
			return nil, err
		}
		x.queue = q
	} else {
		runner := scheduler.NewRunner(scheduler.RunnerSettings{
			Signature: v.sig, Stats: stats, Alloc: r.s.Alloc, Padding: padding, Log: r.s.Log, Mover: r.mover,
		})
		x.queue = direct.NewInline(direct.Settings{Runner: runner, Instances: []backends.Instance{lent{inst}}})
	}
	x.exec = exec.New(exec.Settings{
		Plan: plan.Single(v.sig), Stats: stats, Workers: r.workers, Mover: r.mover,
		Targets: []scheduler.Scheduler{x.queue},
	})
	return x, nil
}

// ask sends a request and returns its last answer, nil when a decoupled model has none.
func (x *rehearsal) ask(ctx context.Context, req *infer.Request) (*infer.Response, error) {
	if x.sequences && req.Sequence == (infer.Sequence{}) {
		req.Sequence = infer.Sequence{ID: 1, Start: true, End: true}
	}
	call := infer.NewCall()
	x.exec.Submit(ctx, req, call)
	return call.Wait()
}

// close ends the rehearsal.
func (x *rehearsal) close(ctx context.Context) error {
	return errors.Join(x.queue.Drain(context.WithoutCancel(ctx)), x.queue.Close())
}

// rehearsing has one instance answer what use asks.
func (r *Repository) rehearsing(
	ctx context.Context, f *folder, v *version, inst backends.Instance, padding *scheduler.Padding, use func(*rehearsal) error,
) error {
	x, err := r.rehearse(f, v, inst, padding)
	if err != nil {
		return err
	}
	return errors.Join(use(x), x.close(ctx))
}

// prepare warms every instance of a version up and has the first one answer the
// golden requests.
func (r *Repository) prepare(ctx context.Context, f *folder, v *version, instances []backends.Instance, padding *scheduler.Padding) error {
	if len(instances) == 0 {
		return nil // passive ones take no requests
	}
	samples, err := r.warmups(f, v.sig)
	if err != nil {
		return err
	}
	for i, inst := range instances {
		if i > 0 && inst == instances[i-1] {
			continue // one instance stands for several
		}
		err := r.rehearsing(ctx, f, v, inst, padding, func(x *rehearsal) error { return warm(ctx, x, samples) })
		if err != nil {
			return err
		}
	}
	if len(samples) > 0 {
		r.s.Log.DebugContext(ctx, "model warmed up", slog.String("model", f.name), slog.Int64("version", v.sig.Version), slog.Int("samples", len(samples)))
	}
	return r.rehearsing(ctx, f, v, instances[0], padding, func(x *rehearsal) error { return r.golden(ctx, f, v.sig, x) })
}
