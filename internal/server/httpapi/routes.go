package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/httpapi/admin"
	"github.com/tutti-server/tutti/internal/server/httpapi/inference"
	"github.com/tutti-server/tutti/internal/server/httpapi/textapi"
	"github.com/tutti-server/tutti/internal/server/httpapi/tools"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/server/httpapi/trtis"
	"github.com/tutti-server/tutti/internal/shm"
)

// route is a row of the table. Its path may have {model}, {version} (digits) and {name}, and one optional part in brackets. The last element
// may be {models}, a name of a model that may have slashes.
type route struct {
	methods, path string
	api           infer.API // the part of the API, which may be restricted
	serve         transport.Handler
	form          transport.ErrorForm // of errors
}

const (
	get       = http.MethodGet
	post      = http.MethodPost
	getPost   = http.MethodGet + " " + http.MethodPost
	getDelete = http.MethodGet + " " + http.MethodDelete
)

// routes lists every endpoint. Of two that match a path, the first serves it. x serves those of other servers; nil for none.
func routes(s *transport.Shared, i *inference.Service, x *textapi.Service) []route {
	a, t, json := admin.New(s), trtis.New(s), admin.JSON
	list := []route{
		{post, "/v2/models/{model}[/versions/{version}]/infer", infer.APIInference, i.Infer, transport.FormV2},
		{get, "/v2", infer.APIMetadata, json(a.ServerMetadata), transport.FormV2},
		{get, "/v2/health/live", infer.APIHealth, a.Health(false), transport.FormV2},
		{get, "/v2/health/ready", infer.APIHealth, a.Health(true), transport.FormV2},
		{get, "/v2/models/stats", infer.APIStatistics, json(a.Statistics), transport.FormV2},
		{get, "/v2/models/{model}[/versions/{version}]", infer.APIMetadata, json(a.ModelMetadata), transport.FormV2},
		{get, "/v2/models/{model}[/versions/{version}]/ready", infer.APIHealth, json(a.ModelReady), transport.FormV2},
		{get, "/v2/models/{model}[/versions/{version}]/config", infer.APIModelConfig, a.ModelConfig, transport.FormV2},
		{get, "/v2/models/{model}[/versions/{version}]/stats", infer.APIStatistics, json(a.Statistics), transport.FormV2},
		{get, "/v2/models/{model}[/versions/{version}]/routes", infer.APIStatistics, json(a.Routes), transport.FormV2},
		{post, "/v2/models/{model}[/versions/{version}]/generate", infer.APIInference, i.Generate, transport.FormV2},
		{post, "/v2/models/{model}[/versions/{version}]/generate_stream", infer.APIInference, i.GenerateStream, transport.FormV2},
		{getPost, "/v2/models/{model}/trace/setting", infer.APITrace, json(a.TraceSetting), transport.FormV2},
		{getPost, "/v2/trace/setting", infer.APITrace, json(a.TraceSetting), transport.FormV2},
		{getPost, "/v2/logging", infer.APILogging, json(a.Logging), transport.FormV2},
		{post, "/v2/repository[/{name}]/index", infer.APIModelRepository, json(a.RepositoryIndex), transport.FormV2},
		{post, "/v2/repository[/{name}]/models/{model}/load", infer.APIModelRepository, json(a.LoadModel), transport.FormV2},
		{post, "/v2/repository[/{name}]/models/{model}/unload", infer.APIModelRepository, json(a.UnloadModel), transport.FormV2},
		{get, "/v2/systemsharedmemory[/region/{name}]/status", infer.APISharedMemory, a.RegionStatus(shm.System), transport.FormV2},
		{post, "/v2/systemsharedmemory[/region/{name}]/register", infer.APISharedMemory, a.RegionRegister(shm.System), transport.FormV2},
		{post, "/v2/systemsharedmemory[/region/{name}]/unregister", infer.APISharedMemory, a.RegionUnregister(shm.System), transport.FormV2},
		{get, "/v2/cudasharedmemory[/region/{name}]/status", infer.APISharedMemory, a.RegionStatus(shm.CUDA), transport.FormV2},
		{post, "/v2/cudasharedmemory[/region/{name}]/register", infer.APISharedMemory, a.RegionRegister(shm.CUDA), transport.FormV2},
		{post, "/v2/cudasharedmemory[/region/{name}]/unregister", infer.APISharedMemory, a.RegionUnregister(shm.CUDA), transport.FormV2},
		{getPost, "/v2/jobs", infer.APIJobs, a.Jobs, transport.FormV2},
		{get, "/v2/jobs/openapi.json", infer.APIJobs, a.JobsDocument, transport.FormV2},
		{getDelete, "/v2/jobs/requests/{name}", infer.APIJobs, json(a.Request), transport.FormV2},
		{get, "/v2/jobs/requests/{name}/result", infer.APIJobs, a.RequestResult, transport.FormV2},
		{get, "/v2/jobs/{name}", infer.APIJobs, json(a.Job), transport.FormV2},
		{get, "/v2/jobs/{name}/result", infer.APIJobs, json(a.JobResult), transport.FormV2},
		{get, "/v2/jobs/{name}/failures", infer.APIJobs, json(a.JobFailures), transport.FormV2},
		{post, "/v2/jobs/{name}/pause", infer.APIJobs, json(a.PauseJob), transport.FormV2},
		{post, "/v2/jobs/{name}/resume", infer.APIJobs, json(a.ResumeJob), transport.FormV2},
		{post, "/v2/jobs/{name}/cancel", infer.APIJobs, json(a.CancelJob), transport.FormV2},
		{post, "/v2/jobs/{name}/retry", infer.APIJobs, a.RetryJob, transport.FormV2},
		{get, "/api/health/live", infer.APIHealth, t.Health(false), transport.FormV2},
		{get, "/api/health/ready", infer.APIHealth, t.Health(true), transport.FormV2},
		{get, "/api/status[/{model}]", infer.APIMetadata, t.Status, transport.FormV2},
	}
	if s.Tools {
		list = append(list, route{post, toolsPath, infer.APIInference, tools.New(s).Serve, transport.FormV2})
	}
	if x == nil {
		return list
	}
	const openAI, tei = transport.FormOpenAI, transport.FormTEI
	return append(list, []route{
		{post, "/v1/embeddings", infer.APIInference, x.Embeddings("/v1/embeddings"), openAI},
		{post, "/embeddings", infer.APIInference, x.Embeddings("/embeddings"), openAI},
		{post, "/v1/completions", infer.APIInference, x.Completions(), openAI},
		{post, "/v1/rerank", infer.APIInference, x.Rerank("/v1/rerank"), openAI},
		{post, "/v2/rerank", infer.APIInference, x.Rerank("/v2/rerank"), openAI},
		{post, "/embed", infer.APIInference, x.Embed(), tei},
		{post, "/embed_all", infer.APIInference, x.EmbedAll(), tei},
		{post, "/embed_sparse", infer.APIInference, x.EmbedSparse(), tei},
		{post, "/rerank", infer.APIInference, x.RerankTEI(), tei},
		{post, "/tokenize", infer.APIInference, x.Tokenize(), tei},
		{get, "/info", infer.APIMetadata, x.Info, tei},
		{get, "/health", infer.APIHealth, a.Health(true), transport.FormV2},
		{get, "/v1/models", infer.APIMetadata, x.Models, openAI},
		{get, "/v1/models/{models}", infer.APIMetadata, x.Model, openAI},
	}...)
}

