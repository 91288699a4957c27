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

	mu     sync.Mutex
	models map[string]*callers // guarded by mu
	// ensembles has the models of each ensemble that was called. Guarded by mu.
	ensembles map[string][]string
}

// callers are the waiting workers of one Python model.
type callers struct {
	instances int
	// waits counts the pending calls of each executing worker, by called model.
	waits map[*worker]map[string]int
}

func (b *callGraph) add(name string, instances int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.models == nil {
		b.models = map[string]*callers{}
	}
	b.models[name] = &callers{instances: max(1, instances), waits: map[*worker]map[string]int{}}
}

func (b *callGraph) remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.models, name)
}

// wait records that w waits for a model. It returns false, and records nothing, when the call would be a deadlock.
func (b *callGraph) wait(caller string, w *worker, target string) bool {
	called := b.expand(nil, target) // without mu: a goroutine that loads a model may hold the catalog's lock
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ensembles == nil {
		b.ensembles = called
	}
	maps.Copy(b.ensembles, called)
	e := b.models[caller]
	if e == nil {
		return true
	}
	if e.waits[w] == nil {
		e.waits[w] = map[string]int{}
	}
	e.waits[w][target]++
	if !b.stuck(target, map[string]bool{}) {
		return true
	}
	e.done(w, target)
	return false
}

func (b *callGraph) done(caller string, w *worker, target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.models[caller]; e != nil {
		e.done(w, target)
	}
}

func (e *callers) done(w *worker, target string) {
	waits := e.waits[w]
	if waits == nil {
		return
	}
	if waits[target]--; waits[target] <= 0 {
		delete(waits, target)
	}
	if len(waits) == 0 {
		delete(e.waits, w)
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
	isStuck := func(target string) bool { return b.stuck(target, seen) }
	e := b.models[name]
	if e == nil {
		return slices.ContainsFunc(b.ensembles[name], isStuck)
	}
	if len(e.waits) < e.instances {
		return false
	}
	for _, waits := range e.waits {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(waits)), isStuck) {
			return false
		}
	}
	return true
}

// expand adds the steps of an ensemble, recursively, to a map.
func (b *callGraph) expand(to map[string][]string, name string) map[string][]string {
	if _, seen := to[name]; seen || b.steps == nil {
		return to
	}
	if to == nil {
		to = map[string][]string{}
	}
	to[name] = b.steps(name)
	for _, step := range to[name] {
		to = b.expand(to, step)
	}
	return to
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
