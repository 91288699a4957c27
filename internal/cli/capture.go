package cli

import (
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

// Bounds of what the command takes from a server.
const (
	maxCapture  = 8 << 30
	captureLook = 200 * time.Millisecond
)

// tokenVariable is where the server, too, looks for its token.
const tokenVariable = "TUTTI_DASHBOARD_TOKEN"

// captureSession is a capture that the command has started.
type captureSession struct {
	p     *program
	api   *inspector
	token string
	out   string
	rule  inspect.CaptureRule
	saved map[string]bool
}

// capture has a running server keep the tensors of requests, and saves them.
func (p *program) capture(ctx context.Context, args []string) error {
	s := &captureSession{p: p, saved: map[string]bool{}}
	fs := p.flags("capture")
	url, connect := urlFlag(fs, "its HTTP port"), &connection{}
	connect.flags(fs)
	fs.StringVar(&s.token, "token", "", "the server's --dashboard-token; by default "+tokenVariable)
	tokenFile := fs.String("token-file", "", "`file` that holds the token")
	fs.StringVar(&s.out, "out", ".", "folder for a TRACE-SPAN.npz per request")
	s.flags(fs)
	rest, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return usagef("unexpected '%s', expected flags only", rest[0])
	case *tokenFile != "":
		b, err := os.ReadFile(*tokenFile)
		if err != nil {
			return err
		}
		s.token = strings.TrimSpace(string(b))
	}
	if s.token == "" { // not the default of the flag, which --help prints
		s.token = os.Getenv(tokenVariable)
	}
	if s.token == "" {
		return usagef("expected --token, the server's --dashboard-token: tensors are confidential")
	}
	connect.headers = append(connect.headers, "Authorization: Bearer "+s.token)
	if s.api, err = connect.inspector(*url); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o750); err != nil {
		return err
	}
	return connect.explain(ctx, *url, s.run(ctx))
}

// flags are those that make the rule.
func (s *captureSession) flags(fs *flag.FlagSet) {
	r := &s.rule
	fs.StringVar(&r.Model, "model", "", "only requests of models that fit this `pattern`, in which * is any text and ? a character")
	fs.StringVar(&r.Request, "request", "", "only requests whose id fits this `pattern`")
	fs.StringVar(&r.Trace, "trace", "", "only requests whose trace id fits this `pattern`")
	fs.Int64Var(&r.Every, "every", 1, "keep one of so many such requests")
	fs.Int64Var(&r.Count, "count", 1, "end after so many requests, 0 for no such end")
	fs.Int64Var(&r.Seconds, "seconds", 600, "end after so many seconds")
	fs.Int64Var(&r.RequestBytes, "request-bytes", 0, "keep at most so many bytes of a request, 0 for the server's own bound")
	several := func(name, help string, list *[]string) {
		fs.Func(name, help, func(v string) error { *list = append(*list, v); return nil })
	}
	several("redact-tensor", "keep only shape and type of tensors with such a name; a `pattern`, may be repeated", &r.RedactTensors)
	several("redact-model", "keep only shape and type of what such a model makes or reads; a `pattern`, may be repeated", &r.RedactModels)
}

// run captures until all that was asked for is saved.
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
		if v.Active { // nobody is there to take what else it would keep
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

// save writes the requests that are new in v.
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
		if _, err := fmt.Fprintf(s.p.stdout, "%s: %s, %s, %d tensors\n", name, h.Model, h.Status, h.Tensors); err != nil {
			return err
		}
	}
	return nil
}

// fetch writes a file of the server; gone says that the server has dropped it.
func (s *captureSession) fetch(ctx context.Context, path, name string) (gone bool, err error) {
	resp, err := s.api.ask(ctx, http.MethodGet, path, nil)
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

// json asks for something that has a JSON form.
func (s *captureSession) json(ctx context.Context, method, path string, body []byte, into any) error {
	resp, err := s.api.ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxExplanation))
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	return err
}
