package repository

import "slices"

// Reloading reports whether an evicted model is being loaded again.
func (r *Repository) Reloading() bool {
	r.memory.mu.Lock()
	list := slices.Clone(r.memory.list)
	r.memory.mu.Unlock()
	return slices.ContainsFunc(list, func(x *residency) bool {
		x.wants.Lock()
		defer x.wants.Unlock()
		return x.loading
	})
}
