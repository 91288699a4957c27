package logs

import (
	"log/slog"
	"runtime"
	"time"
)

// Block logs a text of several lines unchanged, for example a table, at slog's info level. The first line is the
// usual head. In the format JSON it is one string.
func (l *Log) Block(text string) {
	s := l.Settings()
	if !s.Info {
		return
	}
	if s.Format != JSON {
		s.Raw, text = true, "\n"+text
	}
	var pc [1]uintptr
	runtime.Callers(2, pc[:])
	r := slog.NewRecord(time.Now(), slog.LevelInfo, text, pc[0])
	e := lines.Get()
	e.reset()
	e.line(&s, l.pid, nil, &r)
	l.write(r.Level, e.b)
	lines.Put(e)
}
