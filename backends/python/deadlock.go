package python

import (
	"maps"
	"slices"
	"sync"
)

// callGraph records which workers wait for which models. It detects deadlocks: calls that, through other models, wait for their
// own caller. For example, the only instance of model a calls b, whose only instance calls a.
type callGraph struct {
	// steps returns the models of an ensemble's steps, and none for any other model. It is nil when there are no ensembles.
	steps func(name string) []string

	mu        sync.Mutex
	instances map[string]int      // instances of each Python model, guarded by mu
	waits     []wait              // guarded by mu
	ensembles map[string][]string // the models of each ensemble that was called, guarded by mu
}

// wait is a pending call of a worker.
type wait struct {
	caller string
	w      *worker
	target string
}

// set sets the number of instances of a Python model, 0 for a model that is gone, and forgets its calls.
func (b *callGraph) set(name string, instances int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.instances[name] = instances
	b.waits = slices.DeleteFunc(b.waits, func(x wait) bool { return x.caller == name })
	if instances == 0 {
		delete(b.instances, name)
	}
}

// wait records a pending call. It returns false, and records nothing, when the call would be a deadlock.
func (b *callGraph) wait(x wait) bool {
	called := map[string][]string{}
	b.expand(called, x.target) // without mu: a goroutine that loads a model may hold the catalog's lock
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.Copy(b.ensembles, called)
	if b.instances[x.caller] == 0 {
		return true
	}
	b.waits = append(b.waits, x)
	if b.stuck(x.target, map[string]bool{}) {
		b.waits = b.waits[:len(b.waits)-1]
		return false
	}
	return true
}

// done removes a recorded call.
func (b *callGraph) done(x wait) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waits, x); i >= 0 {
		b.waits = slices.Delete(b.waits, i, i+1)
	}
}

// stuck reports whether every instance of a model waits for a stuck model, or an ensemble has a stuck step. A model in seen counts
// as stuck: it is part of a cycle.
func (b *callGraph) stuck(name string, seen map[string]bool) bool {
	if seen[name] {
		return true
	}
	seen[name] = true
	defer delete(seen, name)
	n := b.instances[name]
	if n == 0 {
		return slices.ContainsFunc(b.ensembles[name], func(step string) bool { return b.stuck(step, seen) })
	}
	callers := map[*worker]bool{} // whether one of the calls is stuck
	for _, x := range b.waits {
		if x.caller == name {
			callers[x.w] = callers[x.w] || b.stuck(x.target, seen)
		}
	}
	return len(callers) >= n && !slices.Contains(slices.Collect(maps.Values(callers)), false)
}

// expand adds the steps of an ensemble, recursively, to a map.
func (b *callGraph) expand(to map[string][]string, name string) {
	if _, seen := to[name]; seen || b.steps == nil {
		return
	}
	to[name] = b.steps(name)
	for _, step := range to[name] {
		b.expand(to, step)
	}
}

// steps returns the models of an ensemble's steps.
func (b *backend) steps(name string) []string {
	cfg, err := b.catalog.Config(name, 0)
	if err != nil {
		return nil // the call reports the error
	}
	var list []string
	for _, s := range cfg.GetEnsembleScheduling().GetStep() {
		list = append(list, s.GetModelName())
	}
	return list
}
