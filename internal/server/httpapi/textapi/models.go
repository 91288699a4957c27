package textapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// kind is one of the APIs of a model.
type kind struct {
	param string
	api   func(*config.APIs) *config.API
}

var (
	embeddings  = kind{config.EmbeddingsParam, func(a *config.APIs) *config.API { return a.Embeddings }}
	rerank      = kind{config.RerankParam, func(a *config.APIs) *config.API { return a.Rerank }}
	completions = kind{config.CompletionsParam, func(a *config.APIs) *config.API { return a.Completions }}
	tokens      = kind{config.TokenizeParam, func(a *config.APIs) *config.API { return a.Tokenize }}
)

// named are the kinds whose models may have further names.
var named = []kind{embeddings, rerank, completions}

// served is a version of a model that has an API.
type served struct {
	name    string
	version int64 // 0 for the one that the version policy prefers
	desc    *infer.Description
	apis    config.APIs
}

// names are the further names that requests of this kind may use.
func (m *served) names(of kind) []string {
	if a := of.api(&m.apis); a != nil {
		return a.Names
	}
	return nil
}

// directory has the models with an API, as of a generation of the catalog.
type directory struct {
	generation uint64
	models     []*served // by name
	byName     map[string]*served
	called     map[furtherName][]*served
	further    map[string][]string // the names of a model that no model before it has, and that are no names of models
}

// furtherName is a name of models besides their own, for requests of an API.
type furtherName struct{ param, name string }

// alias returns the model with that further name, nil if there is none. Several models with it are an error.
//
// hot: a map lookup for requests with such a name.
func (d *directory) alias(name string, of kind) (*served, error) {
	switch list := d.called[furtherName{of.param, name}]; len(list) {
	case 0:
		return nil, nil //nolint:nilnil // the caller has an error for that
	case 1:
		return list[0], nil
	default:
		return nil, invalid("model", "'%.200s' is a name of the models '%s' and '%s' in their parameters '%s', expected one", name, list[0].name, list[1].name, of.param)
	}
}

// directory returns the models that have an API now.
//
// hot: one atomic load while no model is loaded or unloaded.
func (s *Service) directory() *directory {
	lister, ok := s.Catalog.(infer.Lister)
	if !ok {
		return &directory{}
	}
	generation := lister.Generation()
	if d := s.models.Load(); d != nil && d.generation == generation {
		return d
	}
	d := &directory{generation: generation, byName: map[string]*served{}, called: map[furtherName][]*served{}, further: map[string][]string{}}
	for _, name := range lister.Names() {
		desc, err := s.Catalog.Describe(name, 0)
		if err != nil {
			continue
		}
		if m := s.serve(name, 0, desc); m != nil {
			d.models = append(d.models, m)
			d.byName[name] = m
		}
	}
	d.listNames(s.Catalog)
	s.models.Store(d)
	return d
}

// listNames lists the further names of the models.
func (d *directory) listNames(known infer.Catalog) {
	seen := map[string]bool{}
	for _, m := range d.models {
		for _, of := range named {
			for _, name := range m.names(of) {
				key := furtherName{of.param, name}
				if !slices.Contains(d.called[key], m) {
					d.called[key] = append(d.called[key], m)
				}
				if _, err := known.Describe(name, 0); seen[name] || err == nil || status.CodeOf(err) == status.Unavailable {
					continue
				}
				seen[name] = true
				d.further[m.name] = append(d.further[m.name], name)
			}
		}
	}
}

// serve returns a version as one that has an API, nil if it has none.
func (s *Service) serve(name string, version int64, desc *infer.Description) *served {
	cfg, err := s.Catalog.Config(name, version)
	if err != nil {
		return nil
	}
	m := &served{name: name, version: version, desc: desc}
	if m.apis, _ = config.APIsOf(cfg); m.apis == (config.APIs{}) {
		return nil
	}
	return m
}

// resolve returns the model with an API that a request names, or the only possible one if it names none. The client must be permitted to use
// it.
func (s *Service) resolve(r *http.Request, name string, of kind) (*served, error) {
	d := s.directory()
	if !slices.ContainsFunc(d.models, func(m *served) bool { return of.api(&m.apis) != nil }) {
		return nil, status.Errorf(status.NotFound, "no model of this server has the parameter '%s', which makes this route serve it", of.param)
	}
	var m *served
	var err error
	if name == "" {
		if m, err = d.only(r, of); m != nil {
			name = m.name
		}
	}
	if err == nil {
		m, err = s.find(d, name, of) // which fails once the server stops
	}
	if m != nil {
		name = m.name
	}
	if refused := s.permit(r, infer.APIInference, name); refused != nil {
		return nil, refused
	}
	if err == nil && of.api(&m.apis) == nil {
		err = invalid("model", "model '%s' has no parameter '%s', expected one of the models that have it: %s", name, of.param, d.list(r, of))
	}
	return m, err
}

