package httpapi

import (
	"crypto/subtle"
	"net/http"
	"strings"
)

// API is a category of endpoints that can be restricted as one.
type API uint8

// The categories.
const (
	APIHealth API = iota
	APIMetadata
	APIInference
	APISharedMemory
	APIModelConfig
	APIModelRepository
	APIStatistics
	APITrace
	APILogging
	numAPIs
)

var apiNames = [numAPIs]string{
	APIHealth:          "health",
	APIMetadata:        "metadata",
	APIInference:       "inference",
	APISharedMemory:    "shared-memory",
	APIModelConfig:     "model-config",
	APIModelRepository: "model-repository",
	APIStatistics:      "statistics",
	APITrace:           "trace",
	APILogging:         "logging",
}

// String returns the name by which users know the category.
func (a API) String() string {
	if a < numAPIs {
		return apiNames[a]
	}
	return "unknown"
}

// ParseAPI finds a category by its name.
func ParseAPI(name string) (API, bool) {
	for a := range numAPIs {
		if apiNames[a] == name {
			return a, true
		}
	}
	return numAPIs, false
}

// Restriction opens some categories only to requests that carry a header.
type Restriction struct {
	APIs []API
	// Key names the header, in any case, and Value is what it must say.
	Key, Value string
}

// restrictions has what a category asks for, nil for one that is open.
type restrictions [numAPIs]*Restriction

func newRestrictions(list []Restriction) (r restrictions) {
	for _, one := range list {
		for _, a := range one.APIs {
			if a < numAPIs {
				r[a] = &one
			}
		}
	}
	return r
}

// admit reports whether a request may use an endpoint of a category.
//
// hot: no allocation.
func (r *restrictions) admit(a API, h http.Header) bool {
	want := r[a]
	return want == nil || want.met(h)
}

// met compares in constant time: the value is a secret.
func (r *Restriction) met(h http.Header) bool {
	got := h.Get(r.Key)
	return subtle.ConstantTimeCompare([]byte(got), []byte(r.Value)) == 1
}

// apiOf returns the category of a route by its path, so that a new route of a group
// is restricted with its group.
func apiOf(path string) API {
	last := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case strings.HasPrefix(path, "/v2/repository"):
		return APIModelRepository
	case strings.HasPrefix(path, "/v2/systemsharedmemory"), strings.HasPrefix(path, "/v2/cudasharedmemory"):
		return APISharedMemory
	case strings.HasSuffix(path, "/trace/setting"):
		return APITrace
	}
	switch last {
	case "infer", "generate", "generate_stream":
		return APIInference
	case "live", "ready":
		return APIHealth
	case "config":
		return APIModelConfig
	case "stats":
		return APIStatistics
	case "logging":
		return APILogging
	default:
		return APIMetadata
	}
}
