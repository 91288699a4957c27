package repository

import (
	"maps"
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// snapshot is every known model at one moment. It never changes: requests read it
// without a lock, and a change publishes another.
type snapshot struct {
	models map[string]*model // by key
	keys   []string          // of models, sorted
	called map[string]*model // by the name in a request
}

// newSnapshot makes one of models by key; spaced says that a key is more than a name.
func newSnapshot(models map[string]*model, spaced bool) *snapshot {
	s := &snapshot{models: models, keys: slices.Sorted(maps.Keys(models)), called: models}
	if spaced {
		s.called = callNames(models)
	}
	return s
}

// model is a model in a snapshot, which never changes but for the lives' states.
type model struct {
	key    string // see source.keyOf
	name   string
	folder *folder
	// versions are those that serve, ascending.
	versions []*version
	// lives are those of every known version, ascending.
	states []*versionState
	// err says why not all of it serves.
	err error
	// wanted is false once the model is unloaded.
	wanted bool
	// withdrawn marks an ensemble that does not serve because a model within it was unloaded
	// on request, or its folder removed: the server is ready without it.
	withdrawn bool
	// explicit marks a model that was asked for by name, not for an ensemble.
	explicit bool
	// holds keeps the folder of a model that came with a request, which an ensemble
	// needs again when it is compiled anew.
	holdsOverride bool
	// moved are the places of versions that have other instances than they were loaded with.
	moved map[*version][]tensor.Place
	// print is the folder's fingerprint when it was loaded; when it is polled, when loading was
	// last tried.
	fingerprint uint64
	// twins is how many models a name stands for, of a model that stands for a name
	// with more than one.
	sharedBy int
}

// version returns the given version, the latest for number <= 0, or nil.
func (m *model) version(number int64) *version {
	if number <= 0 && len(m.versions) > 0 {
		return m.versions[len(m.versions)-1]
	}
	for _, v := range m.versions {
		if v.sig.Version == number {
			return v
		}
	}
	return nil
}

// placesOf returns where a version has instances, nil on the host.
func (m *model) placesOf(v *version) []tensor.Place {
	if places, ok := m.moved[v]; ok {
		return places
	}
	return v.places
}

func (m *model) ensemble() bool { return config.IsEnsemble(m.folder.cfg) }

// ready reports whether all of the model serves, or is not expected to.
func (m *model) ready() bool { return !m.wanted || m.withdrawn || m.err == nil && len(m.versions) > 0 }

// temp returns the temporary folder that the model holds, or nil; the model may be nil.
func (m *model) overrideDir() *overrideDir {
	if m == nil || !m.holdsOverride {
		return nil
	}
	return m.folder.overrideDir
}

// live returns the life of a version, or nil.
func (m *model) stateOf(number int64) *versionState {
	for _, l := range m.states {
		if l.number == number {
			return l
		}
	}
	return nil
}

// without returns the model once it is unloaded. What served is on its way out.
func (m *model) asUnloaded() *model {
	return &model{key: m.key, name: m.name, folder: m.folder, states: m.states, fingerprint: m.fingerprint}
}

// find returns the version that serves a request, with Triton's words when there is none.
//
// hot: one map lookup.
func (s *snapshot) find(name string, number int64) (*version, error) {
	m := s.called[name]
	if m == nil {
		return nil, status.Errorf(status.InvalidArg, "Request for unknown model: '%s' is not found", name)
	}
	if v := m.version(number); v != nil {
		return v, nil
	}
	if m.sharedBy > 0 {
		return nil, m.ambiguous()
	}
	if number <= 0 {
		return nil, status.Errorf(status.NotFound, "Request for unknown model: '%s' has no available versions", name)
	}
	if m.stateOf(number) != nil {
		return nil, status.Errorf(status.Unavailable, "Request for unknown model: '%s' version %d is not at ready state", name, number)
	}
	return nil, status.Errorf(status.NotFound, "Request for unknown model: '%s' version %d is not found", name, number)
}

// find is the snapshot's of this moment.
//
// hot: no lock, one map lookup.
func (r *Repository) find(name string, number int64) (*version, error) {
	return r.catalog.Load().find(name, number)
}
