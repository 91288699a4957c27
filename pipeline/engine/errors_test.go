package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.temporal.io/api/serviceerror"

	"github.com/tutti-server/tutti/core/status"
)

// TestCoded checks codes and advice.
func TestCoded(t *testing.T) {
	t.Parallel()
	missing := status.Errorf(status.NotFound, "job 'a' is unknown")
	var away Failure = func() error { return errors.New("rpc error: code = Unauthenticated desc = the key has expired") }
	for _, tt := range []struct {
		failure Failure
		err     error
		code    status.Code
		want    string
	}{
		{nil, serviceerror.NewNamespaceNotFound("ml"), status.Unavailable, "no namespace 'ml'; create it, or name another one with --temporal-namespace"},
		{nil, serviceerror.NewNotFound("workflow not found"), status.NotFound, "job 'a' is unknown"},
		{nil, serviceerror.NewInvalidArgument("too long"), status.InvalidArg, "job 'a': too long"},
		{nil, serviceerror.NewPermissionDenied("no", ""), status.Unavailable, "refuses this server: no; check the client certificate of --temporal-tls-cert, or the API key of --temporal-api-key-file"},
		{nil, fmt.Errorf("call: %w", context.Canceled), status.Cancelled, ""},
		{nil, serviceerror.NewUnavailable("connection refused"), status.Unavailable, "Temporal cannot be reached: connection refused; start the Temporal server, or name another one with --temporal-address"},
		{nil, errors.New("x509: certificate signed by unknown authority"), status.Unavailable, "; name the authority of the Temporal server's certificate with --temporal-tls-ca"},
		{nil, context.DeadlineExceeded, status.Unavailable, "context deadline exceeded; start the Temporal server"},
		{away, context.DeadlineExceeded, status.Unavailable, "the key has expired; renew the API key in the file of --temporal-api-key-file"},
		{away, serviceerror.NewDeadlineExceeded("late"), status.Unavailable, "the key has expired; renew the API key"},
		{away, serviceerror.NewUnavailable("connection refused"), status.Unavailable, "connection refused; start the Temporal server"},
	} {
		err := tt.failure.Coded(tt.err, "job 'a'", missing)
		if status.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %s %v, want %s with %q", tt.err, status.CodeOf(err), err, tt.code, tt.want)
		}
	}
}

// TestText checks that texts for the history are valid UTF-8 and short, whatever an error quotes.
func TestText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u00e9", 2<<10) // two bytes each
	for text, want := range map[string]string{
		"":                             "",
		"open /data/\xff.txt: no file": "open /data/\ufffd.txt: no file",
		long:                           strings.Repeat("\u00e9", 1<<10) + "...",
		"x" + long:                     "x" + strings.Repeat("\u00e9", 1<<10-1) + "...",
		strings.Repeat("\xff", 3<<10):  "\ufffd...",
	} {
		if got := Text(text); got != want {
			t.Errorf("%.40q: %.40q of %d bytes, want %.40q of %d", text, got, len(got), want, len(want))
		}
	}
}
