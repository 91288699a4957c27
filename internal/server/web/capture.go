package web

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

// file is a response that the browser saves as a file.
type file struct {
	kind, name string
	write      func(io.Writer) error
}

func (f *file) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Content-Disposition", `attachment; filename="`+f.name+`"`)
	if f.write(w) != nil {
		panic(http.ErrAbortHandler) // aborts the connection, so that the client does not save a partial file
	}
}

// captureRoutes adds the routes of captures. Tensor contents need the token.
func (s *Server) captureRoutes() {
	route := func(pattern string, secret bool, f endpoint) {
		method, path, _ := strings.Cut(pattern, " ")
		s.routes.HandleFunc(method+" "+Mount+"api/"+path, s.handler(infer.APITrace, secret, f))
	}
	route("GET captures", false, s.captures)
	route("POST captures", true, s.startCapture)
	route("GET captures/{id}", false, s.capture)
	route("DELETE captures/{id}", true, s.stopCapture)
	route("GET traces/{id}/tensors", false, s.tensors)
	route("GET traces/{id}/tensors/{file}", true, s.tensorFile)
	route("GET traces/{id}/capture.npz", true, s.captureFile)
}

// captureStore returns the store of captured tensors. It fails with Unavailable when the server has none.
func (s *Server) captureStore() (inspect.Captures, error) {
	if s.set.Captures == nil {
		return nil, status.Errorf(status.Unavailable, "no tensors are kept, expected --dashboard-token and --capture-bytes")
	}
	return s.set.Captures, nil
}

func (s *Server) captures(*http.Request) (any, error) {
	c, err := s.captureStore()
	if err != nil {
		return nil, err
	}
	return c.Captures(), nil
}

func (s *Server) startCapture(r *http.Request) (any, error) {
	c, err := s.captureStore()
	if err != nil {
		return nil, err
	}
	var rule inspect.CaptureRule
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&rule); err != nil {
		return nil, status.Errorf(status.InvalidArg, "invalid capture: %w", err)
	}
	return c.StartCapture(rule)
}

// captureID returns the capture store and the capture ID of the path.
func (s *Server) captureID(r *http.Request) (inspect.Captures, uint64, error) {
	c, err := s.captureStore()
	if err != nil {
		return nil, 0, err
	}
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		err = status.Errorf(status.InvalidArg, "invalid capture '%s', expected a number", r.PathValue("id"))
	}
	return c, id, err
}

func (s *Server) capture(r *http.Request) (any, error) {
	c, id, err := s.captureID(r)
	if err != nil {
		return nil, err
	}
	return c.FindCapture(id)
}

func (s *Server) stopCapture(r *http.Request) (any, error) {
	c, id, err := s.captureID(r)
	if err != nil {
		return nil, err
	}
	if err := c.StopCapture(id); err != nil {
		return nil, err
	}
	return c.FindCapture(id)
}

func (s *Server) tensors(r *http.Request) (any, error) {
	c, err := s.captureStore()
	if err != nil {
		return nil, err
	}
	return c.Tensors(r.PathValue("id"), s.admitted(r))
}

func (s *Server) tensorFile(r *http.Request) (any, error) {
	c, err := s.captureStore()
	if err != nil {
		return nil, err
	}
	text, ok := strings.CutSuffix(r.PathValue("file"), ".npy")
	n, err := strconv.Atoi(text)
	if err != nil || !ok {
		return nil, status.Errorf(status.NotFound, "there is no tensor '%s', expected N.npy", r.PathValue("file"))
	}
	write, err := c.NPY(r.PathValue("id"), n)
	if err != nil {
		return nil, err
	}
	return &file{"application/octet-stream", text + ".npy", write}, nil
}

func (s *Server) captureFile(r *http.Request) (any, error) {
	c, err := s.captureStore()
	if err != nil {
		return nil, err
	}
	write, err := c.NPZ(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &file{"application/zip", r.PathValue("id") + ".npz", write}, nil
}
