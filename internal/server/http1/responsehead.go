package http1

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// sniffLength is how many bytes of a body http.DetectContentType looks at.
const sniffLength = 512

// formattedSecond is a second with its text in a Date field.
type formattedSecond struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[formattedSecond]

// date formats a time for the Date field.
//
// hot: one allocation per second.
func date(now time.Time) string {
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &formattedSecond{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}

// appendHead appends the status line and the header. The body begins with r.held, then next; its first bytes decide the
// Content-Type that the handler did not set.
func (r *response) appendHead(b, next []byte) []byte {
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(r.code), 10)
	b = append(b, ' ')
	if text := http.StatusText(r.code); text != "" {
		b = append(b, text...)
	} else {
		b = strconv.AppendInt(append(b, "status code "...), int64(r.code), 10)
	}
	b = append(b, "\r\n"...)
	r.keys = r.keys[:0]
	for key := range r.header {
		if sendable(key) {
			r.keys = append(r.keys, key)
		}
	}
	slices.Sort(r.keys)
	for _, key := range r.keys {
		for _, v := range r.header[key] {
			b = appendField(b, key, v)
		}
	}
	if r.header["Date"] == nil {
		b = appendField(b, "Date", date(r.now))
	}
	if r.header["Content-Type"] == nil && r.header["Content-Encoding"] == nil && len(r.held)+len(next) > 0 && !r.bodiless() {
		first := next
		if len(r.held) > 0 {
			first = slices.Concat(r.held, next[:min(len(next), sniffLength)])
		}
		b = appendField(b, "Content-Type", http.DetectContentType(first))
	}
	return append(r.appendFraming(b), "\r\n"...)
}

// appendFraming appends Content-Length or Transfer-Encoding, and Connection if the connection closes.
func (r *response) appendFraming(b []byte) []byte {
	switch {
	case r.bodiless():
	case r.chunks:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	default:
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), r.size, 10), "\r\n"...)
	}
	if c := r.header["Connection"]; len(c) == 1 && strings.EqualFold(c[0], "close") {
		r.close = true
	}
	if r.close {
		b = append(b, "Connection: close\r\n"...)
	}
	return b
}

// sendable reports whether a field of the handler's header is sent as it is: it must be a valid name, and none of the fields
// that appendFraming decides.
func sendable(key string) bool {
	switch key {
	case "Content-Length", "Transfer-Encoding", "Connection", "Trailer":
		return false
	}
	return key != "" && all([]byte(key), &tokens)
}

// appendField appends a header line. Line breaks in the value become spaces, so that no value can add a line.
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
