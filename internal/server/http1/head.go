package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

const (
	// maxFields is how many header lines a plain request has at most.
	maxFields = 48
	// maxDigits keeps a length below math.MaxInt64.
	maxDigits = 18
)

// head is a request's line and header. It keeps what was read last: clients repeat themselves.
type head struct {
	raw    []byte // as received, to its end
	method string
	url    url.URL // only its path
	host   string
	length int64
	last   bool // the client wants the connection closed
	header http.Header
	fields []field
	n      int // how many of them the request has
}

// field is a header line.
type field struct {
	name, key string   // as received, canonical
	value     []string // with one element
	sent      string   // the value with the blanks at its end
}

var (
	endOfHead = []byte("\r\n\r\n")
	protocol  = []byte(" HTTP/1.1\r\n")
)

// read parses the head at the beginning of b and returns its length; 0 when it is not plain.
//
// hot: no allocation for a client that repeats itself.
func (h *head) read(b []byte) int {
	if len(h.raw) > 0 && bytes.HasPrefix(b, h.raw) {
		return len(h.raw)
	}
	h.raw = h.raw[:0]
	n := bytes.Index(b, endOfHead) + len(endOfHead)
	if n < len(endOfHead) || !h.parse(b[:n-2]) {
		return 0
	}
	h.raw = append(h.raw, b[:n]...)
	return n
}

// parse reads a line and header lines, each with its end.
func (h *head) parse(b []byte) bool {
	rest, ok := h.line(b)
	if !ok {
		return false
	}
	if h.header == nil {
		h.header = make(http.Header)
	}
	clear(h.header)
	h.n, h.host, h.length, h.last = 0, "", -1, false
	for len(rest) > 0 {
		end := bytes.IndexByte(rest, '\n')
		if end < 1 || rest[end-1] != '\r' || h.n == maxFields || !h.field(rest[:end-1]) {
			return false
		}
		rest = rest[end+1:]
	}
	h.length = max(h.length, 0)
	return h.host != ""
}

// line reads the request's line.
func (h *head) line(b []byte) (rest []byte, ok bool) {
	switch {
	case bytes.HasPrefix(b, []byte("POST /")):
		h.method, b = http.MethodPost, b[len("POST "):]
	case bytes.HasPrefix(b, []byte("GET /")):
		h.method, b = http.MethodGet, b[len("GET "):]
	default:
		return nil, false
	}
	n := 0
	for n < len(b) && plainPath[b[n]] {
		n++
	}
	if !bytes.HasPrefix(b[n:], protocol) {
		return nil, false
	}
	if h.url.Path != string(b[:n]) {
		h.url = url.URL{Path: string(b[:n])}
	}
	return b[n+len(protocol):], true
}

// field reads one header line.
func (h *head) field(b []byte) bool {
	colon := bytes.IndexByte(b, ':')
	if colon < 1 {
		return false
	}
	name, sent := b[:colon], bytes.TrimLeft(b[colon+1:], " \t")
	value := bytes.TrimRight(sent, " \t")
	if h.n == len(h.fields) {
		h.fields = append(h.fields, field{})
	}
	f := &h.fields[h.n]
	h.n++
	if f.name != string(name) {
		if !all(name, &tokens) {
			return false
		}
		*f = field{name: string(name), key: textproto.CanonicalMIMEHeaderKey(string(name)), value: []string{""}}
	}
	if f.value[0] != string(value) {
		if !all(value, &printable) {
			return false
		}
		f.value = []string{string(value)} // whoever kept the old one still has it
	}
	switch {
	case len(sent) == len(value):
		f.sent = f.value[0]
	case f.sent != string(sent):
		f.sent = string(sent)
	}
	return h.means(f)
}

// means takes what a field says about the request itself, and reports whether the request is still plain.
func (h *head) means(f *field) bool {
	v := f.value[0]
	switch f.key {
	case "Host":
		if h.host != "" || v == "" || !all([]byte(v), &hosts) {
			return false
		}
		h.host = v
		return true // as in net/http, it is not among the others
	case "Content-Length":
		if h.length >= 0 {
			return false
		}
		if h.length = digits(v); h.length < 0 {
			return false
		}
	case "Connection":
		h.last = strings.EqualFold(v, "close")
		if !h.last && !strings.EqualFold(v, "keep-alive") {
			return false
		}
	case "Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Pragma", "Proxy-Connection", "Http2-Settings":
		return false
	}
	if old, is := h.header[f.key]; is {
		h.header[f.key] = append(slices.Clip(old), v)
		return true
	}
	h.header[f.key] = f.value
	return true
}

// digits returns a number of decimal digits only, or -1.
func digits(s string) (n int64) {
	if s == "" || len(s) > maxDigits {
		return -1
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n
}

// set is a set of bytes.
type set [256]bool

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

var (
	// plainPath are the bytes of a path that net/url reads and writes as they are.
	plainPath = setOf(alphanumeric + "/-._~$&+,;=:@")
	// tokens are those of a field's name (RFC 9110, 5.6.2).
	tokens = setOf(alphanumeric + "!#$%&'*+-.^_`|~")
	// hosts are those of a name or address with a port.
	hosts = setOf(alphanumeric + "-._:[]")
	// printable are those of a field's value that every reader understands alike.
	printable = printables()
)

func setOf(s string) (in set) {
	for i := range len(s) {
		in[s[i]] = true
	}
	return in
}

func printables() (in set) {
	for c := ' '; c <= '~'; c++ {
		in[c] = true
	}
	in['\t'] = true
	return in
}

func all(b []byte, in *set) bool {
	for _, c := range b {
		if !in[c] {
			return false
		}
	}
	return true
}
