package backends

import (
	"fmt"
	"maps"
	"slices"
)

// Registry finds factories by backend name or platform. It is immutable and safe for concurrent use.
type Registry struct {
	byName     map[string]*Factory
	byPlatform map[string]*Factory
}

// NewRegistry returns a registry of the given factories. A name or platform that is listed twice is an error.
func NewRegistry(factories ...Factory) (*Registry, error) {
	r := &Registry{byName: map[string]*Factory{}, byPlatform: map[string]*Factory{}}
	for _, f := range factories {
		if r.byName[f.Name] != nil {
			return nil, fmt.Errorf("backend '%s' is listed twice", f.Name)
		}
		r.byName[f.Name] = &f
		for _, p := range f.Platforms {
			if r.byPlatform[p] != nil {
				return nil, fmt.Errorf("platform '%s' is listed twice", p)
			}
			r.byPlatform[p] = &f
		}
	}
	return r, nil
}

// ByName returns the factory of a backend name, or nil.
func (r *Registry) ByName(name string) *Factory { return r.byName[name] }

// Params returns Factory.Params of the backend with that name, or nil.
func (r *Registry) Params(name string) []string {
	if f := r.byName[name]; f != nil {
		return f.Params
	}
	return nil
}

// Names returns the names of all backends, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// ByPlatform returns the factory of a platform name, or nil.
func (r *Registry) ByPlatform(platform string) *Factory { return r.byPlatform[platform] }
