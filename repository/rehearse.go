package repository

import (
	"context"
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
	exec *exec.Executor
}

// rehearse returns a rehearsal with one instance, which stays the caller's.
func (r *Repository) rehearse(v *version, inst backends.Instance, padding *scheduler.Padding) *rehearsal {
	stats := &telemetry.Model{Name: v.sig.Model, Version: v.sig.Version}
	runner := scheduler.NewRunner(scheduler.RunnerSettings{
		Signature: v.sig, Stats: stats, Alloc: r.s.Alloc, Padding: padding, Log: r.s.Log, Mover: r.mover,
	})
	return &rehearsal{exec.New(exec.Settings{
		Plan: plan.Single(v.sig), Stats: stats, Workers: r.workers, Mover: r.mover,
		Targets: []scheduler.Scheduler{direct.NewInline(direct.Settings{Runner: runner, Instances: []backends.Instance{inst}})},
	})}
}

// ask sends a request and returns its last answer, nil when a decoupled model has none.
func (x *rehearsal) ask(ctx context.Context, req *infer.Request) (*infer.Response, error) {
	call := infer.NewCall()
	x.exec.Submit(ctx, req, call)
	return call.Wait()
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
		if err := warm(ctx, r.rehearse(v, inst, padding), samples); err != nil {
			return err
		}
	}
	if len(samples) > 0 {
		r.s.Log.DebugContext(ctx, "model warmed up", slog.String("model", f.name), slog.Int64("version", v.sig.Version), slog.Int("samples", len(samples)))
	}
	return r.golden(ctx, f, v.sig, r.rehearse(v, instances[0], padding))
}
