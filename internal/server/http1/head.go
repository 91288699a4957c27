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
	// maxFields is the most header lines of a plain request.
	maxFields = 48
	// maxDigits keeps a length below math.MaxInt64.
	maxDigits = 18
)

// head is a request line with its header. It keeps the last request's: a client tends to send equal heads, which are compared
// as bytes and not parsed again. The header map of equal heads is therefore the same one, which handlers must not modify.
type head struct {
	raw    []byte // as received, with the empty line
	method string
	url    url.URL // Path only
	host   string
	length int64
	last   bool // Connection: close
	header http.Header
	fields []field
	n      int // how many fields the request has
}

// field is a header line. Its strings are reused by the next request with the same line.
type field struct {
	name, key string   // as received; canonical
	value     []string // with one element
	sent      string   // the value with its trailing blanks
}

var (
	endOfHead = []byte("\r\n\r\n")
	protocol  = []byte(" HTTP/1.1\r\n")
)

// read parses the head at the beginning of b and returns its length, 0 when the request is not plain.
//
// hot: no allocation for a head equal to the last one.
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

// parse parses the request line and the header lines, each with its line end.
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

// line parses the request line.
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

// field parses one header line.
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
		f.value = []string{string(value)} // a handler may have kept the old string
	}
	switch {
	case len(sent) == len(value):
		f.sent = f.value[0]
	case f.sent != string(sent):
		f.sent = string(sent)
	}
	return h.apply(f)
}

// apply handles the fields that describe the request itself, and reports whether the request is still plain.
func (h *head) apply(f *field) bool {
	v := f.value[0]
	switch f.key {
	case "Host":
		if h.host != "" || v == "" || !all([]byte(v), &hosts) {
			return false
		}
		h.host = v
		return true // as in net/http, Header lacks it
	case "Content-Length":
		if h.length >= 0 {
			return false
		}
		if h.length = parseDigits(v); h.length < 0 {
			return false
		}
	case "Connection":
		switch {
		case strings.EqualFold(v, "close"):
			h.last = true // whatever else is asked for
		case !strings.EqualFold(v, "keep-alive"):
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

// parseDigits parses a number that consists of decimal digits only. It returns -1 for anything else, such as "+5".
func parseDigits(s string) (n int64) {
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
	// plainPath has the bytes of a path that net/url does not escape.
	plainPath = setOf(alphanumeric + "/-._~$&+,;=:@")
	// tokens has the bytes of a field name (RFC 9110, 5.6.2).
	tokens = setOf(alphanumeric + "!#$%&'*+-.^_`|~")
	// hosts has the bytes of a host name or address with a port.
	hosts = setOf(alphanumeric + "-._:[]")
	// printable has the bytes of a field value that every HTTP implementation reads alike.
	printable = setOf(" !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\t" + alphanumeric)
)

func setOf(s string) (in set) {
	for i := range len(s) {
		in[s[i]] = true
	}
	return in
}

// all reports whether every byte of b is in a set.
func all(b []byte, in *set) bool {
	for _, c := range b {
		if !in[c] {
			return false
		}
	}
	return true
}

// connKey is the context key under which a request finds its connection.
type connKey struct{}

// Fields calls yield for each header field of a request, in the order and spelling in which the client sent it. Values keep
// trailing blanks, which RFC 9110 (5.5) removes and r.Header lacks: "x: a \r\n" yields "x" and "a ". Host is left out, as in
// r.Header.
//
// It returns false without calling yield for a request that net/http has parsed, whose original fields are unknown. It must
// not be called after the handler has returned.
func Fields(r *http.Request, yield func(name, value string)) bool {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return false
	}
	for i := range c.head.fields[:c.head.n] {
		if f := &c.head.fields[i]; f.key != "Host" {
			yield(f.name, f.sent)
		}
	}
	return true
}
