package transport

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/jsontext"
)

// Values of Content-Type and other headers. All responses share them, so they must not be modified.
var (
	JSONType   = []string{"application/json"}
	BinaryType = []string{"application/octet-stream"}
	TextType   = []string{"text/plain"}
	Close      = []string{"close"}
)

// WriteError responds with an error: the HTTP status of its code, and what it says as JSON and in headers, see WriteErrorAs.
func WriteError(w http.ResponseWriter, err error) {
	if _, stalled := errors.AsType[stalledError](err); stalled {
		writeErrorBody(w, http.StatusRequestTimeout, append(appendErrorText(nil, err.Error()), '}'))
		return
	}
	code, err := statusOf(err)
	WriteErrorAs(w, code, err)
}

// WriteErrorAs responds with a status and what an error says: the body of AppendError, and the headers of SetErrorHeader.
func WriteErrorAs(w http.ResponseWriter, code int, err error) {
	SetErrorHeader(w.Header(), err)
	writeErrorBody(w, code, AppendError(nil, err))
}

// SetErrorHeader sets the headers of a response to a request that failed with err. For example, for a full queue:
//
//	Retry-After: 1
//	Tutti-Error-Reason: QUEUE_FULL
//	Tutti-Error-Retryable: true
//	Tutti-Retry-After-Ms: 120
func SetErrorHeader(h http.Header, err error) {
	d := status.DetailsOf(err)
	h[status.ReasonHeader] = []string{string(d.Reason)}
	h[status.RetryableHeader] = []string{strconv.FormatBool(d.Retryable)}
	if after := d.RetryAfter; after > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10)}
		h[status.RetryAfterHeader] = []string{strconv.FormatInt(status.Milliseconds(after), 10)}
	}
}

// ErrorText returns the text of an error for clients, which is never empty.
func ErrorText(err error) string { return cmp.Or(status.Text(err), errorWithoutText(err)) }

// errorWithoutText returns the text of an error that has none, as that of cancelled requests, which Triton sends over gRPC.
func errorWithoutText(err error) string {
	if status.CodeOf(err) == status.Cancelled {
		return "the request was cancelled: its client has closed the connection, or its sending half"
	}
	return "the request failed: " + strings.ToLower(status.CodeOf(err).String())
}

// writeErrorBody responds with the object of an error. The Content-Type is text/plain unless the header has one.
func writeErrorBody(w http.ResponseWriter, code int, body []byte) {
	h := w.Header()
	if h["Content-Type"] == nil {
		h["Content-Type"] = TextType
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))} // the response may be sent before the handler returns
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may have disconnected
}

// AppendError appends an error in its JSON form. One that says nothing besides its code has Triton's form, {"error":text}; others have more
// members behind it. For example:
//
//	{"error":"...","reason":"QUEUE_FULL","retryable":true,"retry_after_ms":120,"step":"detect","predicted_finish_ms":340}
func AppendError(b []byte, err error) []byte {
	return append(appendMembers(appendErrorText(b, ErrorText(err)), err), '}')
}

// appendMembers appends the members of an error besides its text.
func appendMembers(b []byte, err error) []byte {
	if d := status.DetailsOf(err); d.Own {
		b = jsontext.Append(append(b, `,"reason":`...), string(d.Reason))
		b = strconv.AppendBool(append(b, `,"retryable":`...), d.Retryable)
		if d.RetryAfter > 0 {
			b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), status.Milliseconds(d.RetryAfter), 10)
		}
		if d.Step != "" {
			b = jsontext.Append(append(b, `,"step":`...), strings.ToValidUTF8(d.Step, "\ufffd"))
		}
		if d.Finish > 0 {
			b = strconv.AppendInt(append(b, `,"predicted_finish_ms":`...), status.Milliseconds(d.Finish), 10)
		}
	}
	return b
}

// appendErrorText appends the object of an error up to its text, which may repeat names that the client sent, which need not be UTF-8.
func appendErrorText(b []byte, text string) []byte {
	return jsontext.Append(append(b, `{"error":`...), strings.ToValidUTF8(text, "\ufffd"))
}

