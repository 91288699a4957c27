// Package engine is what jobs (pipeline/durable) and asynchronous requests (pipeline/async) share of Temporal: the errors of its server,
// with what to do about them, and workers that stay on their task queues.
package engine

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
)

// advices are what to do about errors of a connection to Temporal. The first whose text is in the error counts.
var advices = []struct{ text, do string }{
	{"certificate has expired or is not yet valid", "renew the certificate of the Temporal server"},
	{"certificate signed by unknown authority", "name the authority of the Temporal server's certificate with --temporal-tls-ca"},
	{"failed to verify certificate", "name the Temporal server as its certificate does with --temporal-tls-server-name"},
	{"tls: first record does not look like a TLS handshake", "the Temporal server has no TLS: leave out --temporal-tls* and --temporal-api-key-file, or name another server with --temporal-address"},
	{"tls: certificate required", "the Temporal server demands a client certificate: name one with --temporal-tls-cert and --temporal-tls-key"},
	{"remote error: tls:", "the Temporal server refuses the client certificate: renew the files of --temporal-tls-cert and --temporal-tls-key, which are read for each connection"},
	{"code = Unauthenticated", "renew the API key in the file of --temporal-api-key-file, which is read again when it changes"},
	{"--temporal-api-key-file", "correct the file, which is read again when it changes"},
	{"error reading server preface", "if the Temporal server expects TLS, give --temporal-tls=true, or name its authority with --temporal-tls-ca"},
}

// advise adds what to do to an error of a Temporal server that is away, or that refuses this process.
func advise(err error) string {
	text, do := strings.TrimSuffix(err.Error(), "."), "start the Temporal server, or name another one with --temporal-address"
	for _, a := range advices {
		if strings.Contains(text, a.text) {
			do = a.do
			break
		}
	}
	return text + "; " + do
}

// maxText bounds a text of an error in Temporal's history, in bytes.
const maxText = 2 << 10

// Text returns a text as Temporal's history can have it: short and valid UTF-8. The call that reports the failure of an activity would
// fail otherwise, and the activity would look as if its worker had died. Errors may quote bytes of a dataset or of a file's name.
func Text(text string) string {
	long := len(text) > maxText
	if long {
		text = text[:maxText]
	}
	for i := 0; long && i < utf8.UTFMax && len(text) > 0; i++ { // a character that was cut
		if r, n := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || n != 1 {
			break
		}
		text = text[:len(text)-1]
	}
	if text = strings.ToValidUTF8(text, "\ufffd"); long {
		text += "..."
	}
	return text
}

// Failure returns the error of the last call to Temporal if the server was away or refused it, and else nil. It gives the reason of calls
// whose retries a deadline ended. Nil: it is not known.
type Failure func() error

// of returns why calls fail instead of a deadline that ended their retries.
func (f Failure) of(err error) error {
	var late *serviceerror.DeadlineExceeded
	if f == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &late) {
		return err
	}
	if why := f(); why != nil {
		return why
	}
	return err
}

// Coded returns an error of a call to Temporal with its code of core/status, and with what to do. what is the thing that the call was
// about, for example "job 'a'", and missing the error for one that Temporal does not have. What may pass is Unavailable.
func (f Failure) Coded(err error, what string, missing error) error {
	err = f.of(err)
	var namespace *serviceerror.NamespaceNotFound
	var unknown *serviceerror.NotFound
	var invalid *serviceerror.InvalidArgument
	var denied *serviceerror.PermissionDenied
	switch {
	case errors.As(err, &namespace):
		return status.Reasonf(status.StorageUnavailable, "Temporal has no namespace '%s'; create it, or name another one with --temporal-namespace", namespace.Namespace)
	case errors.As(err, &unknown):
		return missing
	case errors.As(err, &invalid):
		return status.Errorf(status.InvalidArg, "%s: %w", what, err)
	case errors.As(err, &denied):
		return status.Reasonf(status.StorageUnavailable, "Temporal refuses this server: %w; check the client certificate of --temporal-tls-cert, or the API key of --temporal-api-key-file", err)
	case errors.Is(err, context.Canceled), temporal.IsCanceledError(err):
		return status.ErrCancelled
	case diskfull.Is(err):
		return status.Prefixf(err, "%s: the Temporal server cannot store anything: ", what)
	}
	return &status.Error{Code: status.Unavailable, Reason: status.StorageUnavailable, Msg: "Temporal cannot be reached: " + advise(err), Err: err, RetryAfter: time.Second}
}
