package infer

import (
	"crypto/subtle"
	"slices"
)

// API is a category of endpoints that can be restricted together.
type API uint8

// The categories, those that restrictions know. A front end has APINone for what belongs to none.
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

// APINames returns the users' names of the categories, in order.
func APINames() []string { return slices.Clone(apiNames[:]) }

// String returns the users' name of the category, for example "model-repository".
func (a API) String() string {
	if a < APINone {
		return apiNames[a]
	}
	return "none"
}

// ParseAPI returns the category with a name.
func ParseAPI(name string) (API, bool) {
	i := slices.Index(apiNames[:], name)
	if i < 0 {
		return APINone, false
	}
	return API(i), true
}

// Restriction limits some categories to clients that send a key with its value, as an HTTP header or as gRPC metadata.
type Restriction struct {
	APIs       []API
	Key, Value string
}

// Met reports whether got is the required value. It compares in constant time: the value is a secret.
func (r *Restriction) Met(got string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(r.Value)) == 1
}

// Restrictions has the restriction of each category, nil for an unrestricted one.
type Restrictions [APINone]*Restriction

// Restrict returns the restrictions by category. Each category must be in at most one of them.
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

// Of returns the restriction of a category, nil for none.
func (r *Restrictions) Of(a API) *Restriction {
	if a < APINone {
		return r[a]
	}
	return nil
}
