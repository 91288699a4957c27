package repository

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// separator stands between name and namespace in the key of a model. No folder name or address contains it, and it
// sorts before every other byte.
const separator = "\x00"

// keyOf returns the key of a model: its name, and with namespacing the name and its repository.
func (s *source) keyOf(space, name string) string {
	if s.spaces == nil {
		return name
	}
	return name + separator + space
}

func nameOf(key string) string {
	name, _, _ := strings.Cut(key, separator)
	return name
}

// namesOf returns the names in sorted keys, each once.
func namesOf(keys []string) (names []string) {
	for _, key := range keys {
		names = append(names, nameOf(key))
	}
	return slices.Compact(names)
}

// spaceOf returns the namespace in a key; empty without namespacing.
func spaceOf(key string) string {
	_, space, _ := strings.Cut(key, separator)
	return space
}

// Namespaces returns the namespaces that have a model of a name: of the known models, and for control also of those in the repositories, which
// a request would load. It has none without namespacing. The caller must not change the list.
//
// hot: without control, one map lookup.
func (r *Repository) Namespaces(name string, control bool) []string {
	list := r.catalog.Load().spaces[name]
	if !control || !r.s.Namespacing {
		return list
	}
	list = slices.Clone(list)
	for _, p := range r.source.findAll(name) {
		if space := spaceOf(p.key); !slices.Contains(list, space) {
			list = append(list, space)
		}
	}
	return list
}

// namespaces returns the namespaces of all roots, and the empty one of models that came with a load request. Nil
// without namespacing.
func (s *Settings) namespaces() []string {
	if !s.Namespacing {
		return nil
	}
	spaces := []string{""}
	for _, root := range s.Roots {
		if root = trimRoot(root); !slices.Contains(spaces, root) {
			spaces = append(spaces, root)
		}
	}
	return spaces
}

// trimRoot returns a root without trailing slashes, the form of a namespace.
func trimRoot(root string) string { return cmp.Or(strings.TrimRight(root, "/"), root) }

// resolve returns the key of the model that a step of the ensemble home refers to. It looks in the step's namespace if
// it names one, else in the ensemble's own, else in all others. It returns "" if no model or more than one matches.
func (s *source) resolve(home string, st *modelconfig.ModelEnsembling_Step, there func(key string) bool) string {
	name, space := st.GetModelName(), st.GetModelNamespace()
	switch {
	case s.spaces == nil && (space != "" || !there(name)):
		return ""
	case s.spaces == nil:
		return name
	case space != "":
		if key := s.keyOf(trimRoot(space), name); there(key) {
			return key
		}
		return ""
	}
	if key := s.keyOf(spaceOf(home), name); there(key) {
		return key
	}
	found := ""
	for _, space := range s.spaces {
		switch key := s.keyOf(space, name); {
		case !there(key):
		case found != "":
			return ""
		default:
			found = key
		}
	}
	return found
}

// known returns a test for keys of models.
func known(models map[string]*model) func(key string) bool {
	return func(key string) bool { return models[key] != nil }
}

// dependencies returns the keys of the models that an ensemble uses.
func (m *model) dependencies(s *source, models map[string]*model) []string {
	var list []string
	for _, st := range config.StepModels(m.folder.cfg) {
		if key := s.resolve(m.key, st, known(models)); key != "" && !slices.Contains(list, key) {
			list = append(list, key)
		}
	}
	return list
}

// locate finds on disk the model that a step of the ensemble home refers to.
func (s *source) locate(home string, st *modelconfig.ModelEnsembling_Step) (location, bool) {
	all := s.findAll(st.GetModelName())
	at := func(key string) int { return slices.IndexFunc(all, func(p location) bool { return p.key == key }) }
	key := s.resolve(home, st, func(key string) bool { return at(key) >= 0 })
	if key == "" {
		return location{}, false
	}
	return all[at(key)], true
}