// permit returns an error, which is in the audit log, if the client may not use a model.
func (s *Service) permit(r *http.Request, api infer.API, model string) error {
	if !s.Guard.Required() {
		return nil
	}
	who := identity.From(r.Context())
	if err := who.May(identity.GroupOf(api), model); err != nil {
		return s.Guard.Refuse(who, identity.Event{From: r.RemoteAddr, Via: "http", Action: api.String(), Object: model}, err)
	}
	return nil
}

// find returns the model with a name, which may have a version behind it: "m" or "m:2". The names of models come before further names.
//
// hot: two map lookups for a model without a version.
func (s *Service) find(d *directory, name string, of kind) (*served, error) {
	desc, err := s.Catalog.Describe(name, 0)
	if m := d.byName[name]; err == nil && m != nil && m.desc == desc {
		return m, nil
	}
	if err != nil && status.CodeOf(err) != status.Unavailable {
		m, failed := d.alias(name, of)
		if failed != nil {
			return nil, failed
		}
		if m != nil && m.name != name {
			return s.find(d, m.name, of) // which fails once the server stops
		}
	}
	version := int64(0)
	if err != nil && status.CodeOf(err) != status.Unavailable {
		i := strings.LastIndexByte(name, ':')
		number, failed := strconv.ParseInt(name[i+1:], 10, 64)
		if i < 0 || failed != nil || number < 1 {
			return nil, unknown(name, err)
		}
		version = number
		if desc, err = s.Catalog.Describe(name[:i], version); err != nil && status.CodeOf(err) != status.Unavailable {
			return nil, unknown(name, err)
		}
		name = name[:i]
	}
	if err != nil {
		return nil, err
	}
	if m := s.serve(name, version, desc); m != nil {
		return m, nil
	}
	return &served{name: name, version: version, desc: desc}, nil
}

func unknown(name string, err error) error {
	return &transport.FieldError{Param: "model", Code: transport.CodeModel, Err: status.Errorf(status.NotFound, "The model '%.200s' does not exist: %w", name, err)}
}

// only returns the model for requests that name none.
func (d *directory) only(r *http.Request, of kind) (*served, error) {
	var first, chosen *served
	several, ambiguous := false, false
	for _, m := range d.models {
		api := of.api(&m.apis)
		if api == nil {
			continue
		}
		if first != nil {
			several = true
		}
		if first == nil {
			first = m
		}
		if api.Default {
			ambiguous = chosen != nil
			chosen = m
		}
	}
	switch {
	case ambiguous:
		return nil, invalid("model", "the request names no model and several have 'default' in '%s', expected one: %s", of.param, d.list(r, of))
	case chosen != nil:
		return chosen, nil
	case several:
		return nil, invalid("model", "the request names no model and several have '%s', expected the member 'model' or the word 'default' in the parameter of one: %s", of.param, d.list(r, of))
	}
	return first, nil
}

// list returns the names of the models with an API that the client may use.
func (d *directory) list(r *http.Request, of kind) string {
	const most = 10
	who := identity.From(r.Context())
	var names []string
	for _, m := range d.models {
		if of.api(&m.apis) == nil || !who.Sees(identity.GroupOf(infer.APIInference), m.name) {
			continue
		}
		if len(names) == most {
			names = append(names, "...")
			break
		}
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// Models serves GET /v1/models: the models that have an API.
func (s *Service) Models(w http.ResponseWriter, r *http.Request, _ transport.Path) {
	d := s.directory()
	if len(d.models) == 0 {
		transport.FormOpenAI.Write(w, status.Errorf(status.NotFound, "no model of this server has a parameter '%s' or another one that begins with 'api.'", embeddings.param))
		return
	}
	who := identity.From(r.Context())
	b := []byte(`{"object":"list","data":[`)
	for _, m := range d.models {
		if !who.Sees(identity.GroupOf(infer.APIMetadata), m.name) {
			continue
		}
		b = append(s.appendModel(b, m.name), ',')
		for _, name := range d.further[m.name] {
			b = append(s.appendModel(b, name), ',')
		}
	}
	transport.WriteBody(w, append([]byte(strings.TrimSuffix(string(b), ",")), "]}"...))
}

// Model serves GET /v1/models/{name}.
func (s *Service) Model(w http.ResponseWriter, r *http.Request, p transport.Path) {
	d := s.directory()
	var m *served
	var err error
	for _, of := range named {
		if m, err = s.find(d, p.Model, of); m != nil {
			break
		}
	}
	name := p.Model
	if m != nil {
		name = m.name
	}
	if refused := s.permit(r, infer.APIMetadata, name); refused != nil {
		err = refused
	}
	if err != nil {
		transport.FormOpenAI.Write(w, err)
		return
	}
	transport.WriteBody(w, s.appendModel(nil, p.Model))
}

func (s *Service) appendModel(b []byte, name string) []byte {
	b = jsontext.AppendValid(append(b, `{"id":`...), name)
	b = strconv.AppendInt(append(b, `,"object":"model","created":`...), s.started, 10)
	return append(b, `,"owned_by":"tutti"}`...)
}
