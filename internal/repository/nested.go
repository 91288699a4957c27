package repository

import (
	"context"
	"maps"

	"github.com/tutti-server/tutti/core/status"
)

// changeLock is a mutex whose Lock can be abandoned.
type changeLock chan struct{}

// lock acquires the lock. It fails when ctx is done first.
func (t changeLock) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}: // a free lock is acquired even if ctx is done
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.ErrCancelled
	}
}

func (t changeLock) unlock() { <-t }

// nesting lets a model that is being loaded load and unload other models from its own initialisation. The change
// that loads it waits and keeps Repository.changes; the nested changes run one after the other in its place, and it
// then continues from their result.
type nesting struct {
	changes        changeLock
	ended          bool              // the change continues; guarded by changes
	before         *snapshot         // served before the models began to load
	loadingOutside map[string]*model // models that outer changes are loading, by key
}

// outerKey is the context key of the change that loads a model.
type outerKey struct{}

// outer returns the change that is loading the caller, or nil.
func (r *Repository) outer(ctx context.Context) *change {
	c, ok := ctx.Value(outerKey{}).(*change)
	if !ok || c.r != r {
		return nil
	}
	return c
}

// allowNested permits nested changes under the returned context, until endNested.
func (c *change) allowNested(ctx context.Context) context.Context {
	c.inner.changes, c.inner.before = make(changeLock, 1), c.r.catalog.Load()
	return context.WithValue(ctx, outerKey{}, c)
}

// endNested waits for a nested change in progress. No further one can begin.
func (c *change) endNested() {
	c.inner.changes <- struct{}{}
	c.inner.ended = true
	c.inner.changes.unlock()
	c.rebase()
}

// lock acquires the lock of the nested changes. It reports false, without the lock, if the outer change continues
// already.
func (n *nesting) lock(ctx context.Context) (bool, error) {
	if err := n.changes.lock(ctx); err != nil {
		return false, err
	}
	if n.ended {
		n.changes.unlock()
		return false, nil
	}
	return true, nil
}

// nestedIn makes c a nested change of outer, unless outer is nil.
func (c *change) nestedIn(outer *change) *change {
	if outer != nil {
		c.inner.loadingOutside = map[string]*model{}
		maps.Copy(c.inner.loadingOutside, outer.inner.loadingOutside)
		maps.Copy(c.inner.loadingOutside, outer.loading)
	}
	return c
}

func (c *change) checkFree(key string) error {
	if m := c.inner.loadingOutside[key]; m != nil {
		return status.Errorf(status.Unavailable, "model '%s' is itself being loaded", m.name)
	}
	return nil
}

// rebase merges what nested changes have published.
func (c *change) rebase() {
	now := c.r.catalog.Load()
	if now == c.inner.before {
		return
	}
	base := maps.Clone(c.base.models)
	for key, m := range now.models {
		if c.loading[key] == nil && c.inner.before.models[key] != m {
			base[key], c.next[key] = m, m
		}
	}
	c.base = newSnapshot(base, c.r.s.Namespacing)
}
