package repository

import (
	"context"
	"maps"

	"github.com/tutti-server/tutti/core/status"
)

// turn is a lock that can be given up on.
type changeLock chan struct{}

// lock takes the turn.
func (t changeLock) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}: // even when ctx is over: nobody changes anything
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

// nesting is how models that a change loads load and unload others from their own initialisation. The change waits for them and
// has the repository's turn: they change what serves in its place, one after the other, and it goes on from there.
type nesting struct {
	changes        changeLock
	ended          bool              // the change goes on; guarded by turn
	before         *snapshot         // what served when the models began to load
	loadingOutside map[string]*model // what is being loaded further out, by key
}

// outerKey is the context's value of what a change loads: the change.
type outerKey struct{}

// outer returns the change by which whoever asks is being loaded, or nil.
func (r *Repository) outer(ctx context.Context) *change {
	c, ok := ctx.Value(outerKey{}).(*change)
	if !ok || c.r != r {
		return nil
	}
	return c
}

// nest lets the models that are loaded with the context returned change others, until unnest.
func (c *change) allowNested(ctx context.Context) context.Context {
	c.inner.changes, c.inner.before = make(changeLock, 1), c.r.catalog.Load()
	return context.WithValue(ctx, outerKey{}, c)
}

// unnest waits for a change that such a model is making. No other follows.
func (c *change) endNested() {
	c.inner.changes <- struct{}{}
	c.inner.ended = true
	c.inner.changes.unlock()
	c.rebase()
}

// enter takes the turn of a change's models, and reports whether the change still waits for them.
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

// inside has the change be one that a model makes which another change loads, unless that is nil.
func (c *change) nestedIn(outer *change) *change {
	if outer != nil {
		c.inner.loadingOutside = map[string]*model{}
		maps.Copy(c.inner.loadingOutside, outer.inner.loadingOutside)
		maps.Copy(c.inner.loadingOutside, outer.loading)
	}
	return c
}

// free returns why a model must be left as it is, or nil.
func (c *change) checkFree(key string) error {
	if m := c.inner.loadingOutside[key]; m != nil {
		return status.Errorf(status.Unavailable, "model '%s' is itself being loaded", m.name)
	}
	return nil
}

// rebase takes over what the models that were loaded have changed meanwhile.
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
