package transport

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/jsontext"
)

// ErrorForm is the form of the body of an error, which is that of the server whose routes the client calls.
type ErrorForm uint8

// The forms. The members reason, retryable, retry_after_ms, step and predicted_finish_ms are in each.
const (
	// FormV2 is Triton's: {"error":TEXT}.
	FormV2 ErrorForm = iota
	// FormOpenAI is OpenAI's: {"error":{"message":TEXT,"type":"invalid_request_error","param":"input","code":null}}.
	FormOpenAI
	// FormTEI is that of Text Embeddings Inference: {"error":TEXT,"error_type":"Validation"}, with its statuses.
	FormTEI
)

// The codes of a FieldError that decide about its form.
const (
	CodeTooLong = "context_length_exceeded"
	CodeEmpty   = "empty_input"
	CodeModel   = "model_not_found"
)

// FieldError is an error about one member of a request. Clients of OpenAI get both names.
type FieldError struct {
	Param string // the member, for example "input"
	Code  string // for programs, optional
	Err   error  // has the text and the status
}

// Error implements error.
func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap returns the error with the text.
func (e *FieldError) Unwrap() error { return e.Err }

// statusOf returns the HTTP status of an error, and the error that the body describes.
func statusOf(err error) (int, error) {
	if _, stalled := errors.AsType[stalledError](err); stalled {
		return http.StatusRequestTimeout, err
	}
	if r, ok := errors.AsType[*identity.RefusedError](err); ok && r.Reason == identity.Forbidden {
		return http.StatusForbidden, r.Coded()
	}
	if errors.Is(err, infer.ErrTooLarge) {
		return http.StatusRequestEntityTooLarge, err
	}
	return status.CodeOf(err).HTTP(), err
}

// Write responds with an error in the form.
func (f ErrorForm) Write(w http.ResponseWriter, err error) {
	if f == FormV2 {
		WriteError(w, err)
		return
	}
	code, err := statusOf(err)
	f.WriteAs(w, code, err)
}

// WriteAs responds with a status and an error in the form. A form with statuses of its own replaces the status.
func (f ErrorForm) WriteAs(w http.ResponseWriter, code int, err error) {
	if f == FormV2 {
		WriteErrorAs(w, code, err)
		return
	}
	h := w.Header()
	SetErrorHeader(h, err)
	h["Content-Type"] = JSONType
	if f == FormTEI {
		var kind string
		code, kind = teiStatus(code, err)
		writeErrorBody(w, code, append(jsontext.Append(append(appendMembers(appendErrorText(nil, clientText(err)), err), `,"error_type":`...), kind), '}'))
		return
	}
	// OpenAI's clients send requests again by the status alone unless these headers say otherwise.
	d := status.DetailsOf(err)
	h["X-Should-Retry"] = []string{strconv.FormatBool(d.Retryable)}
	if d.RetryAfter > 0 {
		h["Retry-After-Ms"] = []string{strconv.FormatInt(status.Milliseconds(d.RetryAfter), 10)}
	}
	writeErrorBody(w, code, append(AppendOpenAI(append([]byte(nil), `{"error":`...), code, err), '}'))
}

// clientText is ErrorText with the text of a body that did not arrive.
func clientText(err error) string {
	if _, stalled := errors.AsType[stalledError](err); stalled {
		return err.Error()
	}
	return ErrorText(err)
}

// AppendOpenAI appends the object that is the member "error" of OpenAI's bodies, for a response or an item with an HTTP status.
func AppendOpenAI(b []byte, code int, err error) []byte {
	b = jsontext.Append(append(b, `{"message":`...), strings.ToValidUTF8(clientText(err), "\ufffd"))
	b = append(append(append(b, `,"type":"`...), openAIType(code)...), `","param":`...)
	var param, name string
	if e, ok := errors.AsType[*FieldError](err); ok {
		param, name = e.Param, e.Code
	}
	if name == "" {
		name = openAICode(code)
	}
	b = append(appendOrNull(b, param), `,"code":`...)
	return append(appendMembers(appendOrNull(b, name), err), '}')
}

// OpenAIItem appends the error of one item of a response.
func OpenAIItem(b []byte, err error) []byte {
	code, err := statusOf(err)
	return AppendOpenAI(b, code, err)
}

func appendOrNull(b []byte, text string) []byte {
	if text == "" {
		return append(b, "null"...)
	}
	return jsontext.Append(b, text)
}

func openAIType(code int) string {
	switch {
	case code == http.StatusUnauthorized:
		return "authentication_error"
	case code == http.StatusForbidden:
		return "permission_error"
	case code == http.StatusTooManyRequests:
		return "rate_limit_error"
	case code >= http.StatusInternalServerError:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

// openAICode returns the code of an error that has no other.
func openAICode(code int) string {
	switch code {
	case http.StatusUnauthorized:
		return "invalid_api_key"
	case http.StatusTooManyRequests:
		return "rate_limit_exceeded"
	default:
		return ""
	}
}

// teiStatus returns the status and the type of an error of Text Embeddings Inference.
func teiStatus(code int, err error) (int, string) {
	if e, ok := errors.AsType[*FieldError](err); ok && e.Code == CodeTooLong {
		return http.StatusRequestEntityTooLarge, "Validation"
	} else if ok && e.Code == CodeEmpty {
		return http.StatusBadRequest, "Empty"
	}
	switch code {
	case http.StatusBadRequest, http.StatusNotImplemented:
		return http.StatusUnprocessableEntity, "Validation"
	case http.StatusInternalServerError:
		return http.StatusFailedDependency, "Backend"
	case http.StatusTooManyRequests:
		return code, "Overloaded"
	case http.StatusServiceUnavailable:
		switch status.ReasonOf(err) {
		case status.QueueFull, status.QueueTimeout, status.DeadlineUnreachable, status.BytesInFlight, status.MemoryLimit, status.LimitReached:
			return http.StatusTooManyRequests, "Overloaded"
		}
		return code, "Unhealthy"
	default:
		return code, "Validation"
	}
}
