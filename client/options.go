package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Options configure the connections of a client, and the headers of its requests.
type Options struct {
	// TLS configures the connections to https:// and grpcs:// URLs. nil trusts the authorities of the system and
	// presents no certificate.
	TLS *tls.Config
	// Header is sent with every request: as HTTP headers, or as gRPC metadata.
	Header http.Header

	_ struct{}
}

// The schemes of the URLs of servers.
const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
	schemeGRPC  = "grpc"
	schemeGRPCS = "grpcs"
)

// ParseURL parses the URL of a server: http://, https://, grpc:// or grpcs:// and HOST:PORT. It accepts HOST:PORT
// alone as http://HOST:PORT.
func ParseURL(server string) (*url.URL, error) {
	if !strings.Contains(server, "://") {
		server = schemeHTTP + "://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case schemeHTTP, schemeHTTPS, schemeGRPC, schemeGRPCS:
		if u.Host != "" {
			return u, nil
		}
	}
	return nil, fmt.Errorf("'%s' is no address of a server, expected http://HOST:PORT or grpc://HOST:PORT (https:// or grpcs:// with TLS)", server)
}

// RoundTripper returns a transport for HTTP requests with the options; o may be nil.
func (o *Options) RoundTripper() http.RoundTripper {
	t := &http.Transport{MaxIdleConnsPerHost: idlePerHost, DisableCompression: true, Proxy: http.ProxyFromEnvironment}
	if o == nil {
		return t
	}
	t.TLSClientConfig = o.TLS.Clone()
	if len(o.Header) == 0 {
		return t
	}
	return &withHeader{Transport: t, header: o.Header}
}

// withHeader adds headers to every request. It sets the field Host for the header of that name, as net/http
// requires.
type withHeader struct {
	*http.Transport
	header http.Header
}

// RoundTrip implements http.RoundTripper.
func (w *withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range w.header {
		if name == "Host" {
			r.Host = values[0]
			continue
		}
		r.Header[name] = values
	}
	return w.Transport.RoundTrip(r)
}

// dialOptions returns options that add the header to every call.
func (o *Options) dialOptions() []grpc.DialOption {
	if len(o.Header) == 0 {
		return nil
	}
	md := metadata.MD{}
	for name, values := range o.Header {
		md.Append(name, values...) // Append makes the name lower case
	}
	add := func(ctx context.Context) context.Context {
		sent, _ := metadata.FromOutgoingContext(ctx)
		return metadata.NewOutgoingContext(ctx, metadata.Join(sent, md))
	}
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return call(add(ctx), method, req, reply, c, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(add(ctx), d, c, method, opts...)
		}),
	}
}
