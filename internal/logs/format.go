package logs

import (
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/internal/jsontext"
)

// line encodes a record in the settings' format, with a final newline.
func (e *encoder) line(s *Settings, pid int, w []with, r *slog.Record) {
	switch s.Format {
	case JSON:
		e.json = true
		e.head(pid, r)
	case ISO8601:
		e.b = at(r).AppendFormat(e.b, "2006-01-02T15:04:05Z")
		e.b = append(e.b, ' ', letter(r.Level))
		e.place(pid, r)
		e.message(s.Raw, r.Message)
	default:
		e.b = append(e.b, letter(r.Level))
		e.b = at(r).AppendFormat(e.b, "0102 15:04:05.000000")
		e.place(pid, r)
		e.message(s.Raw, r.Message)
	}
	for i := range w {
		if w[i].group != "" {
			e.path = append(e.path, w[i].group)
		}
		for _, a := range w[i].attrs {
			e.attr(a)
		}
	}
	r.Attrs(func(a slog.Attr) bool { e.attr(a); return true })
	e.leave(0)
	if e.json {
		e.b = append(e.b, '}')
	}
	e.b = append(e.b, '\n')
}

// head begins a JSON line.
func (e *encoder) head(pid int, r *slog.Record) {
	e.b, e.empty = append(e.b, '{'), true
	if !r.Time.IsZero() {
		e.leaf(slog.Time(slog.TimeKey, r.Time))
	}
	e.leaf(slog.String(slog.LevelKey, r.Level.String()))
	if r.PC != 0 {
		file, number := source(r.PC)
		e.leaf(slog.String(slog.SourceKey, file+":"+strconv.Itoa(number)))
	}
	e.leaf(slog.Int("pid", pid))
	e.leaf(slog.String(slog.MessageKey, r.Message))
}

// place appends the process id and the source location to a text line.
func (e *encoder) place(pid int, r *slog.Record) {
	file, number := source(r.PC)
	e.b = strconv.AppendInt(append(e.b, ' '), int64(pid), 10)
	e.b = append(append(append(e.b, ' '), file...), ':')
	e.b = append(strconv.AppendInt(e.b, int64(number), 10), ']', ' ')
}

func (e *encoder) message(raw bool, text string) {
	if raw {
		e.b = append(e.b, text...)
	} else {
		e.b = jsontext.AppendValid(e.b, text)
	}
}

// at returns a record's time in UTC, as Triton writes it.
func at(r *slog.Record) time.Time {
	if r.Time.IsZero() {
		return time.Now().UTC()
	}
	return r.Time.UTC()
}

// letter returns the letter of a level. Triton has none for verbose lines.
func letter(level slog.Level) byte {
	switch {
	case level >= slog.LevelError:
		return 'E'
	case level >= slog.LevelWarn:
		return 'W'
	}
	return 'I'
}

// source returns the file, without its folder, and the line of a program counter.
func source(pc uintptr) (file string, line int) {
	if pc == 0 {
		return "unknown", 0
	}
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return filepath.Base(f.File), f.Line
}
