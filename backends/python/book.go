package python

import "sync"

// book knows which workers wait for which models, to tell a call that would wait for itself from one that only waits.
type book struct {
	mu     sync.Mutex
	models map[string]*entry // guarded by mu
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
	b.mu.Lock()
	defer b.mu.Unlock()
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
	if e == nil || len(e.waits) < e.instances {
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
