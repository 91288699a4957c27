package tutti

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	coreinfer "tutti/core/infer"
)

const whyUsage = "[--url URL] TRACE | REQUEST"

// maxExplanation bounds what a server may answer.
const maxExplanation = 16 << 20

// why asks a running server what the time of a request went into.
func (p *program) why(ctx context.Context, args []string) error {
	fs := p.flags("why", whyUsage)
	base := fs.String("url", "http://127.0.0.1:8000", "`URL` of the server's HTTP port")
	rest, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(rest) != 1:
		return usagef("expected one trace id, or the id of a request: tutti why %s", whyUsage)
	}
	api := strings.TrimSuffix(*base, "/") + "/ui/api/traces"
	id := rest[0]
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		if id, err = traceOf(ctx, api, id); err != nil {
			return err
		}
	}
	text, err := fetchText(ctx, api+"/"+id+"?as=text")
	if err == nil {
		_, err = p.stdout.Write(text)
	}
	return err
}

// traceOf returns the newest trace of a request.
func traceOf(ctx context.Context, api, request string) (string, error) {
	b, err := fetchText(ctx, api+"?limit=1&request="+url.QueryEscape(request))
	if err != nil {
		return "", err
	}
	var list coreinfer.TraceList
	if err := json.Unmarshal(b, &list); err != nil {
		return "", fmt.Errorf("the server's answer is no list of traces: %w", err)
	}
	if len(list.Traces) == 0 {
		return "", fmt.Errorf("no trace of request '%s' is stored: not every request is, see --trace-store-every", request)
	}
	return list.Traces[0].ID, nil
}

// fetchText returns what is at an address; a failure has the server's text.
func fetchText(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, &usageError{err}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxExplanation))
	if err == nil && resp.StatusCode != http.StatusOK {
		var e struct{ Error string }
		if json.Unmarshal(b, &e) != nil || e.Error == "" {
			e.Error = resp.Status
		}
		err = fmt.Errorf("the server says: %s", e.Error)
	}
	return b, err
}
