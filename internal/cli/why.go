package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	rest, err := arguments(fs, args, 1, 1, "one trace id, or the id of a request")
	if err != nil {
		return err
	}
	a, err := connect.inspector(*url)
	if err != nil {
		return err
	}
	return connect.explain(ctx, *url, a.why(ctx, p.stdout, rest[0]))
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
func (a *inspector) why(ctx context.Context, w io.Writer, id string) error {
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		var err error
		if id, err = a.traceOf(ctx, id); err != nil {
			return err
		}
	}
	text, err := a.get(ctx, "traces/"+id+"?as=text")
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// The number of attempts to read a trace after its response, and the pause between them: storing it takes a while.
const (
	awaitTries = 50
	awaitPause = 20 * time.Millisecond
)

// await prints the explanation of a trace that is about to be stored.
func (a *inspector) await(ctx context.Context, w io.Writer, id string) error {
	for range awaitTries {
		text, err := a.get(ctx, "traces/"+id+"?as=text")
		if err == nil {
			_, err = w.Write(text)
			return err
		}
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
	b, err := a.get(ctx, "traces?limit=1&request="+url.QueryEscape(request))
	if err != nil {
		return "", err
	}
	var list inspect.TraceList
	if err := json.Unmarshal(b, &list); err != nil {
		return "", fmt.Errorf("the server's answer is no list of traces: %w", err)
	}
	if len(list.Traces) == 0 {
		return "", fmt.Errorf("no trace of request '%s' is stored: not every request is, see --trace-store-every (tutti infer asks for its own)", request)
	}
	return list.Traces[0].ID, nil
}

// get returns the body of the response to a GET request for a path of the API.
func (a *inspector) get(ctx context.Context, path string) ([]byte, error) {
	return a.body(ctx, http.MethodGet, path, nil)
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
