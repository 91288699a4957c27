package web

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

// session is the response about the caller's rights: whether the server has a token, and whether the request sent
// it.
type session struct {
	Token    bool `json:"token"`
	Admitted bool `json:"admitted"`
}

func (s *Server) session(r *http.Request) (any, error) {
	return session{s.set.Token != "", s.admitted(r)}, nil
}

func (s *Server) server(*http.Request) (any, error) { return s.set.Overview.Server(), nil }

// modelList is the response about models.
type modelList struct {
	Models []inspect.ModelView `json:"models"`
}

func (s *Server) models(*http.Request) (any, error) { return modelList{s.set.Overview.Models()}, nil }

func (s *Server) graph(r *http.Request) (any, error) {
	version, err := infer.ParseVersion(r.URL.Query().Get("version"))
	if err != nil {
		return nil, err
	}
	return s.set.Overview.Graph(r.PathValue("model"), version)
}

// store returns the trace store. It fails with Unavailable when the server stores no traces.
func (s *Server) store() (inspect.Inspector, error) {
	if s.set.Inspector == nil {
		return nil, status.Errorf(status.Unavailable, "no traces are stored, expected --trace-store-bytes")
	}
	return s.set.Inspector, nil
}

func (s *Server) traces(r *http.Request) (any, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return store.Traces(q)
}

// parseQuery reads a trace query. An unknown parameter is an error. For example, "?model=resnet&min_ns=1000000"
// selects the traces of resnet of at least 1 ms.
func parseQuery(v url.Values) (*inspect.TraceQuery, error) {
	q := &inspect.TraceQuery{}
	texts := map[string]*string{
		"request": &q.Request, "trace": &q.TraceID, "model": &q.Model, "status": &q.Status, "retained": &q.Retained, "param": &q.Param, "value": &q.Value,
	}
	numbers := map[string]*int64{"min_ns": &q.MinNs, "max_ns": &q.MaxNs, "from_us": &q.FromUs, "to_us": &q.ToUs}
	counts := map[string]*uint64{"cursor": &q.Cursor, "after": &q.After}
	for key, list := range v {
		text := list[len(list)-1]
		var err error
		switch {
		case texts[key] != nil:
			*texts[key] = text
		case text == "":
		case numbers[key] != nil:
			*numbers[key], err = strconv.ParseInt(text, 10, 64)
		case counts[key] != nil:
			*counts[key], err = strconv.ParseUint(text, 10, 64)
		case key == "limit":
			q.Limit, err = strconv.Atoi(text)
		default:
			return nil, status.Errorf(status.InvalidArg, "unknown query parameter '%s'", key)
		}
		if err != nil {
			return nil, status.Errorf(status.InvalidArg, "query parameter '%s' is '%s', expected a whole number", key, text)
		}
	}
	return q, nil
}

func (s *Server) trace(r *http.Request) (any, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	v, err := store.FindTrace(r.PathValue("id"))
	switch as := r.URL.Query().Get("as"); {
	case err != nil:
		return nil, err
	case as == "text":
		var b strings.Builder
		err = inspect.Explain(&b, v)
		return plain(b.String()), err
	case as != "" && as != "json":
		return nil, status.Errorf(status.InvalidArg, "query parameter 'as' is '%s', expected json or text", as)
	}
	return v, nil
}

func (s *Server) batch(r *http.Request) (any, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "invalid batch '%s', expected a number", r.PathValue("id"))
	}
	return store.FindBatch(id)
}

func (s *Server) sampling(*http.Request) (any, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	return store.Sampling(), nil
}

func (s *Server) setSampling(r *http.Request) (any, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	set := store.Sampling() // fields that the body omits keep their values
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&set); err != nil {
		return nil, status.Errorf(status.InvalidArg, "invalid sampling: %w", err)
	}
	if err := store.SetSampling(set); err != nil {
		return nil, err
	}
	return store.Sampling(), nil
}

// lifecycle returns the model loader. It fails with Unsupported when the dashboard may not load models.
func (s *Server) lifecycle() (infer.Lifecycle, error) {
	if s.set.Lifecycle == nil {
		return nil, status.Errorf(status.Unsupported, "models are not loaded here")
	}
	return s.set.Lifecycle, nil
}

func (s *Server) load(r *http.Request) (any, error) {
	l, err := s.lifecycle()
	if err != nil {
		return nil, err
	}
	var with struct {
		Config string `json:"config"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&with); err != nil && !errors.Is(err, io.EOF) {
		return nil, status.Errorf(status.InvalidArg, "invalid options of loading: %w", err)
	}
	return struct{}{}, l.Load(r.Context(), r.PathValue("model"), infer.LoadOptions{Config: with.Config})
}

func (s *Server) unload(r *http.Request) (any, error) {
	l, err := s.lifecycle()
	if err != nil {
		return nil, err
	}
	return struct{}{}, l.Unload(r.Context(), r.PathValue("model"), false)
}
