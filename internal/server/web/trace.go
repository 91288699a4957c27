package web

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

var errNoOTLP = status.Reasonf(status.NotEnabled, "traces are not written as OTLP JSON here")

// trace returns a stored trace in the form that the query parameter "as" names.
func (s *Server) trace(store inspect.Inspector, r *http.Request) (any, error) {
	id, as := r.PathValue("id"), r.URL.Query().Get("as")
	if as == "otlp" {
		return s.otlp(r.Context(), store, id)
	}
	v, err := store.FindTrace(id)
	if err != nil {
		return nil, err
	}
	switch as {
	case "", "json":
		for _, l := range s.set.Links {
			v.Links = append(v.Links, l.Of(v))
		}
		return v, nil
	case "text":
		var b strings.Builder
		err := inspect.Explain(&b, v)
		return plain(b.String()), err
	case "perfetto":
		return &file{"application/json", v.ID + ".perfetto.json", func(w io.Writer) error { return inspect.Perfetto(w, v) }}, nil
	}
	return nil, status.Errorf(status.InvalidArg, "query parameter 'as' is '%s', expected json, text, otlp or perfetto", as)
}

func (s *Server) otlp(ctx context.Context, store inspect.Inspector, id string) (any, error) {
	if s.set.OTLP == nil {
		return nil, errNoOTLP
	}
	r, err := store.FindRecord(id)
	if err != nil {
		return nil, err
	}
	b, err := s.set.OTLP(ctx, r)
	return &file{"application/json", r.ID.String() + ".otlp.json", func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}}, err
}
