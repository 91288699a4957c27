package http1

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// sniffed is how much of a body tells its type.
const sniffed = 512

// dated is the text of a second.
type dated struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[dated]

// date returns the time as HTTP writes it.
//
// hot: one allocation a second.
func date(now time.Time) string {
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dated{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}

// appendHead appends the status line and the header; the body begins with what is held, and next.
func (a *answer) appendHead(b, next []byte) []byte {
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(a.code), 10)
	b = append(b, ' ')
	if text := http.StatusText(a.code); text != "" {
		b = append(b, text...)
	} else {
		b = strconv.AppendInt(append(b, "status code "...), int64(a.code), 10)
	}
	b = append(b, "\r\n"...)
	a.keys = a.keys[:0]
	for key := range a.header {
		if sendable(key) {
			a.keys = append(a.keys, key)
		}
	}
	slices.Sort(a.keys)
	for _, key := range a.keys {
		for _, v := range a.header[key] {
			b = appendField(b, key, v)
		}
	}
	if a.header["Date"] == nil {
		b = appendField(b, "Date", date(a.now))
	}
	if a.header["Content-Type"] == nil && a.header["Content-Encoding"] == nil && len(a.held)+len(next) > 0 && !a.bodiless() {
		first := next
		if len(a.held) > 0 {
			first = slices.Concat(a.held, next[:min(len(next), sniffed)])
		}
		b = appendField(b, "Content-Type", http.DetectContentType(first))
	}
	return append(a.appendFraming(b), "\r\n"...)
}

// appendFraming appends how the body's end is known, and whether the connection ends with it.
func (a *answer) appendFraming(b []byte) []byte {
	switch {
	case a.bodiless():
	case a.chunks:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	default:
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), a.size, 10), "\r\n"...)
	}
	if c := a.header["Connection"]; len(c) == 1 && strings.EqualFold(c[0], "close") {
		a.close = true
	}
	if a.close {
		b = append(b, "Connection: close\r\n"...)
	}
	return b
}

// sendable tells the handler's fields from those that are decided here, and from what is no name.
func sendable(key string) bool {
	switch key {
	case "Content-Length", "Transfer-Encoding", "Connection", "Trailer":
		return false
	}
	return key != "" && all([]byte(key), &tokens)
}

// appendField appends a line; what would end it becomes a space.
func appendField(b []byte, key, value string) []byte {
	b = append(append(b, key...), ": "...)
	for i := range len(value) {
		if c := value[i]; c == '\r' || c == '\n' {
			b = append(b, ' ')
		} else {
			b = append(b, c)
		}
	}
	return append(b, "\r\n"...)
}
