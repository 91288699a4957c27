package durable

import (
	"context"
	"errors"
	"strings"

	"go.temporal.io/api/serviceerror"
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

// unreachable adds what to do to an error of a Temporal server that is away, or that refuses this process.
func unreachable(err error) string {
	text, do := strings.TrimSuffix(err.Error(), "."), "start the Temporal server, or name another one with --temporal-address"
	for _, a := range advices {
		if strings.Contains(text, a.text) {
			do = a.do
			break
		}
	}
	return text + "; " + do
}

// cause returns why calls fail instead of a deadline that ended their retries.
func (s *Settings) cause(err error) error {
	var late *serviceerror.DeadlineExceeded
	if s.Failure == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &late) {
		return err
	}
	if why := s.Failure(); why != nil {
		return why
	}
	return err
}
