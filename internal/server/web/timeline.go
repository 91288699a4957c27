package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

// The defaults and bounds of a timeline.
const (
	timelineSpan = 10 * time.Second
	timelineRuns = 2000
	timelineMost = 4096
)

// timeline returns what ran on the instances in an interval.
func (s *Server) timeline(store inspect.Inspector, r *http.Request) (any, error) {
	now := time.Now().UnixMicro()
	q, limit, err := parseTimeline(r, now)
	if err != nil {
		return nil, err
	}
	wide, executed, counted := *q, uint64(0), false
	if s.set.Executions != nil {
		var from, to int64
		if from, to, executed, counted = s.set.Executions(q.FromUs, q.ToUs, q.Models); counted {
			wide.FromUs, wide.ToUs = from, to
		}
	}
	all := inspect.TimelineQuery{FromUs: min(q.FromUs, wide.FromUs), ToUs: max(q.ToUs, wide.ToUs), Models: q.Models}
	v := store.Timeline(&all)
	if counted {
		v.Seen(wide.FromUs, wide.ToUs, executed)
	}
	v.Cut(q.FromUs, q.ToUs, limit)
	v.NowUs = now
	return v, nil
}

// parseTimeline reads the query of a timeline: the last seconds before now if it has no interval.
func parseTimeline(r *http.Request, now int64) (*inspect.TimelineQuery, int, error) {
	v := r.URL.Query()
	q, limit := &inspect.TimelineQuery{ToUs: now, Models: v["model"]}, int64(timelineRuns)
	for _, x := range []struct {
		name string
		to   *int64
	}{{"to_us", &q.ToUs}, {"from_us", &q.FromUs}, {"limit", &limit}} {
		text := v.Get(x.name)
		if text == "" {
			if x.name == "from_us" {
				q.FromUs = q.ToUs - timelineSpan.Microseconds()
			}
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > maxMicros {
			return nil, 0, status.Errorf(status.InvalidArg, "query parameter '%s' is '%s', expected a whole number from 0 to %d", x.name, text, maxMicros)
		}
		*x.to = n
	}
	if q.FromUs >= q.ToUs {
		return nil, 0, status.Errorf(status.InvalidArg, "the timeline from %d to %d is empty, expected from_us before to_us", q.FromUs, q.ToUs)
	}
	if limit < 1 || limit > timelineMost {
		return nil, 0, status.Errorf(status.InvalidArg, "query parameter 'limit' is %d, expected 1 to %d", limit, timelineMost)
	}
	return q, int(limit), nil
}

// maxMicros is the year 2242: nanoseconds since 1970 have 63 bits.
const maxMicros = 1 << 53
