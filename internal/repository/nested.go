package repository

import (
	"context"
	"maps"

	"github.com/tutti-server/tutti/core/status"
)

// turn is a lock that can be given up on.
type turn chan struct{}

// lock takes the turn.
func (t turn) lock(ctx context.Context) error {
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

func (t turn) unlock() { <-t }

// nesting is how models that a change loads load and unload others from their own initialisation. The change waits for them and
// has the repository's turn: they change what serves in its place, one after the other, and it goes on from there.
type nesting struct {
	turn  turn
	over  bool              // the change goes on; guarded by turn
	shown *snapshot         // what served when the models began to load
	held  map[string]*model // what is being loaded further out, by key
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
func (c *change) nest(ctx context.Context) context.Context {
	c.inner.turn, c.inner.shown = make(turn, 1), c.r.catalog.Load()
	return context.WithValue(ctx, outerKey{}, c)
}

// unnest waits for a change that such a model is making. No other follows.
func (c *change) unnest() {
	c.inner.turn <- struct{}{}
	c.inner.over = true
	c.inner.turn.unlock()
	c.rebase()
}

// enter takes the turn of a change's models, and reports whether the change still waits for them.
func (n *nesting) enter(ctx context.Context) (bool, error) {
	if err := n.turn.lock(ctx); err != nil {
		return false, err
	}
	if n.over {
		n.turn.unlock()
		return false, nil
	}
	return true, nil
}

// inside has the change be one that a model makes which another change loads, unless that is nil.
func (c *change) inside(outer *change) *change {
	if outer != nil {
		c.inner.held = map[string]*model{}
		maps.Copy(c.inner.held, outer.inner.held)
		maps.Copy(c.inner.held, outer.loading)
	}
	return c
}

// free returns why a model must be left as it is, or nil.
func (c *change) free(key string) error {
	if m := c.inner.held[key]; m != nil {
		return status.Errorf(status.Unavailable, "model '%s' is itself being loaded", m.name)
	}
	return nil
}

// rebase takes over what the models that were loaded have changed meanwhile.
func (c *change) rebase() {
	now := c.r.catalog.Load()
	if now == c.inner.shown {
		return
	}
	base := maps.Clone(c.base.models)
	for key, m := range now.models {
		if c.loading[key] == nil && c.inner.shown.models[key] != m {
			base[key], c.next[key] = m, m
		}
	}
	c.base = newSnapshot(base, c.r.s.Namespacing)
}
