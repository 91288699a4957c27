package logs

import (
	"context"
	"log/slog"
	"slices"

	"github.com/tutti-server/tutti/internal/pool"
)

// handler is a slog.Handler over a Log. It stores its attributes unencoded, because the format can change.
type handler struct {
	log  *Log
	with []with
}

// with is an opened group, or attributes added to the innermost group.
type with struct {
	group string
	attrs []slog.Attr
}

var _ slog.Handler = (*handler)(nil)

// Enabled reports whether lines of this level are logged.
//
// hot: one atomic load.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return h.log.settings.Load().enabled(level)
}

var lines pool.Of[encoder]

// Handle writes r as one line. It never fails.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	e := lines.Get()
	e.reset()
	e.line(h.log.settings.Load(), h.log.pid, h.with, &r)
	h.log.write(r.Level, e.b)
	lines.Put(e)
	return nil
}

// WithAttrs returns a handler that adds attrs to every line.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	return h.add(with{attrs: slices.Clone(attrs)})
}

// WithGroup returns a handler that puts later attributes into a group.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.add(with{group: name})
}

func (h *handler) add(w with) *handler {
	return &handler{log: h.log, with: append(slices.Clip(h.with), w)}
}
