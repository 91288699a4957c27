package servertest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// Lifecycle is a repository of names: a loaded model has version 1 and no content. A model named bad fails to load. It is safe for
// concurrent use.
type Lifecycle struct {
	mu      sync.Mutex
	entries map[string]infer.Entry // guarded by mu
	loads   []Load                 // guarded by mu
}

// Load is one call of Load or Unload.
type Load struct {
	Model      string
	Options    infer.LoadOptions
	Unload     bool
	Dependents bool
}

var _ infer.Lifecycle = (*Lifecycle)(nil)

// NewLifecycle returns a Lifecycle with models that are not loaded.
func NewLifecycle(models ...string) *Lifecycle {
	l := &Lifecycle{entries: map[string]infer.Entry{}}
	for _, m := range models {
		l.entries[m] = infer.Entry{Name: m}
	}
	return l
}

// Calls returns the calls of Load and Unload in order.
func (l *Lifecycle) Calls() []Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.loads)
}

// Index lists the models sorted by name.
func (l *Lifecycle) Index(ready bool) []infer.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []infer.Entry
	for _, e := range l.entries {
		if !ready || e.State == infer.Ready {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b infer.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Load makes a model ready.
func (l *Lifecycle) Load(_ context.Context, model string, o infer.LoadOptions) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loads = append(l.loads, Load{Model: model, Options: o})
	if model == "bad" {
		return status.Errorf(status.Internal, "failed to load 'bad', failed to poll from model repository")
	}
	l.entries[model] = infer.Entry{Name: model, Version: "1", State: infer.Ready}
	return nil
}

// Unload makes a model unavailable. An unknown model is not an error.
func (l *Lifecycle) Unload(_ context.Context, model string, dependents bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loads = append(l.loads, Load{Model: model, Unload: true, Dependents: dependents})
	if e, ok := l.entries[model]; ok && e.State == infer.Ready {
		e.State, e.Reason = infer.Unavailable, "unloaded"
		l.entries[model] = e
	}
	return nil
}
