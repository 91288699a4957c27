package python

import (
	"maps"
	"slices"
	"sync"
)

// book knows which workers wait for which models, to tell a call that would wait for itself from one that only waits.
type book struct {
	// steps returns the models of an ensemble's steps, none of another model; nil: there are no ensembles.
	steps func(name string) []string

	mu     sync.Mutex
	models map[string]*entry // guarded by mu
	// ensembles are those that were called, and what is in them, by their models. Guarded by mu.
	ensembles map[string][]string
}

// entry is one model of the backend.
type entry struct {
	instances int
	// waits are the calls that executing workers wait for, by the model called.
	waits map[*worker]map[string]int
}

func (b *book) add(name string, instances int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.models == nil {
		b.models = map[string]*entry{}
	}
	b.models[name] = &entry{instances: max(1, instances), waits: map[*worker]map[string]int{}}
}

func (b *book) remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.models, name)
}

// wait notes that w waits for a model, unless all of that model's instances wait, at last, for itself.
func (b *book) wait(caller string, w *worker, target string) bool {
	called := b.expand(nil, target) // not under mu: who loads a model may hold what tells
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

func (b *book) done(caller string, w *worker, target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.models[caller]; e != nil {
		e.done(w, target)
	}
}

func (e *entry) done(w *worker, target string) {
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

// stuck reports whether every instance of a model waits for a model that is stuck; one that is being looked at is.
func (b *book) stuck(name string, seen map[string]bool) bool {
	e := b.models[name]
	if e == nil {
		return b.stuckStep(name, seen)
	}
	if len(e.waits) < e.instances {
		return false
	}
	if seen[name] {
		return true
	}
	seen[name] = true
	defer delete(seen, name)
	for _, waits := range e.waits {
		held := false
		for target := range waits {
			held = held || b.stuck(target, seen)
		}
		if !held {
			return false
		}
	}
	return true
}

// stuckStep reports whether a model is an ensemble with a stuck step.
func (b *book) stuckStep(name string, seen map[string]bool) bool {
	if seen[name] {
		return true
	}
	seen[name] = true
	defer delete(seen, name)
	return slices.ContainsFunc(b.ensembles[name], func(step string) bool { return b.stuck(step, seen) })
}

// expand adds what a model that is called is made of to a map.
func (b *book) expand(to map[string][]string, name string) map[string][]string {
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
		return nil // the call itself says so
	}
	var list []string
	for _, s := range cfg.GetEnsembleScheduling().GetStep() {
		list = append(list, s.GetModelName())
	}
	return list
}
