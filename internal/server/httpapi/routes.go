package httpapi

import (
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/httpapi/admin"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// handler serves the requests of a route.
type handler func(w http.ResponseWriter, r *http.Request, p transport.Path)

// route is a row of the table. Its path may have {model}, {version} (digits) and {name}, and one optional part in brackets.
type route struct {
	methods string
	path    string
	serve   handler
}

const (
	get     = http.MethodGet
	post    = http.MethodPost
	getPost = http.MethodGet + " " + http.MethodPost
)

// routes lists every endpoint. Of two that match a path, the first serves it.
func (s *Server) routes() []route {
	i, a, t, json := s.inference, s.admin, s.trtis, admin.JSON
	return []route{
		{post, "/v2/models/{model}[/versions/{version}]/infer", i.Infer},
		{get, "/v2", json(a.ServerMetadata)},
		{get, "/v2/health/live", a.Live},
		{get, "/v2/health/ready", a.Ready},
		{get, "/v2/models/stats", json(a.Statistics)},
		{get, "/v2/models/{model}[/versions/{version}]", json(a.ModelMetadata)},
		{get, "/v2/models/{model}[/versions/{version}]/ready", a.ModelReady},
		{get, "/v2/models/{model}[/versions/{version}]/config", a.ModelConfig},
		{get, "/v2/models/{model}[/versions/{version}]/stats", json(a.Statistics)},
		{post, "/v2/models/{model}[/versions/{version}]/generate", i.Generate},
		{post, "/v2/models/{model}[/versions/{version}]/generate_stream", i.GenerateStream},
		{getPost, "/v2/models/{model}/trace/setting", json(a.TraceSetting)},
		{getPost, "/v2/trace/setting", json(a.TraceSetting)},
		{getPost, "/v2/logging", json(a.Logging)},
		{post, "/v2/repository[/{name}]/index", json(a.RepositoryIndex)},
		{post, "/v2/repository[/{name}]/models/{model}/load", json(a.LoadModel)},
		{post, "/v2/repository[/{name}]/models/{model}/unload", json(a.UnloadModel)},
		{get, "/v2/systemsharedmemory[/region/{name}]/status", json(a.SystemStatus)},
		{post, "/v2/systemsharedmemory[/region/{name}]/register", json(a.SystemRegister)},
		{post, "/v2/systemsharedmemory[/region/{name}]/unregister", json(a.SystemUnregister)},
		{get, "/v2/cudasharedmemory[/region/{name}]/status", json(a.CUDAStatus)},
		{post, "/v2/cudasharedmemory[/region/{name}]/register", json(a.CUDARegister)},
		{post, "/v2/cudasharedmemory[/region/{name}]/unregister", json(a.CUDAUnregister)},
		{get, "/api/health/live", t.Live},
		{get, "/api/health/ready", t.Ready},
		{get, "/api/status[/{model}]", t.Status},
	}
}

// maxSegments is the number of segments of the longest path.
const maxSegments = 8

// pattern is one path of a route, split into segments.
type pattern struct {
	segments []string
	methods  string
	serve    handler
	api      infer.API
	infers   bool // an infer request, whose handler sets its own deadlines for the body
	// errorType is the Content-Type of errors and of empty responses; nil for none.
	errorType []string
}

// table has the patterns by their number of segments.
type table [maxSegments + 1][]pattern

func compile(list []route) *table {
	t := new(table)
	for _, r := range list {
		head, rest, optional := strings.Cut(r.path, "[")
		part, tail, _ := strings.Cut(rest, "]")
		t.add(r, head+tail)
		if optional {
			t.add(r, head+part+tail)
		}
	}
	return t
}

func (t *table) add(r route, path string) {
	segments := strings.Split(path[1:], "/")
	t[len(segments)] = append(t[len(segments)], pattern{
		segments, r.methods, r.serve, apiOf(path), strings.HasSuffix(path, "/infer"), errorTypeOf(path),
	})
}

// errorTypeOf returns the errorType of a path. Triton's HTTP library labels as text what its handlers leave without a type: health,
// and errors of an infer request before its body is read.
func errorTypeOf(path string) []string {
	switch {
	case strings.HasPrefix(path, "/api/"):
		return nil
	case apiOf(path) == infer.APIHealth, strings.HasSuffix(path, "/infer"):
		return transport.TextType
	default:
		return transport.JSONType
	}
}

// find returns the pattern that matches a path, or nil, and sets the variable parts in to.
//
// hot: no allocation.
func (t *table) find(path string, to *transport.Path) *pattern {
	var buf [maxSegments]string
	segments, ok := split(path, buf[:0])
	if !ok {
		return nil
	}
	list := t[len(segments)]
	for i := range list {
		if list[i].match(segments, to) {
			return &list[i]
		}
	}
	return nil
}

func split(path string, into []string) ([]string, bool) {
	if path == "" || path[0] != '/' {
		return nil, false
	}
	for rest, more := path[1:], true; more; {
		if len(into) == maxSegments {
			return nil, false
		}
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		into = append(into, segment)
	}
	return into, true
}

func (p *pattern) match(segments []string, to *transport.Path) bool {
	*to = transport.Path{}
	for i, want := range p.segments {
		got := segments[i]
		switch want {
		case "{model}":
			to.Model = got
		case "{version}":
			to.Version = got
			if !digits(got) {
				return false
			}
		case "{name}":
			to.Name = got
		default:
			if got != want {
				return false
			}
		}
		if got == "" {
			return false
		}
	}
	return true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// allows reports whether the route accepts a method.
func (p *pattern) allows(method string) bool {
	return p.methods == method || p.methods == getPost && (method == get || method == post)
}
