package httpapi

import (
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
)

// target is what a path names.
type target struct {
	model   string
	version string
	name    string // of a repository or region
}

// handler answers one kind of request.
type handler func(s *Server, w http.ResponseWriter, r *http.Request, t target)

// route is a row of the table: the path may hold {model}, {version} (digits) and
// {name}, and an optional part in brackets.
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

// routes lists every endpoint; of two that match a path, the first has it.
func routes() []route {
	return []route{
		{post, "/v2/models/{model}[/versions/{version}]/infer", (*Server).inferModel},
		{get, "/v2", (*Server).serverMetadata},
		{get, "/v2/health/live", (*Server).live},
		{get, "/v2/health/ready", (*Server).ready},
		{get, "/v2/models/stats", (*Server).statistics},
		{get, "/v2/models/{model}[/versions/{version}]", (*Server).modelMetadata},
		{get, "/v2/models/{model}[/versions/{version}]/ready", (*Server).modelReady},
		{get, "/v2/models/{model}[/versions/{version}]/config", (*Server).modelConfig},
		{get, "/v2/models/{model}[/versions/{version}]/stats", (*Server).statistics},
		{post, "/v2/models/{model}[/versions/{version}]/generate", (*Server).generate},
		{post, "/v2/models/{model}[/versions/{version}]/generate_stream", (*Server).generateStream},
		{getPost, "/v2/models/{model}/trace/setting", (*Server).traceSetting},
		{getPost, "/v2/trace/setting", (*Server).traceSetting},
		{getPost, "/v2/logging", (*Server).logging},
		{post, "/v2/repository[/{name}]/index", (*Server).repositoryIndex},
		{post, "/v2/repository[/{name}]/models/{model}/load", (*Server).loadModel},
		{post, "/v2/repository[/{name}]/models/{model}/unload", (*Server).unloadModel},
		{get, "/v2/systemsharedmemory[/region/{name}]/status", (*Server).systemStatus},
		{post, "/v2/systemsharedmemory[/region/{name}]/register", (*Server).systemRegister},
		{post, "/v2/systemsharedmemory[/region/{name}]/unregister", (*Server).systemUnregister},
		{get, "/v2/cudasharedmemory[/region/{name}]/status", (*Server).cudaStatus},
		{post, "/v2/cudasharedmemory[/region/{name}]/register", (*Server).cudaRegister},
		{post, "/v2/cudasharedmemory[/region/{name}]/unregister", (*Server).cudaUnregister},
		{get, "/api/health/live", (*Server).legacyLive},
		{get, "/api/health/ready", (*Server).legacyReady},
		{get, "/api/status[/{model}]", (*Server).legacyServerStatus},
	}
}

// maxSegments is the length of the longest path.
const maxSegments = 8

// pattern is one path of a route, split.
type pattern struct {
	segments []string
	methods  string
	serve    handler
	api      infer.API
	infers   bool // its handler reads the body by itself
	// errorType is the Content-Type of errors and of responses without a body, nil for none.
	errorType []string
}

// table finds a path's pattern among those with as many segments.
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

// errorTypeOf returns a route's errorType by its path. What Triton's handlers do not type, its HTTP library calls text,
// JSON or not: health, and what is wrong with an inference request before its body is read.
func errorTypeOf(path string) []string {
	switch {
	case strings.HasPrefix(path, "/api/"):
		return nil
	case apiOf(path) == infer.APIHealth, strings.HasSuffix(path, "/infer"):
		return textType
	default:
		return jsonType
	}
}

// find returns the pattern that path matches, or nil, and what the path names.
//
// hot: no allocation.
func (t *table) find(path string, to *target) *pattern {
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

func (p *pattern) match(segments []string, to *target) bool {
	*to = target{}
	for i, want := range p.segments {
		got := segments[i]
		switch want {
		case "{model}":
			to.model = got
		case "{version}":
			to.version = got
			if !digits(got) {
				return false
			}
		case "{name}":
			to.name = got
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

// allows reports whether the route takes a method.
func (p *pattern) allows(method string) bool {
	return p.methods == method || p.methods == getPost && (method == get || method == post)
}
