package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
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

// WriteError responds with an error: the HTTP status of its code, and its text as JSON.
func WriteError(w http.ResponseWriter, err error) {
	if _, stalled := errors.AsType[stalledError](err); stalled {
		WriteErrorText(w, http.StatusRequestTimeout, err.Error())
		return
	}
	if d := status.RetryAfter(err); d > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10))
	}
	code := status.CodeOf(err).HTTP()
	if errors.Is(err, infer.ErrTooLarge) {
		code = http.StatusRequestEntityTooLarge
	}
	WriteErrorText(w, code, status.Text(err))
}

// WriteErrorText responds with {"error":text}. The Content-Type is text/plain unless the header has one.
func WriteErrorText(w http.ResponseWriter, code int, text string) {
	body := AppendError(nil, text)
	h := w.Header()
	if h["Content-Type"] == nil {
		h["Content-Type"] = TextType
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))} // the response may be sent before the handler returns
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may have disconnected
}

// AppendError appends {"error":text}. The text may repeat names that the client sent, which need not be UTF-8.
func AppendError(b []byte, text string) []byte {
	b = append(b, `{"error":`...)
	return append(jsontext.Append(b, strings.ToValidUTF8(text, "\ufffd")), '}')
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
