package httpapi

import (
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
)

// admits reports whether a request with this header may use a part of the API.
//
// hot: no allocation.
func (s *Server) admits(a infer.API, h http.Header) bool {
	want := s.limited.Of(a)
	return want == nil || want.Met(h.Get(want.Key))
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
