package httpapi

import (
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/httpapi/admin"
	"github.com/tutti-server/tutti/internal/server/httpapi/inference"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/server/httpapi/trtis"
	"github.com/tutti-server/tutti/internal/shm"
)

// route is a row of the table. Its path may have {model}, {version} (digits) and {name}, and one optional part in brackets.
type route struct {
	methods, path string
	serve         transport.Handler
}

const (
	get     = http.MethodGet
	post    = http.MethodPost
	getPost = http.MethodGet + " " + http.MethodPost
)

// routes lists every endpoint. Of two that match a path, the first serves it.
func routes(s *transport.Shared) []route {
	i, a, t, json := inference.New(s), admin.New(s), trtis.New(s), admin.JSON
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
		{get, "/v2/systemsharedmemory[/region/{name}]/status", a.RegionStatus(shm.System)},
		{post, "/v2/systemsharedmemory[/region/{name}]/register", a.RegionRegister(shm.System)},
		{post, "/v2/systemsharedmemory[/region/{name}]/unregister", a.RegionUnregister(shm.System)},
		{get, "/v2/cudasharedmemory[/region/{name}]/status", a.RegionStatus(shm.CUDA)},
		{post, "/v2/cudasharedmemory[/region/{name}]/register", a.RegionRegister(shm.CUDA)},
		{post, "/v2/cudasharedmemory[/region/{name}]/unregister", a.RegionUnregister(shm.CUDA)},
		{get, "/api/health/live", t.Live},
		{get, "/api/health/ready", t.Ready},
		{get, "/api/status[/{model}]", t.Status},
	}
}

// maxSegments is the number of segments of the longest path.
const maxSegments = 8

// pattern is one path of a route, split into segments.
type pattern struct {
	route
	segments []string
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
	p := pattern{r, strings.Split(path[1:], "/"), apiOf(path), strings.HasSuffix(path, "/infer"), errorTypeOf(path)}
	t[len(p.segments)] = append(t[len(p.segments)], p)
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
			if to.Version = got; strings.Trim(got, "0123456789") != "" {
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

// allows reports whether the route accepts a method.
func (p *pattern) allows(method string) bool {
	return p.methods == method || p.methods == getPost && (method == get || method == post)
}

// apiOf returns the part of the API that a path belongs to. A new route of a group is thus restricted with its group.
func apiOf(path string) infer.API {
	last := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case strings.HasPrefix(path, "/v2/repository"):
		return infer.APIModelRepository
	case strings.HasPrefix(path, "/v2/systemsharedmemory"), strings.HasPrefix(path, "/v2/cudasharedmemory"):
		return infer.APISharedMemory
	case strings.HasSuffix(path, "/trace/setting"):
		return infer.APITrace
	}
	switch last {
	case "infer", "generate", "generate_stream":
		return infer.APIInference
	case "live", "ready":
		return infer.APIHealth
	case "config":
		return infer.APIModelConfig
	case "stats":
		return infer.APIStatistics
	case "logging":
		return infer.APILogging
	default:
		return infer.APIMetadata
	}
}
