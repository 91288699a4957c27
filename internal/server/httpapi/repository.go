package httpapi

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// filePrefix begins the parameters of a load that hold files.
const filePrefix = "file:"

// indexEntry is a line of the index; a model that was never loaded has only a name.
type indexEntry struct {
	Name    string      `json:"name"`
	Version string      `json:"version,omitempty"`
	State   infer.State `json:"state,omitempty"`
	Reason  string      `json:"reason,omitempty"`
}

// repositoryIndex lists the models of all repositories, whichever the path names.
func (s *Server) repositoryIndex(w http.ResponseWriter, r *http.Request, _ target) {
	if s.lifecycle == nil {
		writeError(w, lacks("repository index"))
		return
	}
	ready := false
	err := s.control(w, r, true, func(x *exchange, key string) (err error) {
		if key != "ready" {
			return x.p.skip()
		}
		if c := x.p.peek(); c != 't' && c != 'f' {
			return status.Errorf(status.InvalidArg, "Invalid value for 'ready': expected a boolean")
		}
		ready, err = x.boolean("ready")
		return err
	})
	if err != nil {
		writeError(w, err)
		return
	}
	entries := []indexEntry{}
	for _, e := range s.lifecycle.Index(ready) {
		entries = append(entries, indexEntry(e))
	}
	writeJSON(w, entries)
}

// loadModel loads a model anew and answers when it serves, or why it does not.
func (s *Server) loadModel(w http.ResponseWriter, r *http.Request, t target) {
	var o infer.LoadOptions
	s.changeModel(w, r, t, "model load",
		func(x *exchange, key string) error { return x.loadParameter(&o, key) },
		func() error { return s.lifecycle.Load(r.Context(), t.model, o) })
}

// unloadModel has a model take no more requests.
func (s *Server) unloadModel(w http.ResponseWriter, r *http.Request, t target) {
	dependents := false
	s.changeModel(w, r, t, "model unload",
		func(x *exchange, key string) (err error) {
			if key != "unload_dependents" {
				return x.p.skip()
			}
			dependents, err = x.boolean(key)
			return err
		},
		func() error { return s.lifecycle.Unload(r.Context(), t.model, dependents) })
}

// changeModel reads the parameters of a load or unload, does it, and answers.
func (s *Server) changeModel(w http.ResponseWriter, r *http.Request, t target, what string,
	parameter func(x *exchange, key string) error, do func() error,
) {
	if s.lifecycle == nil {
		writeError(w, lacks(what))
		return
	}
	if t.name != "" {
		writeError(w, status.Errorf(status.Unsupported, "'repository_name' specification is not supported"))
		return
	}
	err := s.control(w, r, true, func(x *exchange, key string) error {
		if key != "parameters" {
			return x.p.skip()
		}
		return x.members(func(key string) error { return parameter(x, key) })
	})
	if err == nil {
		err = do()
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// loadParameter reads what stands for the model's configuration or one of its files.
func (x *exchange) loadParameter(o *infer.LoadOptions, key string) error {
	path, isFile := strings.CutPrefix(key, filePrefix)
	text, err := x.text(key)
	switch {
	case err != nil:
		return err
	case key == "config":
		o.Config = string(text)
		return nil
	case !isFile:
		return status.Errorf(status.Internal, "unexpected error on creating Triton parameter")
	}
	content := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(content, text)
	if err != nil {
		return status.Errorf(status.InvalidArg, "unable to decode '%s': expected base64, %w", key, err)
	}
	if o.Files == nil {
		o.Files = make(map[string][]byte)
	}
	o.Files[path] = content[:n]
	return nil
}
