package httpapi

import (
	"net/http"
	"slices"
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
	api           infer.API // the part of the API, which may be restricted
	serve         transport.Handler
}

const (
	get       = http.MethodGet
	post      = http.MethodPost
	getPost   = http.MethodGet + " " + http.MethodPost
	getDelete = http.MethodGet + " " + http.MethodDelete
)

// routes lists every endpoint. Of two that match a path, the first serves it.
func routes(s *transport.Shared, i *inference.Service) []route {
	a, t, json := admin.New(s), trtis.New(s), admin.JSON
	return []route{
		{post, "/v2/models/{model}[/versions/{version}]/infer", infer.APIInference, i.Infer},
		{get, "/v2", infer.APIMetadata, json(a.ServerMetadata)},
		{get, "/v2/health/live", infer.APIHealth, a.Health(false)},
		{get, "/v2/health/ready", infer.APIHealth, a.Health(true)},
		{get, "/v2/models/stats", infer.APIStatistics, json(a.Statistics)},
		{get, "/v2/models/{model}[/versions/{version}]", infer.APIMetadata, json(a.ModelMetadata)},
		{get, "/v2/models/{model}[/versions/{version}]/ready", infer.APIHealth, json(a.ModelReady)},
		{get, "/v2/models/{model}[/versions/{version}]/config", infer.APIModelConfig, a.ModelConfig},
		{get, "/v2/models/{model}[/versions/{version}]/stats", infer.APIStatistics, json(a.Statistics)},
		{get, "/v2/models/{model}[/versions/{version}]/routes", infer.APIStatistics, json(a.Routes)},
		{post, "/v2/models/{model}[/versions/{version}]/generate", infer.APIInference, i.Generate},
		{post, "/v2/models/{model}[/versions/{version}]/generate_stream", infer.APIInference, i.GenerateStream},
		{getPost, "/v2/models/{model}/trace/setting", infer.APITrace, json(a.TraceSetting)},
		{getPost, "/v2/trace/setting", infer.APITrace, json(a.TraceSetting)},
		{getPost, "/v2/logging", infer.APILogging, json(a.Logging)},
		{post, "/v2/repository[/{name}]/index", infer.APIModelRepository, json(a.RepositoryIndex)},
		{post, "/v2/repository[/{name}]/models/{model}/load", infer.APIModelRepository, json(a.LoadModel)},
		{post, "/v2/repository[/{name}]/models/{model}/unload", infer.APIModelRepository, json(a.UnloadModel)},
		{get, "/v2/systemsharedmemory[/region/{name}]/status", infer.APISharedMemory, a.RegionStatus(shm.System)},
		{post, "/v2/systemsharedmemory[/region/{name}]/register", infer.APISharedMemory, a.RegionRegister(shm.System)},
		{post, "/v2/systemsharedmemory[/region/{name}]/unregister", infer.APISharedMemory, a.RegionUnregister(shm.System)},
		{get, "/v2/cudasharedmemory[/region/{name}]/status", infer.APISharedMemory, a.RegionStatus(shm.CUDA)},
		{post, "/v2/cudasharedmemory[/region/{name}]/register", infer.APISharedMemory, a.RegionRegister(shm.CUDA)},
		{post, "/v2/cudasharedmemory[/region/{name}]/unregister", infer.APISharedMemory, a.RegionUnregister(shm.CUDA)},
		{getPost, "/v2/jobs", infer.APIJobs, a.Jobs},
		{get, "/v2/jobs/openapi.json", infer.APIJobs, a.JobsDocument},
		{getDelete, "/v2/jobs/requests/{name}", infer.APIJobs, json(a.Request)},
		{get, "/v2/jobs/requests/{name}/result", infer.APIJobs, a.RequestResult},
		{get, "/v2/jobs/{name}", infer.APIJobs, json(a.Job)},
		{get, "/v2/jobs/{name}/result", infer.APIJobs, json(a.JobResult)},
		{get, "/v2/jobs/{name}/failures", infer.APIJobs, json(a.JobFailures)},
		{post, "/v2/jobs/{name}/pause", infer.APIJobs, json(a.PauseJob)},
		{post, "/v2/jobs/{name}/resume", infer.APIJobs, json(a.ResumeJob)},
		{post, "/v2/jobs/{name}/cancel", infer.APIJobs, json(a.CancelJob)},
		{post, "/v2/jobs/{name}/retry", infer.APIJobs, a.RetryJob},
		{get, "/api/health/live", infer.APIHealth, t.Health(false)},
		{get, "/api/health/ready", infer.APIHealth, t.Health(true)},
		{get, "/api/status[/{model}]", infer.APIMetadata, t.Status},
	}
}