// WriteJSON responds with v as compact JSON without HTML escapes.
func WriteJSON(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		WriteError(w, err)
		return
	}
	WriteBody(w, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// WriteBody responds with b, which is JSON.
func WriteBody(w http.ResponseWriter, b []byte) {
	w.Header()["Content-Type"] = JSONType
	_, _ = w.Write(b) // the client may have disconnected
}

// NotSupported returns the error of an endpoint for which this server was built without the component it needs.
func NotSupported(what string) error {
	return status.Errorf(status.Unsupported, "the %s endpoint is not supported by this server", what)
}

// Reject responds with err and reads the rest of the request. When err is about the bytes in flight, the response is sent
// first: the client may have much left to send, and can stop.
func (s *Shared) Reject(w http.ResponseWriter, r *http.Request, err error) {
	s.RejectIn(FormV2, w, r, err)
}

// RejectIn is Reject with a form of the error.
func (s *Shared) RejectIn(form ErrorForm, w http.ResponseWriter, r *http.Request, err error) {
	early := (errors.Is(err, infer.ErrFull) || errors.Is(err, infer.ErrTooLarge)) && r.ProtoMajor == 1 && len(r.Header["Expect"]) == 0
	c := http.NewResponseController(w)
	if early = early && c.EnableFullDuplex() == nil; !early {
		s.Drain(w, r, err)
	}
	form.Write(w, err)
	if early && c.Flush() == nil {
		s.Drain(w, r, err)
	}
}

// Drain reads the rest of a request, so that the connection can serve the next one; net/http itself gives up after 256 KiB. err
// is the error of the request, nil for none: after some the connection closes instead.
func (s *Shared) Drain(w http.ResponseWriter, r *http.Request, err error) {
	_, stalled := errors.AsType[stalledError](err)
	switch {
	case r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody:
		return
	case errors.Is(err, errChunks) || stalled:
		w.Header().Set("Connection", "close")
		return
	case len(r.Header["Expect"]) > 0 || r.ContentLength > 2*s.MaxInput:
		return // reading would send "100 Continue" to a client that waits for it
	}
	// A failure, such as the read timeout, shows again when net/http reads on.
	_, _ = io.CopyN(io.Discard, r.Body, 2*s.MaxInput)
}

// Coding is the compression of a response.
type Coding uint8

// The codings of responses.
const (
	Identity Coding = iota
	Deflate
	Gzip
	numCodings
)

// The header values are shared by all responses.
var (
	codingNames = [numCodings][]string{{"identity"}, {"deflate"}, {"gzip"}}
	vary        = []string{"Accept-Encoding"}
)

// Negotiate returns the coding that the request's Accept-Encoding weighs highest, of equals the first in the list, and sets
// Content-Encoding and Vary of the response. A star stands for every coding that is not named, Identity first. If nothing
// is acceptable or readable the response is not compressed. For example, "gzip;q=0.5, deflate" selects Deflate.
//
// hot: no allocation.
func Negotiate(request, response http.Header) Coding {
	if len(request["Accept-Encoding"]) == 0 {
		return Identity
	}
	c := accepted(request)
	response["Vary"] = vary
	if c != Identity {
		response["Content-Encoding"] = codingNames[c]
	}
	return c
}

func accepted(h http.Header) Coding {
	var best, star float64
	var choice Coding
	var named [numCodings]bool
	for _, line := range h["Accept-Encoding"] {
		for more := true; more; {
			var part string
			part, line, more = strings.Cut(line, ",")
			name, weight, ok := weighted(part)
			if !ok {
				continue
			}
			c := codingOf(name)
			switch {
			case name == "*":
				star = weight
			case c < numCodings:
				if named[c] = true; weight > best {
					best, choice = weight, c
				}
			}
		}
	}
	if star > best {
		for _, c := range [...]Coding{Identity, Gzip, Deflate} {
			if !named[c] {
				return c
			}
		}
	}
	return choice
}

// weighted parses "name;q=weight". The weight is 1 by default.
func weighted(part string) (name string, weight float64, ok bool) {
	name, rest, more := strings.Cut(part, ";")
	name, weight = strings.TrimSpace(name), 1
	for more {
		var param string
		param, rest, more = strings.Cut(rest, ";")
		key, value, _ := strings.Cut(param, "=")
		if key = strings.TrimSpace(key); key != "q" && key != "Q" {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || math.IsNaN(q) {
			return name, 0, false
		}
		weight = q
	}
	return name, weight, name != ""
}

func codingOf(name string) Coding {
	for c := range numCodings {
		if strings.EqualFold(name, codingNames[c][0]) {
			return c
		}
	}
	return numCodings
}

// compressor is a writer that compresses.
type compressor interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// compressors holds the unused compressors by coding. Each has hundreds of KiB of buffers. Slower levels take several times as
// long and hardly make tensors smaller.
var compressors = [numCodings]sync.Pool{
	Deflate: {New: func() any { return levelled(zlib.NewWriterLevel(io.Discard, zlib.BestSpeed)) }},
	Gzip:    {New: func() any { return levelled(gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)) }},
}

// levelled drops the error of an invalid level.
func levelled[T compressor](w T, _ error) compressor { return w }

// Compress calls write with a writer that compresses to w.
func Compress(w io.Writer, c Coding, write func(io.Writer) error) error {
	z := compressors[c].Get().(compressor) //nolint:errcheck,forcetypeassert // the pools hold nothing else
	z.Reset(w)
	err := write(z)
	if err == nil {
		err = z.Close()
	}
	z.Reset(io.Discard)
	compressors[c].Put(z)
	return err
}

const (
	// SlowWrite is the size from which a response may stay in memory because its client does not read it.
	SlowWrite = 256 << 10
	// slowPart is how much of a response the client must read within the stall time.
	slowPart = 1 << 20
)

// Writer writes a response of any size for as long as the client reads it. End must follow the last Write.
type Writer struct {
	w     http.ResponseWriter
	stall time.Duration
}

// Writer returns a Writer to w.
func (s *Shared) Writer(w http.ResponseWriter) Writer { return Writer{w, s.StallTimeout} }

// Write writes b in parts, each of which has the whole stall time.
func (p *Writer) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), slowPart)]
		p.deadline(p.stall)
		var wrote int
		wrote, err = p.w.Write(part)
		n += wrote
		b = b[len(part):]
	}
	return n, err
}

// End removes the deadline, so that the connection can serve the next request.
func (p *Writer) End() { p.deadline(0) }

func (p *Writer) deadline(d time.Duration) {
	if p.stall == 0 {
		return
	}
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	// A writer without deadlines, as in tests, has no connection.
	_ = http.NewResponseController(p.w).SetWriteDeadline(t)
}
