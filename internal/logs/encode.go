package logs

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tutti-server/tutti/internal/jsontext"
)

// line encodes a record in the settings' format, with a final newline.
func (e *encoder) line(s *Settings, pid int, w []with, r *slog.Record) {
	switch s.Format {
	case JSON:
		e.json = true
		e.head(pid, r)
	case ISO8601:
		e.b = append(at(r).AppendFormat(e.b, "2006-01-02T15:04:05Z"), ' ', letter(r.Level))
		e.place(s.Raw, pid, r)
	default:
		e.b = at(r).AppendFormat(append(e.b, letter(r.Level)), "0102 15:04:05.000000")
		e.place(s.Raw, pid, r)
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

// place appends the process id, the source location and the message to a text line.
func (e *encoder) place(raw bool, pid int, r *slog.Record) {
	file, number := source(r.PC)
	e.b = strconv.AppendInt(append(e.b, ' '), int64(pid), 10)
	e.b = append(append(append(e.b, ' '), file...), ':')
	e.b = append(strconv.AppendInt(e.b, int64(number), 10), ']', ' ')
	if raw {
		e.b = append(e.b, r.Message...)
	} else {
		e.b = jsontext.AppendValid(e.b, r.Message)
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

// encoder writes one line.
type encoder struct {
	b    []byte
	json bool
	// path are the groups of the next attribute. JSON has opened the objects of the first ones only: a group
	// without attributes is omitted.
	path  []string
	open  int
	empty bool // reports whether the innermost open object has no member yet
}

const maxRetained = 1 << 16 // bounds the memory that an encoder retains for its next line

func (e *encoder) reset() {
	b := e.b[:0]
	if cap(b) > maxRetained {
		b = nil
	}
	*e = encoder{b: b, path: e.path[:0]}
}

func (e *encoder) attr(a slog.Attr) {
	a.Value = a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return
	}
	if a.Value.Kind() != slog.KindGroup {
		e.leaf(a)
		return
	}
	outer := len(e.path)
	if a.Key != "" {
		e.path = append(e.path, a.Key)
	}
	for _, member := range a.Value.Group() {
		e.attr(member)
	}
	e.leave(outer)
}

// leave closes all but the first outer groups of the path.
func (e *encoder) leave(outer int) {
	e.path = e.path[:outer]
	for ; e.open > outer; e.open-- {
		e.b, e.empty = append(e.b, '}'), false
	}
}

// leaf appends an attribute whose value is not a group.
func (e *encoder) leaf(a slog.Attr) {
	if e.json {
		for ; e.open < len(e.path); e.open++ {
			e.b, e.empty = append(e.name(e.path[e.open]), '{'), true
		}
		e.b, e.empty = appendJSON(e.name(a.Key), a.Value), false
		return
	}
	e.b = append(e.b, ' ')
	for _, group := range e.path {
		e.b = append(appendText(e.b, group), '.')
	}
	e.b = append(appendText(e.b, a.Key), '=')
	e.b = appendText(e.b, text(a.Value))
}

func (e *encoder) name(key string) []byte {
	b := e.b
	if !e.empty {
		b = append(b, ',')
	}
	return append(jsontext.AppendValid(b, key), ':')
}

// appendText appends s, quoted unless it is one plain word.
func appendText(b []byte, s string) []byte {
	special := func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r == 0x7f || r == utf8.RuneError }
	if s == "" || strings.ContainsFunc(s, special) {
		return jsontext.AppendValid(b, s)
	}
	return append(b, s...)
}

// text returns the form of a value in key=value.
func text(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().Format(time.RFC3339Nano)
	case slog.KindAny:
		return anyText(v.Any())
	default:
		return v.String()
	}
}

// anyText returns a value's text. It recovers from a panic of the value's methods, for example of a nil pointer.
func anyText(v any) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprintf("!PANIC: %v", p)
		}
	}()
	if m, ok := v.(encoding.TextMarshaler); ok {
		if b, err := m.MarshalText(); err == nil {
			return string(b)
		}
	}
	return fmt.Sprintf("%+v", v)
}

func appendJSON(b []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindBool, slog.KindInt64, slog.KindUint64:
		return append(b, v.String()...)
	case slog.KindDuration:
		return strconv.AppendInt(b, int64(v.Duration()), 10)
	case slog.KindAny:
		return append(b, anyJSON(v.Any())...)
	case slog.KindFloat64:
		if j, err := json.Marshal(v.Float64()); err == nil {
			return append(b, j...)
		}
	}
	return jsontext.AppendValid(b, text(v))
}

// anyJSON returns a value as JSON, as its text where it has no other form.
func anyJSON(v any) (j []byte) {
	defer func() {
		if p := recover(); p != nil {
			j = jsontext.AppendValid(nil, fmt.Sprintf("!PANIC: %v", p))
		}
	}()
	if _, ok := v.(json.Marshaler); !ok {
		if err, ok := v.(error); ok {
			return jsontext.AppendValid(nil, err.Error())
		}
	}
	j, err := json.Marshal(v)
	if err != nil {
		return jsontext.AppendValid(nil, anyText(v))
	}
	return j
}