// callNames indexes the models by the name in requests. A name that several serving models share maps to a
// placeholder that serves nothing; see ambiguous.
func callNames(models map[string]*model) map[string]*model {
	called := make(map[string]*model, len(models))
	for _, m := range models {
		other := called[m.name]
		switch {
		case other == nil, m.wanted && !other.wanted:
			called[m.name] = m
		case m.wanted && other.sharedBy > 0:
			other.sharedBy++
		case m.wanted:
			called[m.name] = &model{name: m.name, folder: &folder{}, wanted: true, sharedBy: 2}
		}
	}
	return called
}

// ambiguous is Triton's error for a name that several models share.
func (m *model) ambiguous() error {
	return status.Errorf(status.InvalidArg,
		"There are %d identifiers of model '%s' in global map, model namespace must be provided to resolve ambiguity.", m.sharedBy, m.name)
}

// lookup gives the plan compiler the models that an ensemble refers to.
type lookup struct {
	source *source
	models map[string]*model
	home   string
	space  string // named by a step
}

var (
	_ plan.NamespaceLookup = lookup{}
	_ plan.Namer           = lookup{}
)

// Names implements plan.Namer.
func (l lookup) Names() []string { return namesOf(slices.Sorted(maps.Keys(l.models))) }

// In implements plan.Spaces.
func (l lookup) In(namespace string) plan.Lookup {
	l.space = namespace
	return l
}

// Self implements plan.Spaces.
func (l lookup) Self() string { return l.home }

// Model implements plan.Lookup.
func (l lookup) Model(name string, number int64) (plan.Model, error) {
	step := modelconfig.ModelEnsembling_Step{ModelName: name, ModelNamespace: l.space}
	serves := func(key string) bool { return l.models[key] != nil && l.models[key].wanted }
	key := cmp.Or(l.source.resolve(l.home, &step, serves), l.source.resolve(l.home, &step, known(l.models)))
	m := l.models[key]
	switch {
	case m == nil:
		return plan.Model{}, status.Errorf(status.NotFound, "there is no model '%s'", name)
	case !m.wanted:
		return plan.Model{}, status.Reasonf(status.ModelNotReady, "%s", unloaded)
	case m.folder.err != nil:
		return plan.Model{}, status.Errorf(status.InvalidArg, "%w", m.folder.err)
	case m.ensemble() && number > 0 && !slices.Contains(m.folder.versions, number):
		return plan.Model{}, status.Errorf(status.InvalidArg, "there is no version %d of ensemble '%s'", number, name)
	case m.ensemble():
		l.home, l.space = key, ""
		return plan.Model{ID: key, Steps: l, Signature: config.SignatureOf(m.folder.cfg), Ensemble: m.folder.cfg}, nil
	}
	v := m.version(number)
	switch {
	case v == nil && m.err != nil:
		return plan.Model{}, status.Reasonf(status.ModelNotReady, "%w", m.err)
	case v == nil:
		return plan.Model{}, status.Errorf(status.InvalidArg, "version %d of model '%s' is not loaded", number, name)
	}
	return plan.Model{ID: key, Signature: v.sig, Places: m.placesOf(v), PlacesWhy: v.placesWhy(), Edge: v.edge(), Gathers: v.gathers(), Precision: v.precision, Idempotent: config.Idempotent(v.cfg), Formats: config.Formats(v.cfg), Sequence: v.cfg.GetSequenceBatching() != nil}, nil
}

// findAll returns the locations of the models with a name, one per namespace.
func (s *source) findAll(name string) []location {
	var all []location
	add := func(p location) {
		if i := slices.IndexFunc(all, func(o location) bool { return o.key == p.key }); i >= 0 {
			all[i].duplicate = p.dir
			return
		}
		all = append(all, p)
	}
	for _, root := range s.roots {
		if s.holdsModel(root, name) {
			add(s.locationIn(root, name))
		}
	}
	for _, m := range s.buckets {
		if p := s.locationAt(m, name); p.objects != nil {
			add(p)
		}
	}
	return all
}