// controls are the parts of the API with which clients change the server.
var controls = []infer.API{infer.APIModelRepository, infer.APISharedMemory, infer.APITrace, infer.APILogging, infer.APIJobs}

// maxSegments is the number of segments of the longest path.
const maxSegments = 8

// pattern is one path of a route, split into segments.
type pattern struct {
	route
	segments []string
	infers   bool // an infer request, whose handler sets its own deadlines for the body
	controls bool // it changes the server: pages of other sites may not
	// action is the name of the change in the audit log, empty for a route that changes nothing. GET changes nothing in any case.
	action string
	// errorType is the Content-Type of errors and of empty responses; nil for none.
	errorType []string
}

// table has the patterns by their number of segments.
type table [maxSegments + 1][]pattern

func compile(list []route) *table {
	t := new(table)
	for _, r := range list {
		head, rest, _ := strings.Cut(r.path, "[")
		part, tail, _ := strings.Cut(rest, "]")
		for _, path := range slices.Compact([]string{head + tail, head + part + tail}) {
			p := pattern{r, strings.Split(path[1:], "/"), strings.HasSuffix(path, "/infer"), slices.Contains(controls, r.api), actionOf(path), errorTypeOf(r.api, path)}
			t[len(p.segments)] = append(t[len(p.segments)], p)
		}
	}
	return t
}

// actions are the names of changes by the end of the path.
var actions = []struct{ suffix, action string }{
	{"/load", "model.load"},
	{"/unload", "model.unload"},
	{"/trace/setting", "trace.set"},
	{"/logging", "logging.set"},
	{"/register", "shared-memory.register"},
	{"/unregister", "shared-memory.unregister"},
	{"/v2/jobs", "job.submit"},
	{"/pause", "job.pause"},
	{"/resume", "job.resume"},
	{"/cancel", "job.cancel"},
	{"/retry", "job.submit"},
	{"/requests/{name}", "request.cancel"},
}

func actionOf(path string) string {
	for _, a := range actions {
		if strings.HasSuffix(path, a.suffix) {
			return a.action
		}
	}
	return ""
}

// errorTypeOf returns the errorType of a path. Triton's HTTP library labels as text what its handlers leave without a type: health,
// and errors of an infer request before its body is read.
func errorTypeOf(api infer.API, path string) []string {
	switch {
	case strings.HasPrefix(path, "/api/"):
		return nil
	case api == infer.APIHealth, strings.HasSuffix(path, "/infer"):
		return transport.TextType
	default:
		return transport.JSONType
	}
}

// find returns the pattern that matches a path, or nil, and sets the variable parts in to.
//
// hot: no allocation.
func (t *table) find(path string, to *transport.Path) *pattern {
	if path == "" || path[0] != '/' || strings.Count(path, "/") > maxSegments {
		return nil
	}
	var buf [maxSegments]string
	segments := buf[:0]
	for rest, more := path[1:], true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		segments = append(segments, segment)
	}
	list := t[len(segments)]
	for i := range list {
		if list[i].match(segments, to) {
			return &list[i]
		}
	}
	return nil
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
	return p.methods == method || slices.Contains(strings.Fields(p.methods), method)
}
