package admin

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// filePrefix begins the names of load parameters that hold files, as in "file:1/model.onnx".
const filePrefix = "file:"

// indexEntry is an entry of the index. A model that was never loaded has a name only.
type indexEntry struct {
	Name    string      `json:"name"`
	Version string      `json:"version,omitempty"`
	State   infer.State `json:"state,omitempty"`
	Reason  string      `json:"reason,omitempty"`
}

// RepositoryIndex lists the models of all repositories. As in Triton, the repository in the path does not matter.
func (s *Service) RepositoryIndex(w http.ResponseWriter, r *http.Request, _ transport.Path) (any, error) {
	if s.set.Lifecycle == nil {
		return nil, transport.NotSupported("repository index")
	}
	ready := false
	err := s.readMembers(w, r, true, func(p *jsonwire.Parser, name string) (err error) {
		if name != "ready" {
			return p.Skip()
		}
		if c := p.Peek(); c != 't' && c != 'f' {
			return status.Errorf(status.InvalidArg, "Invalid value for 'ready': expected a boolean")
		}
		ready, err = p.Bool("ready")
		return err
	})
	if err != nil {
		return nil, err
	}
	entries := []indexEntry{}
	for _, e := range s.set.Lifecycle.Index(ready) {
		entries = append(entries, indexEntry(e))
	}
	return entries, nil
}

// LoadModel loads a model and responds when it is ready, or with the reason why it is not.
func (s *Service) LoadModel(w http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	var o infer.LoadOptions
	return nil, s.changeModel(w, r, p, "model load",
		func(p *jsonwire.Parser, name string) error { return readLoadParameter(p, &o, name) },
		func() error { return s.set.Lifecycle.Load(r.Context(), p.Model, o) })
}

// UnloadModel unloads a model. It responds when the model accepts no more requests.
func (s *Service) UnloadModel(w http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	dependents := false
	return nil, s.changeModel(w, r, p, "model unload",
		func(p *jsonwire.Parser, name string) (err error) {
			if name != "unload_dependents" {
				return p.Skip()
			}
			dependents, err = p.Bool(name)
			return err
		},
		func() error { return s.set.Lifecycle.Unload(r.Context(), p.Model, dependents) })
}

// changeModel reads the parameters of a load or unload with parameter, then calls change.
func (s *Service) changeModel(w http.ResponseWriter, r *http.Request, p transport.Path, what string,
	parameter func(p *jsonwire.Parser, name string) error, change func() error,
) error {
	if s.set.Lifecycle == nil {
		return transport.NotSupported(what)
	}
	if p.Name != "" {
		return status.Errorf(status.Unsupported, "'repository_name' specification is not supported")
	}
	err := s.readMembers(w, r, true, func(p *jsonwire.Parser, name string) error {
		if name != "parameters" {
			return p.Skip()
		}
		return p.Object(func(name []byte) error { return parameter(p, string(name)) })
	})
	if err == nil {
		err = change()
	}
	return err
}

// readLoadParameter reads a model configuration or one of the model's files, in base64.
func readLoadParameter(p *jsonwire.Parser, o *infer.LoadOptions, name string) error {
	path, isFile := strings.CutPrefix(name, filePrefix)
	text, err := p.Text(name)
	switch {
	case err != nil:
		return err
	case name == "config":
		o.Config = string(text)
		return nil
	case !isFile:
		return status.Errorf(status.Internal, "unexpected error on creating Triton parameter")
	}
	content := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(content, text)
	if err != nil {
		return status.Errorf(status.InvalidArg, "unable to decode '%s': expected base64, %w", name, err)
	}
	if o.Files == nil {
		o.Files = make(map[string][]byte)
	}
	o.Files[path] = content[:n]
	return nil
}
