package web

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

func past(h inspect.History, r *http.Request) (any, error) {
	q, err := parseHistoryQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return h.History(r.Context(), q)
}

// parseHistoryQuery reads a query. An unknown parameter is an error. For example, "?model=resnet&seconds=21600&steps=60" selects the last six
// hours of resnet in at most 60 steps.
func parseHistoryQuery(v url.Values) (*inspect.HistoryQuery, error) {
	q := &inspect.HistoryQuery{}
	times := map[string]*int64{"from_us": &q.FromUs, "to_us": &q.ToUs}
	counts := map[string]*int{"steps": &q.Steps, "seconds": &q.Seconds, "top": &q.Top}
	for key, list := range v {
		text := list[len(list)-1]
		var err error
		switch {
		case key == "model":
			q.Model = text
		case times[key] == nil && counts[key] == nil:
			return nil, status.Errorf(status.InvalidArg, "unknown query parameter '%s'", key)
		case text == "":
		case times[key] != nil:
			*times[key], err = strconv.ParseInt(text, 10, 64)
		default:
			*counts[key], err = strconv.Atoi(text)
		}
		if err != nil {
			return nil, status.Errorf(status.InvalidArg, "query parameter '%s' is '%s', expected a whole number", key, text)
		}
	}
	return q, nil
}
