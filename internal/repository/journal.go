package repository

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Bounds of the journal: of each model of the index the last events are retained, with the begin of their reasons.
const (
	maxEvents = 20
	maxReason = 1000 // bytes
)

// The causes of changes.
const (
	causeStart   = "the server started"
	causeRequest = "a request"
	causePoll    = "its files changed"
	causePart    = "an ensemble that calls it was loaded"
	causeWhole   = "a model that it calls changed"
	causeMemory  = "memory was needed for another model"
	causeWanted  = "a request came for the evicted model"
)

// journal has the last changes of each model, oldest first. It is safe for concurrent use.
type journal struct {
	mu     sync.Mutex
	events map[string][]inspect.LoadEvent // by key; guarded by mu
}

// add appends a change that has ended now.
func (j *journal) add(key string, e inspect.LoadEvent) {
	e.AtUs = time.Now().UnixMicro()
	if len(e.Reason) > maxReason {
		cut := maxReason
		for !utf8.RuneStart(e.Reason[cut]) {
			cut--
		}
		e.Reason = e.Reason[:cut] + "..."
	}
	e.Reason = strings.Clone(e.Reason) // a part would keep the whole
	if e.Versions == nil {
		e.Versions = []string{}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.events == nil {
		j.events = map[string][]inspect.LoadEvent{}
	}
	list := j.events[key]
	if len(list) == maxEvents {
		list = slices.Delete(list, 0, 1)
	}
	j.events[key] = append(list, e)
}

// forget drops the changes of models that are not in the index any more.
func (j *journal) forget(models map[string]*model) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key := range j.events {
		if models[key] == nil {
			delete(j.events, key)
		}
	}
}

// of returns the changes of a model, newest first.
func (j *journal) of(key string) []inspect.LoadEvent {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := append([]inspect.LoadEvent{}, j.events[key]...)
	slices.Reverse(list)
	return list
}

func numbers(versions []*version) (list []string) {
	for _, v := range versions {
		list = append(list, strconv.FormatInt(v.sig.Version, 10))
	}
	return list
}

// note adds what a change did to a model to the journal, for a reason of a failure.
func (c *change) note(m *model, what, reason string, versions []*version, took int64) {
	cause := c.cause
	switch {
	case c.loading[m.key] == nil && what != "unloaded":
		cause = causeWhole
	case c.loading[m.key] != nil && !m.explicit:
		cause = causePart
	}
	c.r.journal.add(m.key, inspect.LoadEvent{What: what, Versions: numbers(versions), TookNs: took, Cause: cause, Reason: reason})
}

// note adds an eviction, or a load after one.
func (x *residency) note(what, cause, reason string, took int64) {
	x.r.journal.add(x.v.key, inspect.LoadEvent{What: what, Versions: numbers([]*version{x.v}), TookNs: took, Cause: cause, Reason: reason})
}

// since returns the time since the change began.
func (c *change) since() int64 { return telemetry.Now() - c.began }
