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
}

// capture starts a capture of request tensors on a running server and saves the files.
func (p *program) capture(ctx context.Context, args []string) error {
	s := &captureSession{p: p, saved: map[string]bool{}}
	fs := p.flags("capture")
	url, connect := urlFlag(fs, "its HTTP port"), &connection{}
	connect.flags(fs)
	fs.StringVar(&s.token, "token", "", "the server's --dashboard-token; by default of the environment variable "+tokenVariable)
	tokenFile := fs.String("token-file", "", "`file` with the token")
	fs.StringVar(&s.out, "out", ".", "folder of the files TRACE-SPAN.npz, one per request")
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
	if s.token == "" { // as a default of the flag, --help would print the token
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
