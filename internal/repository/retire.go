package repository

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/recovery"
)

// publish makes models the snapshot that serves. Versions that are not in it retire.
func (r *Repository) publish(ctx context.Context, models map[string]*model) {
	old, next := r.catalog.Load(), newSnapshot(models, r.s.Namespacing)
	next.number = old.number + 1
	r.catalog.Store(next)
	r.journal.forget(next.models)
	for key, now := range next.models {
		if now == old.models[key] {
			continue
		}
		now.overrideDir().retain()
		for _, v := range now.versions {
			v.stats.SetLoad(v.load)
			r.s.Metrics.Add(v.stats)
		}
	}
	for key, was := range old.models {
		if now := next.models[key]; now != was {
			r.releaseModel(ctx, was, now)
		}
	}
}

// releaseModel releases what the old model holds and its successor does not. The successor may be nil.
func (r *Repository) releaseModel(ctx context.Context, was, now *model) {
	var versions []*version
	if now != nil {
		versions = now.versions
	}
	for _, v := range was.versions {
		if !slices.ContainsFunc(versions, func(x *version) bool { return x.stats == v.stats }) {
			r.s.Metrics.Remove(v.stats)
		}
		if !slices.Contains(versions, v) {
			r.retire(ctx, v)
		}
	}
	if err := was.overrideDir().release(); err != nil {
		r.s.Log.ErrorContext(ctx, "removing override files failed", slog.String("model", was.name), slog.String("error", err.Error()))
	}
}

// retire stops a version from accepting requests and closes it, in the background, when its last request is
// complete and no ensemble uses it.
func (r *Repository) retire(ctx context.Context, v *version) {
	v.state.set(infer.Unloading, "")
	v.exec.Retire()
	v.flush()
	r.retiring.Add(1)
	ctx = context.WithoutCancel(ctx) // closing continues after the unload request has its response
	go func() {
		if err := r.finish(ctx, v); err != nil {
			r.closeFailed(ctx, v, err)
		}
		v.state.set(infer.Unavailable, unloaded)
		r.retiring.Add(-1)
	}()
}

// finish waits until a version is unused, and closes it.
func (r *Repository) finish(ctx context.Context, v *version) (err error) {
	defer recovery.Error(&err, r.s.Log, "closing model '"+v.sig.Model+"'", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version))
	err = v.users.Wait(ctx)
	if v.queue != nil { // open sequences can get no further requests: Drain ends them
		err = errors.Join(err, v.queue.Drain(ctx))
	}
	return errors.Join(err, v.exec.Drain(ctx), v.close(ctx))
}

// closeFailed logs an error of closing a version or an instance, and keeps it for Close unless it comes of a lost device.
func (r *Repository) closeFailed(ctx context.Context, v *version, err error) {
	if err = r.closeWarning(ctx, err, v.places, slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version)); err == nil {
		return
	}
	r.s.Log.ErrorContext(ctx, "closing a model failed", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version), slog.String("error", err.Error()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeErrors = append(r.closeErrors[:min(len(r.closeErrors), maxCloseErrors)], err)
}

// maxCloseErrors is the number of errors that Close returns at most.
const maxCloseErrors = 16
