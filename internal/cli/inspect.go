package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/inspect"
)

// maxExplanation is the largest response of a server in bytes.
const maxExplanation = 16 << 20

// why prints how the time of a request to a running server was spent.
func (p *program) why(ctx context.Context, args []string) error {
	fs := p.flags("why")
	url, connect := urlFlag(fs, "its HTTP port"), &connection{}
	connect.flags(fs)
	out := outputFlag(fs, formatText, formatJSON, formatYAML, formatOTLP, formatPerfetto)
	rest, err := arguments(fs, args, 1, 1, "one trace id, or the id of a request")
	if err != nil {
		return err
	}
	a, err := connect.inspector(*url)
	if err != nil {
		return err
	}
	return connect.explain(ctx, *url, a.why(ctx, p.stdout, out, rest[0]))
}

// inspector sends requests to the dashboard's API.
type inspector struct {
	base string // the URL of the API
	http *http.Client
}

// inspector returns an inspector of the server at a URL.
func (c *connection) inspector(server string) (*inspector, error) {
	base, h, err := c.api(server)
	return &inspector{base, h}, err
}

// why prints the explanation of a trace, or of the newest trace of a request.
func (a *inspector) why(ctx context.Context, w io.Writer, out *output, id string) error {
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		var err error
		if id, err = a.traceOf(ctx, id); err != nil {
			return err
		}
	}
	return a.show(ctx, w, out, id)
}

// The formats of a trace for other programs, as the parameter "as" of the dashboard's API names them.
const (
	formatOTLP     = "otlp"
	formatPerfetto = "perfetto"
)

// show prints the explanation of a trace: as text, or the trace in a form of the dashboard's API.
func (a *inspector) show(ctx context.Context, w io.Writer, out *output, id string) error {
	path := "traces/" + id
	if !out.machine() {
		path += "?as=" + out.format
	}
	body, err := a.body(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return out.print(w, json.RawMessage(body), func() error {
		_, err := w.Write(body)
		return err
	})
}

// The number of attempts to read a trace after its response, and the pause between them: storing it takes a while.
const (
	awaitTries = 50
	awaitPause = 20 * time.Millisecond
)

// await prints the explanation of a trace that is about to be stored.
func (a *inspector) await(ctx context.Context, w io.Writer, id string) error {
	for range awaitTries {
		err := a.show(ctx, w, &output{format: formatText}, id)
		if refusal, ok := errors.AsType[*refusedError](err); !ok || refusal.status != http.StatusNotFound {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(awaitPause):
		}
	}
	return fmt.Errorf("the server did not store trace %s: it does so for a few such requests in a second, when it has a --dashboard and --trace-store-bytes", id)
}

// refusedError is an error response of the API.
type refusedError struct {
	status int
	text   string
}

func (e *refusedError) Error() string { return "the server says: " + e.text }

// traceOf returns the newest trace of a request.
func (a *inspector) traceOf(ctx context.Context, request string) (string, error) {
	b, err := a.body(ctx, http.MethodGet, "traces?limit=1&request="+url.QueryEscape(request), nil)
	if err != nil {
		return "", err
	}
	var list inspect.TraceList
	if err := json.Unmarshal(b, &list); err != nil {
		return "", &failure{exitUsage, fmt.Errorf("the response of %straces is not a list of traces, expected a server of this project with its --dashboard: is --url right? %w", a.base, err)}
	}
	if len(list.Traces) == 0 {
		return "", &failure{exitNotFound, fmt.Errorf("no trace of request '%s' is stored: not every request is, see --trace-store-every (tutti infer asks for its own)", request)}
	}
	return list.Traces[0].ID, nil
}

// body sends a request and returns the body of the response.
func (a *inspector) body(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	resp, err := a.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, maxExplanation))
}

// send sends a request. Its error has the server's text.
func (a *inspector) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, &usageError{err}
	}
	resp, err := a.http.Do(req)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxExplanation))
	var e struct{ Error string }
	if json.Unmarshal(b, &e) != nil || e.Error == "" {
		e.Error = resp.Status
	}
	if resp.StatusCode == http.StatusNotFound && strings.HasSuffix(e.Error, "Not Found") {
		e.Error = "nothing is at " + req.URL.Path + ": expected a server of this project with its --dashboard"
	}
	return resp, errors.Join(err, &refusedError{resp.StatusCode, e.Error})
}

// The largest file from a server, and the interval between two queries of the capture.
const (
	maxCapture  = 8 << 30
	captureLook = 200 * time.Millisecond
)

// tokenVariable is the environment variable with the token, for the server too.
const tokenVariable = "TUTTI_DASHBOARD_TOKEN"

// captureSession is a capture on a server that the command controls.
type captureSession struct {
	p     *program
	api   *inspector
	token string
	out   string
	rule  inspect.CaptureRule
	saved map[string]bool
	list  []savedCapture
	print *output
}

// savedCapture is a file of a capture as the command prints it.
type savedCapture struct {
	File    string `json:"file"`
	Trace   string `json:"trace_id"`
	Span    string `json:"span_id"`
	Request string `json:"request_id,omitempty"`
	Model   string `json:"model"`
	Version int64  `json:"version"`
	Status  string `json:"status"`
	Tensors int    `json:"tensors"`
}

