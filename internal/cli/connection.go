package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tutti-server/tutti/client"
)

// defaultURL is the URL of a server with default options on this machine.
const defaultURL = "http://127.0.0.1:8000"

// connection has the flags with which commands connect to servers. Their names are those of curl and kubectl.
type connection struct {
	cacert, cert, key string
	insecure          bool
	headers           list
	given, saved      bearer        // of the flags and of the context
	context           *savedContext // context is the selected one, or nil
	used              bool          // used is true once the fields above have what the context says
}

// bearer is a token, or the file that contains it.
type bearer struct{ token, file string }

// connectVariable is the environment variable with the token.
const connectVariable = "TUTTI_TOKEN"

// flags declares the flags.
func (c *connection) flags(fs *flag.FlagSet) {
	fs.Var(&contextFlag{c: c}, "context", "`name` of the context with the server, in place of the current one; by default of "+contextVariable)
	c.serverFlags(fs)
}

// serverFlags declares the flags that describe a server.
func (c *connection) serverFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.given.token, "token", "", "`token` to send with every request (Authorization: Bearer); by default of "+connectVariable)
	fs.StringVar(&c.given.file, "token-file", "", "`file` with the token")
	fs.StringVar(&c.cacert, "cacert", "", "`file` of the authorities (PEM) that may sign the server's certificate, in place of the system's")
	fs.StringVar(&c.cert, "cert", "", "`file` of the certificate (PEM) that this client presents; with --key")
	fs.StringVar(&c.key, "key", "", "`file` of the private key (PEM) of --cert")
	fs.BoolVar(&c.insecure, "insecure", false, "use TLS without checking the server's certificate")
	fs.Var(&c.headers, "header", "`NAME:VALUE` to send with every request, as HTTP header or gRPC metadata; may be repeated")
}

// connectionFlag reports whether a flag is one of those for the connection to a server, which help lists apart.
func connectionFlag(name string) bool {
	return slices.Contains([]string{"url", "cacert", "cert", "key", "insecure", "header", "token", "token-file", "context"}, name)
}

// urlFlag declares --url.
func urlFlag(fs *flag.FlagSet, help string) *string {
	return fs.String("url", defaultURL, "`URL` of the server, "+help+"; HOST:PORT alone is taken as http://HOST:PORT")
}

// options returns the client options of the flags.
func (c *connection) options() (*client.Options, error) {
	o := &client.Options{Header: http.Header{}}
	for _, h := range c.headers {
		name, value, ok := strings.Cut(h, ":")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, usagef("--header is '%s', expected NAME:VALUE", h)
		}
		o.Header.Add(name, strings.TrimSpace(value))
	}
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	if token != "" && o.Header.Get("Authorization") == "" {
		o.Header.Set("Authorization", "Bearer "+token)
	}
	if c.cacert != "" || c.cert != "" || c.key != "" || c.insecure {
		o.TLS, err = c.tls()
	}
	return o, err
}

// token returns the token to send, empty for none. Flags take precedence over the environment, and the environment over the
// context.
func (c *connection) token() (string, error) {
	token, file, from := c.given.token, c.given.file, "--token-file"
	switch {
	case token != "" && file != "":
		return "", usagef("--token and --token-file exclude each other")
	case token == "" && file == "":
		token = os.Getenv(connectVariable)
	}
	if token == "" && file == "" {
		token, file, from = c.saved.token, c.saved.file, "the token-file of the context"
	}
	if file != "" {
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return "", fmt.Errorf("%s: %w", from, err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", usagef("%s: '%s' is empty, expected a token", from, file)
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", usagef("the token has a space or a character that a header cannot have, expected a token without")
	}
	return token, nil
}

// tls reads the files of the flags.
func (c *connection) tls() (*tls.Config, error) {
	set := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.insecure} //nolint:gosec // requested by --insecure
	if c.cacert != "" {
		pem, err := os.ReadFile(c.cacert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		if set.RootCAs = x509.NewCertPool(); !set.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--cacert: '%s' has no certificate in PEM form", c.cacert)
		}
	}
	switch {
	case (c.cert == "") != (c.key == ""):
		return nil, usagef("--cert and --key go together, found only one of them")
	case c.cert != "":
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("--cert '%s' with --key '%s': %w", c.cert, c.key, err)
		}
		set.Certificates = []tls.Certificate{pair}
	}
	return set, nil
}

// dial returns a client of the server at a URL.
func (c *connection) dial(server string) (client.Manager, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	m, err := client.DialWith(server, o)
	if err != nil {
		return nil, &usageError{err}
	}
	return m, nil
}

// api returns the URL of the dashboard's API of a server, and the HTTP client for it. Only the HTTP port has the API.
func (c *connection) api(server string) (base string, h *http.Client, err error) {
	base, o, err := c.http(server)
	if err != nil {
		return "", nil, err
	}
	return strings.TrimSuffix(base, "/") + "/ui/api/", &http.Client{Transport: o.RoundTripper(), CheckRedirect: client.CheckRedirect}, nil
}

