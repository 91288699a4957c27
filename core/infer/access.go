package infer

import (
	"crypto/subtle"
	"slices"
)

// API is a category of what the front ends serve that can be restricted as one.
type API uint8

// The categories, those that restrictions know. A front end has APINone for what
// belongs to none.
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
	APINone
)

var apiNames = [APINone]string{
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

// APINames returns the names by which users know the categories, in their order.
func APINames() []string { return slices.Clone(apiNames[:]) }

// String returns the name by which users know the category.
func (a API) String() string {
	if a < APINone {
		return apiNames[a]
	}
	return "none"
}

// ParseAPI finds a category by its name.
func ParseAPI(name string) (API, bool) {
	i := slices.Index(apiNames[:], name)
	if i < 0 {
		return APINone, false
	}
	return API(i), true
}

// Restriction opens some categories only to those who send a key with its value, over
// HTTP as a header, over gRPC as metadata.
type Restriction struct {
	APIs       []API
	Key, Value string
}

// Met compares what was sent in constant time: the value is a secret.
func (r *Restriction) Met(got string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(r.Value)) == 1
}

// Restrictions has what each category asks for, nil for one that is open.
type Restrictions [APINone]*Restriction

// Restrict returns restrictions by category. A category is in one of them at most.
func Restrict(list []Restriction) (r Restrictions) {
	for i := range list {
		for _, a := range list[i].APIs {
			if a < APINone {
				r[a] = &list[i]
			}
		}
	}
	return r
}

// Of returns what a category asks for, nil for nothing.
func (r *Restrictions) Of(a API) *Restriction {
	if a < APINone {
		return r[a]
	}
	return nil
}