// toolsPath is the path of the Model Context Protocol.
const toolsPath = "/mcp"

// controls are the parts of the API with which clients change the server.
var controls = []infer.API{infer.APIModelRepository, infer.APISharedMemory, infer.APITrace, infer.APILogging, infer.APIJobs}

// rest is the last element of a path that matches any number of elements.
const rest = "{models}"

// maxSegments is the number of segments of the longest path.
const maxSegments = 8

// pattern is one path of a route, split into segments.
type pattern struct {
	route
	segments []string
	infers   bool // an inference request, whose handler sets its own deadlines for the body
	controls bool // pages of other sites may not use it: it changes the server, or lets agents act
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
		head, optional, _ := strings.Cut(r.path, "[")
		part, tail, _ := strings.Cut(optional, "]")
		for _, path := range slices.Compact([]string{head + tail, head + part + tail}) {
			infers := strings.HasSuffix(path, "/infer") || r.form != transport.FormV2 && r.methods == post
			p := pattern{r, strings.Split(path[1:], "/"), infers, slices.Contains(controls, r.api) || path == toolsPath, actionOf(path), errorTypeOf(r.api, path)}
			t[len(p.segments)] = append(t[len(p.segments)], p)
			for n := len(p.segments) + 1; n < len(t) && p.segments[len(p.segments)-1] == rest; n++ {
				t[n] = append(t[n], p)
			}
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
	for left, more := path[1:], true; more; {
		var segment string
		segment, left, more = strings.Cut(left, "/")
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
		case rest:
			to.Model = strings.Join(segments[i:], "/")
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