// http returns the URL of a server's HTTP port, and the client options of the flags.
func (c *connection) http(server string) (base string, o *client.Options, err error) {
	u, err := client.ParseURL(server)
	if err != nil {
		return "", nil, &usageError{err}
	}
	if isGRPC(u) {
		return "", nil, usagef("'%s' is a gRPC port, but this command uses HTTP: expected --url http://HOST:PORT", server)
	}
	o, err = c.options()
	return u.String(), o, err
}

func isGRPC(u *url.URL) bool { return strings.HasPrefix(u.Scheme, "grpc") }

// explain adds the probable mistake in the address or the flags to the error of a request.
func (c *connection) explain(ctx context.Context, server string, err error) error {
	u, bad := client.ParseURL(server)
	if err == nil || bad != nil || ctx.Err() != nil {
		return err
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "restricted, expecting header"):
		return &failure{exitRefused, errorWith(err, "; pass it with --header NAME:VALUE")}
	case strings.Contains(text, "certificate required"):
		return &failure{exitRefused, errorWith(client.ErrCertificateRequired, ": pass --cert and --key")}
	case strings.Contains(text, "x509: "):
		return &failure{exitRefused, errorWith(err, "; pass --cacert with the file of the authority that signed the server's certificate, or --insecure to use any")}
	case isForeign(err):
		return &failure{exitUsage, errorWith(err, "; expected the HTTP port of a server, by default 8000, and not its metrics port or another program: is --url right?")}
	case !maybeMisdirected(err):
		return err
	}
	return c.explainPort(ctx, u, err)
}

// isForeign reports whether another program than an inference server has responded. A proxy in front of a server responds in its own
// way too, but only to say that the client may not use the server or that the server is not available.
func isForeign(err error) bool {
	if _, ok := errors.AsType[*client.ForeignError](err); ok {
		return true
	}
	refusal, ok := errors.AsType[*client.Error](err)
	return ok && refusal.Foreign && refusal.Text != "" && !strings.Contains(refusal.Text, "HTTPS server") &&
		slices.Contains([]int{exitFailure, exitNotFound}, refusalStatus(refusal.Status))
}

// maybeMisdirected reports whether the protocol at the address may have caused an error, so that it is not the response of
// a v2 server.
func maybeMisdirected(err error) bool {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return true
	}
	refusal, ok := errors.AsType[*client.Error](err)
	if !ok {
		return false
	}
	return refusal.Status == "Unavailable" || // gRPC's status of a failed connection
		strings.Contains(refusal.Text, "unexpected HTTP status code") || strings.Contains(refusal.Text, "HTTPS server")
}

// explainPort probes the protocol at the address.
func (c *connection) explainPort(ctx context.Context, u *url.URL, err error) error {
	var identity *tls.Config
	if o, bad := c.options(); bad == nil {
		identity = o.TLS
	}
	port := "443"
	if u.Scheme == "http" {
		port = "80"
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
	found, failed := client.Probe(ctx, address, identity)
	switch {
	case errors.Is(failed, syscall.ECONNREFUSED):
		return &failure{exitUnavailable, fmt.Errorf("nothing listens at %s (connection refused): is a server running there?", address)}
	case errors.Is(failed, client.ErrCertificateRequired):
		return &failure{exitRefused, errorWith(failed, ": pass --cert and --key")}
	case failed != nil:
		return &failure{exitUnavailable, fmt.Errorf("there is no connection to %s: %w", address, failed)}
	case found == "" || found == u.Scheme:
		return err
	}
	return misdirected(u, address, found)
}

// misdirected returns an error with the URL to use instead of u; found is the scheme of the protocol at its port.
func misdirected(u *url.URL, address, found string) error {
	is := "a port with TLS"
	switch {
	case isGRPC(u) && strings.HasPrefix(found, "http"):
		is = "an HTTP port"
	case !isGRPC(u) && strings.HasPrefix(found, "grpc"):
		is = "a gRPC port"
	case strings.HasSuffix(u.Scheme, "s"):
		is = "a port without TLS"
	}
	return &failure{exitUsage, fmt.Errorf("%s is %s: use %s://%s", address, is, found, u.Host)}
}

// isServer reports whether repo is the address of a server and not a repository: a URL with a scheme of servers, or
// HOST:PORT if no such folder exists.
func isServer(repo string) bool {
	u, err := client.ParseURL(repo)
	if err != nil {
		return false
	}
	if strings.Contains(repo, "://") {
		return true
	}
	port, bad := strconv.ParseUint(u.Port(), 10, 16)
	if bad != nil || port == 0 || u.Host != repo {
		return false
	}
	_, err = os.Stat(repo)
	return errors.Is(err, os.ErrNotExist)
}