// capture starts a capture of request tensors on a running server and saves the files.
func (p *program) capture(ctx context.Context, args []string) error {
	s := &captureSession{p: p, saved: map[string]bool{}, list: []savedCapture{}}
	fs := p.flags("capture")
	url, connect := urlFlag(fs, "its HTTP port"), &connection{}
	connect.flags(fs)
	fs.StringVar(&s.out, "out", ".", "folder of the files TRACE-SPAN.npz, one per request")
	s.flags(fs)
	s.print = outputFlag(fs, formatText, formatJSON, formatYAML)
	rest, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return usagef("unexpected '%s', expected flags only", rest[0])
	}
	if s.token, err = connect.token(); err != nil {
		return err
	}
	if s.token == "" {
		s.token = os.Getenv(tokenVariable)
		connect.given.token = s.token
	}
	if s.token == "" {
		return usagef("expected --token, the server's --dashboard-token: tensors are confidential")
	}
	if s.api, err = connect.inspector(*url); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o750); err != nil {
		return err
	}
	err = s.run(ctx)
	if s.print.machine() { // also what was saved before an error
		err = errors.Join(err, s.print.print(p.stdout, s.list, nil))
	}
	return connect.explain(ctx, *url, err)
}

// flags declares the flags of the capture rule.
func (s *captureSession) flags(fs *flag.FlagSet) {
	r := &s.rule
	fs.StringVar(&r.Model, "model", "", "only requests to models that match this `pattern`, in which * matches any text and ? a character")
	fs.StringVar(&r.Request, "request", "", "only requests whose id matches this `pattern`")
	fs.StringVar(&r.Trace, "trace", "", "only requests whose trace id matches this `pattern`")
	fs.Int64Var(&r.Every, "every", 1, "capture one of this number of matching requests")
	fs.Int64Var(&r.Count, "count", 1, "number of requests to capture, 0 for no limit")
	fs.Int64Var(&r.Seconds, "seconds", 600, "stop after this number of seconds")
	fs.Int64Var(&r.RequestBytes, "request-bytes", 0, "capture at most this number of bytes of a request, 0 for the server's limit")
	several := func(name, help string, list *[]string) {
		fs.Func(name, help, func(v string) error { *list = append(*list, v); return nil })
	}
	several("redact-tensor", "keep only shape and type of tensors with such a name; a `pattern`, may be repeated", &r.RedactTensors)
	several("redact-model", "keep only shape and type of what such a model makes or reads; a `pattern`, may be repeated", &r.RedactModels)
}

// run captures until the server ends the capture: at the number of requests or at the time limit.
func (s *captureSession) run(ctx context.Context) (err error) {
	body, err := json.Marshal(s.rule)
	if err != nil {
		return err
	}
	var v inspect.CaptureView
	if err := s.json(ctx, http.MethodPost, "captures", body, &v); err != nil {
		return err
	}
	path := "captures/" + strconv.FormatUint(v.ID, 10)
	defer func() {
		if v.Active { // nothing would fetch further requests
			err = errors.Join(err, s.json(context.WithoutCancel(ctx), http.MethodDelete, path, nil, &v))
		}
	}()
	tick := time.NewTicker(captureLook)
	defer tick.Stop()
	for {
		if err := s.save(ctx, &v); err != nil {
			return err
		}
		if !v.Active && v.Pending == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.json(ctx, http.MethodGet, path, nil, &v); err != nil {
			return err
		}
	}
	if lost := v.Missed + v.Taken - uint64(len(s.saved)); lost > 0 {
		return fmt.Errorf("%d requests were not saved, for which the server's --capture-bytes had no room", lost)
	}
	if len(s.saved) == 0 {
		return fmt.Errorf("no request fitted in %d seconds", s.rule.Seconds)
	}
	return nil
}

// save writes the new requests of v.
func (s *captureSession) save(ctx context.Context, v *inspect.CaptureView) error {
	for i := range v.Snapshots {
		h := &v.Snapshots[i]
		id := h.Trace + "-" + h.Span
		if s.saved[id] {
			continue
		}
		name := filepath.Join(s.out, filepath.Base(id)+".npz")
		gone, err := s.fetch(ctx, "traces/"+url.PathEscape(id)+"/capture.npz", name)
		if gone {
			continue
		}
		if err != nil {
			return err
		}
		s.saved[id] = true
		s.list = append(s.list, savedCapture{name, h.Trace, h.Span, h.Request, h.Model, h.Version, h.Status, h.Tensors})
		if s.print.machine() {
			continue
		}
		if _, err := fmt.Fprintf(s.p.stdout, "%s: %s, %s, %d tensors\n", name, h.Model, h.Status, h.Tensors); err != nil {
			return err
		}
	}
	return nil
}

// fetch writes a file of the server. gone is true if the server has dropped the file.
func (s *captureSession) fetch(ctx context.Context, path, name string) (gone bool, err error) {
	resp, err := s.api.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return resp != nil && resp.StatusCode == http.StatusNotFound, err
	}
	defer resp.Body.Close()
	f, err := os.Create(name)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(f, io.LimitReader(resp.Body, maxCapture))
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(name))
	}
	return false, err
}

// json sends a request and decodes the JSON response.
func (s *captureSession) json(ctx context.Context, method, path string, body []byte, into any) error {
	b, err := s.api.body(ctx, method, path, body)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	return err
}
